"""Sources as declared: found by name, made from options, refused with the option named."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.registry import SOURCES, may_end, open_source
from sbon_node.hosting.sources.host import unreported_source
from sbon_node.model.schema import parse_schema
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.errors import SbonError

STREAM = StreamDeclaration(
    name="s",
    schema=parse_schema("ts timestamp, n bigint, i int, x double, y double, b boolean, t string, d date, m decimal(8,2)"),
    event_time="ts",
)
COLUMNS: dict[str, Any] = {
    "ts": {"kind": "timestamp", "start": "2026-01-01T00:00:00Z", "step_ms": 250},
    "i": {"kind": "uniform", "min": 3, "max": 5},
    "x": {"kind": "normal", "mean": 10, "deviation": 2},
    "d": {"kind": "choice", "values": [None]},
    "m": {"kind": "uniform", "min": 0, "max": 0},
}


def declared(connector: str, **options: Any) -> SourceDeclaration:
    return SourceDeclaration(stream="s", name="a", node="n", connector=connector, options=options, rows_s=500)


@pytest.mark.parametrize(
    "connector, options, finite",
    [
        *(("file", {}, True), ("tail", {}, False), ("http", {}, False), ("mqtt", {}, False), ("hostmetrics", {}, False)),
        *(("generator", {"rate": 5}, False), ("generator", {"rows": 9}, True), ("query", {}, True), ("anothers", {}, True)),
    ],
)
def test_a_source_that_cannot_be_asked_has_an_end_or_none_by_its_declaration(
    connector: str, options: dict[str, Any], finite: bool
) -> None:
    source = declared(connector, **options)
    assert (may_end(source), unreported_source(source, ["n"]).finite, unreported_source(source, []).finite) == (finite,) * 3


def test_sources_end_as_their_declarations_tell() -> None:
    assert {name for name in SOURCES if not may_end(declared(name))} == {"tail", "http", "mqtt", "generator", "hostmetrics"}
    for options in ({"rows": 9}, {"rate": 5}, {"rows": 9, "rate": 5}):
        source = declared("generator", columns=COLUMNS, **options)
        assert open_source(source, STREAM, ConnectorSettings()).finite == may_end(source)


def generated(position: bytes | None = None, **options: Any) -> list[dict[str, Any]]:
    async def main() -> list[dict[str, Any]]:
        source = open_source(declared("generator", columns=COLUMNS, **options), STREAM, ConnectorSettings())
        source.check()
        await source.open(position)
        rows: list[dict[str, Any]] = []
        while len(rows) < 5000 and (chunk := await source.read()) is not None:
            rows += chunk.rows.to_pylist()
        return rows

    return asyncio.run(main())


def test_generated_columns_follow_their_rules() -> None:
    rows = generated(rows=5000)
    assert len(rows) == 5000
    assert [r["n"] for r in rows] == list(range(5000))
    assert rows[4]["ts"].isoformat() == "2026-01-01T00:00:01+00:00"
    assert {r["i"] for r in rows} == {3, 4, 5}
    assert {r["t"] for r in rows} == set("abcde")
    mean = sum(r["x"] for r in rows) / 5000
    assert abs(mean - 10) < 0.1
    assert abs(sum((r["x"] - mean) ** 2 for r in rows) / 5000 - 4) < 0.3
    assert all(0 <= r["y"] < 1 for r in rows)


def test_a_row_is_a_function_of_seed_and_number_alone() -> None:
    rows = generated(rows=5000, rate=0, seed=7)
    assert generated(b"1234", rows=5000, rate=123.0, seed="7") == rows[1234:]
    assert generated(rows=100, seed=8) != rows[:100]


@pytest.mark.parametrize(
    "connector, options, code, where",
    [
        ("kafka", {}, "unknown-connector", "connector"),
        ("generator", {"rat": 5}, "unknown-option", "options.rat"),
        ("generator", {"rate": "many"}, "bad-option", "options.rate"),
        ("generator", {"rate": -1}, "bad-option", "options.rate"),
        ("generator", {"columns": COLUMNS, "rate": 0}, "bad-option", "options.rate"),
        ("generator", {"columns": {"z": {"kind": "sequence"}}}, "bad-option", "options.columns.z"),
        ("generator", {"columns": {"t": {"kind": "choice", "values": [1]}}}, "bad-option", "options.columns.t"),
        ("generator", {"columns": {"ts": {"kind": "timestamp", "start": "soon"}}}, "bad-option", "options.columns.ts"),
        ("file", {}, "bad-option", "options.path"),
        ("query", {}, "bad-source", "connector"),
        ("file", {"path": "x.csv", "header": "perhaps"}, "bad-option", "options.header"),
    ],
)
def test_bad_options_are_refused(connector: str, options: dict[str, Any], code: str, where: str) -> None:
    if connector == "generator":
        options = {**options, "columns": {**COLUMNS, **options.get("columns", {})}}
    with pytest.raises(SbonError) as caught:
        open_source(declared(connector, **options), STREAM, ConnectorSettings()).check()
    assert caught.value.code == code
    assert caught.value.where.startswith(where)


@pytest.mark.parametrize(
    "connector, hint",
    [("kafka", "known: file, tail, http, mqtt, generator, hostmetrics"), ("HTTPS", "did you mean http?")],
)
def test_an_unknown_connector_is_refused_with_those_that_users_attach(connector: str, hint: str) -> None:
    with pytest.raises(SbonError, match=f"there is no connector '{connector}'") as caught:
        open_source(declared(connector), STREAM, ConnectorSettings())
    assert caught.value.hint == hint


def test_every_type_of_the_catalogue_goes_through_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,n,i,x,y,b,t,d,m\n2026-01-01T00:00:00Z,1,2,3.5,NaN,true,é,2026-02-03,12.34\n,,,,,,,,\n")

    async def main() -> list[dict[str, Any]]:
        source = open_source(declared("file", path=str(tmp_path / "a.csv")), STREAM, ConnectorSettings())
        source.check()
        await source.open(None)
        chunk = await source.read()
        assert chunk is not None
        assert not chunk.bad
        return list(chunk.rows.to_pylist())

    first, second = asyncio.run(main())
    assert [str(v) for v in first.values()] == [
        "2026-01-01 00:00:00+00:00",
        "1",
        "2",
        "3.5",
        "nan",
        "True",
        "é",
        "2026-02-03",
        "12.34",
    ]
    assert set(second.values()) == {None}
