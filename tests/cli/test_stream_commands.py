"""Commands that declare streams and attach sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from sbon_cli.commands.streams.stream import connector_of, show_stream
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.api.streams import SourceInfo, StreamInfo
from sbon_protocol.errors import SbonError
from tests.cli.commands import run


def test_a_stream_is_declared_and_a_source_attached(api: str, node: Any) -> None:
    create = ("stream", "create", "flights", "--schema", "ts timestamp, d DECIMAL(10,2)", "--event-time", "ts", "--delay", "5m")
    assert run(api, *create).exit_code == 0
    assert node.declared[0].schema == (Column("ts", "timestamp"), Column("d", "decimal(10,2)"))
    assert node.declared[0].delay_ms == 300_000
    assert run(api, "stream", "attach", "flights", "--file", "x.csv", "--replay", "60", "--node", "b").exit_code == 0
    source = node.attached[0]
    assert (source.node, source.name, source.connector) == ("b", "b", "file")
    assert source.options == {"path": str(Path("x.csv").absolute()), "replay": 60.0}


def test_a_view_is_created_from_its_query_alone(api: str, node: Any) -> None:
    assert run(api, "stream", "create", "late", "--view", "SELECT ts FROM flights", "--comment", "of more").exit_code == 0
    assert [(view.name, view.sql, view.comment) for view in node.views] == [("late", "SELECT ts FROM flights", "of more")]
    for options, said in (
        (("--view", "SELECT 1", "--schema", "ts timestamp"), "--view and --as take columns and event time from their query"),
        (("--event-time", "ts"), "--schema is missing"),
        (("--schema", "ts timestamp"), "--event-time is missing"),
    ):
        refused = run(api, "stream", "create", "s", *options)
        assert (refused.exit_code, node.declared) == (2, [])
        assert said in refused.stderr
    declared = StreamDeclaration(name="late", schema=(Column("ts", "timestamp"),), event_time="ts", sql="SELECT ts FROM flights")
    show_stream(StreamInfo(entry=CatalogEntry(declaration=declared)))


def test_a_stream_is_made_of_a_querys_result(api: str, node: Any) -> None:
    created = run(api, "stream", "create", "late", "--as", "SELECT ts FROM flights")
    assert created.exit_code == 0
    assert "late created: the result of" in created.stdout
    (sent,) = node.submitted
    assert (sent.name, sent.sql, sent.sink.kind, sent.sink.options) == (
        "late",
        "SELECT ts FROM flights",
        "stream",
        {"stream": "late"},
    )
    run(api, "stream", "create", "very_late_", "--as", "SELECT ts FROM flights")
    sent = node.submitted.pop()
    assert (sent.name, sent.sink.options) == ("very-late", {"stream": "very_late_"})
    for options, said in (
        (("--as", "SELECT 1", "--delay", "5s"), "--view and --as take columns and event time from their query"),
        (("--as", "SELECT 1", "--view", "SELECT 1"), "one of them, please"),
        (("--as", ""), "'--as': it is empty"),
        (("--view", " "), "'--view': it is empty"),
        (("--as", "SELECT 1", "--comment", "of more"), "--as takes no comment"),
    ):
        refused = run(api, "stream", "create", "s", *options)
        assert (refused.exit_code, len(node.submitted)) == (2, 1)
        assert said in refused.stderr


def test_a_bad_schema_names_its_column(api: str, node: Any) -> None:
    result = run(api, "stream", "create", "s", "--schema", "ts timestamp, a strin", "--event-time", "ts")
    assert (result.exit_code, node.declared) == (2, [])
    assert "column 2, a: no type 'strin'" in result.stderr


@pytest.mark.parametrize(
    "code", ["bad-event-time", "bad-name", "bad-option", "bad-source", "bad-type", "unknown-connector", "unknown-option"]
)
def test_a_wrong_declaration_is_wrong_usage_whoever_refuses_it(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    async def create_stream(declaration: StreamDeclaration) -> None:
        raise SbonError(code, "'x' is of type string, not timestamp", where="event_time", hint="timestamps are ts")

    monkeypatch.setattr(node, "create_stream", create_stream)
    for command in (
        ("stream", "create", "s", "--schema", "ts timestamp, x string", "--event-time", "x"),
        ("sql", "-c", "CREATE STREAM s (ts timestamp, x string) EVENT TIME x"),
    ):
        result = run(api, *command)
        assert (result.exit_code, "of type string, not timestamp" in result.stderr) == (2, True)


def test_a_declaration_is_refused_in_the_words_of_the_command_line(api: str, node: Any) -> None:
    result = run(api, "stream", "create", "Flights", "--schema", "ts timestamp", "--event-time", "ts")
    assert (result.exit_code, node.declared) == (2, [])
    assert "Error: NAME: lower case letters" in result.stderr
    result = run(api, "stream", "create", "Flights", "--as", "SELECT 1")
    assert (result.exit_code, node.submitted) == (2, [])
    assert "Error: NAME: lower case letters" in result.stderr
    result = run(api, "stream", "attach", "flights", "--generator", "--rate", "0")
    assert (result.exit_code, node.attached) == (2, [])
    assert "Error: --rate: must be more than 0" in result.stderr


def test_bad_rows_are_reported_with_the_file_that_keeps_them(capsys: pytest.CaptureFixture[str]) -> None:
    declared = StreamDeclaration(name="flights", schema=(Column("ts", "timestamp"),), event_time="ts")
    sources = [SourceDeclaration(stream="flights", name=name, node="b", connector="file") for name in ("jfk", "lga")]
    bad = SourceInfo(source=sources[0], state="ended", bad=3, dead_letters="/var/lib/sbon/jfk.ndjson")
    well = SourceInfo(source=sources[1], state="ended", dead_letters="/var/lib/sbon/lga.ndjson")
    show_stream(StreamInfo(entry=CatalogEntry(declaration=declared), sources=(bad, well)))
    said = capsys.readouterr().out
    assert "rows of jfk that could not be read, with their lines, at b: /var/lib/sbon/jfk.ndjson\n" in said
    assert "lga.ndjson" not in said


def test_the_watermark_of_each_source_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    declared = StreamDeclaration(name="s", schema=(Column("ts", "timestamp"),), event_time="ts")
    sources = [SourceDeclaration(stream="s", name=name, node="b", connector="http") for name in ("first", "second")]
    infos = tuple(
        SourceInfo(source=one, state="running", watermark_ms=at_ms)
        for one, at_ms in zip(sources, (1_700_000_000_999, None), strict=True)
    )
    show_stream(StreamInfo(entry=CatalogEntry(declaration=declared), sources=infos))
    head, *_ = lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("source", "first", "second"))]
    column = head.index("watermark")
    assert [line[column:].split("  ")[0].strip() for line in lines] == ["watermark", "2023-11-14 22:13:20 UTC", "-"]


NOTHING: dict[str, Any] = {
    "connector": "",
    "path": None,
    "format_": None,
    "replay": None,
    "generator": False,
    "rate": None,
}


CONNECTORS = [
    ({"generator": True, "rate": 5.0}, ("seed=7",), ("generator", {"seed": 7, "rate": 5.0})),
    ({"connector": "http"}, ('headers={"a": 1}', "path=/x"), ("http", {"headers": {"a": 1}, "path": "/x"})),
    ({"path": "/x.csv", "connector": "file"}, (), ("file", {"path": "/x.csv"})),
]


@pytest.mark.parametrize("given, options, expected", CONNECTORS)
def test_short_forms_name_a_connector(given: dict[str, Any], options: tuple[str, ...], expected: Any) -> None:
    assert connector_of(options, **{**NOTHING, **given}) == expected


@pytest.mark.parametrize("given", [{}, {"path": "x", "generator": True}, {"generator": True, "replay": 1.0}])
def test_contradicting_forms_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(click.UsageError):
        connector_of((), **{**NOTHING, **given})
