"""Where a stream comes from and what reads it, over several queries."""

from __future__ import annotations

from sbon.model import QueryInfo, SinkSpec, StreamInfo
from sbon_cli.commands.streams.stream import Line, Lineage
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column


def stream(name: str, connector: str, **options: str) -> StreamInfo:
    declaration = StreamDeclaration(name=name, schema=(Column("ts", "timestamp"),), event_time="ts")
    source = SourceDeclaration(stream=name, name="s", node="a", connector=connector, options=options)
    return StreamInfo(entry=CatalogEntry(declaration=declaration, sources=(source,)))  # type: ignore[return-value]


def view(name: str, sql: str) -> StreamInfo:
    declaration = StreamDeclaration(name=name, schema=(Column("ts", "timestamp"),), event_time="", sql=sql)
    return StreamInfo(entry=CatalogEntry(declaration=declaration))  # type: ignore[return-value]


def query(uid: str, *streams: str, to: str = "stream", state: str = "running") -> QueryInfo:
    name = uid.partition("-")[0]
    return QueryInfo(id=name, uid=uid, sql="", state=state, streams=streams, sink=SinkSpec(kind=to), consumer="b")  # type: ignore[arg-type]


LINEAGE = Lineage(
    [stream("flights", "file"), stream("late", "query", query="late-1"), stream("very_late", "query", query="very-1")],
    [
        query("late-1", "flights"),
        query("very-1", "late"),
        query("shown-1", "very_late", to="follow"),
        query("over-1", "late", to="follow", state="finished"),
    ],
)


def test_upstream_are_queries_and_their_streams_up_to_sources() -> None:
    assert LINEAGE.upstream("very_late") == [
        Line(1, "query", "very", "running, to stream at b"),
        Line(2, "stream", "late"),
        Line(3, "query", "late", "running, to stream at b"),
        Line(4, "stream", "flights"),
        Line(5, "source", "s", "file at a"),
    ]


def test_downstream_are_live_readers_and_what_reads_their_results() -> None:
    assert LINEAGE.downstream("flights") == [
        Line(1, "query", "late", "running, to stream at b"),
        Line(2, "stream", "late"),
        Line(3, "query", "very", "running, to stream at b"),
        Line(4, "stream", "very_late"),
        Line(5, "query", "shown", "running, to follow at b"),
    ]
    assert LINEAGE.downstream("nothing") == []


def test_views_are_on_the_way_up_and_down() -> None:
    views = [
        view("few", "WITH a AS (SELECT * FROM Flights) SELECT ts FROM a"),
        view("fewer", "SELECT x.ts FROM few AS x, late WHERE late.ts = x.ts"),
        view("broken", "SELECT FROM"),
    ]
    lineage = Lineage([*views, stream("flights", "file"), stream("late", "query", query="late-1")], [query("late-1", "flights")])
    source = Line(2, "source", "s", "file at a")
    assert lineage.upstream("few") == [Line(1, "stream", "flights"), source]
    assert lineage.upstream("fewer") == [
        Line(1, "view", "few"),
        Line(2, "stream", "flights"),
        Line(3, "source", "s", "file at a"),
        Line(1, "stream", "late"),
        Line(2, "query", "late", "running, to stream at b"),
        Line(3, "stream", "flights"),
        Line(4, "source", "s", "file at a"),
    ]
    assert lineage.upstream("broken") == []
    assert lineage.downstream("flights") == [
        Line(1, "view", "few"),
        Line(2, "view", "fewer"),
        Line(1, "query", "late", "running, to stream at b"),
        Line(2, "stream", "late"),
        Line(3, "view", "fewer"),
    ]
