"""Where a stream comes from and what reads it, over several queries."""

from __future__ import annotations

from sbon.model import QueryInfo, SinkSpec, StreamInfo
from sbon_cli.commands.streams.lineage import Line, Lineage
from sbon_node.model.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_node.model.columns import Column


def stream(name: str, connector: str, **options: str) -> StreamInfo:
    declaration = StreamDeclaration(name=name, schema=(Column("ts", "timestamp"),), event_time="ts")
    source = SourceDeclaration(stream=name, name="s", node="a", connector=connector, options=options)
    return StreamInfo(entry=CatalogEntry(declaration=declaration, sources=(source,)))  # type: ignore[return-value]


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
