"""Tables of refused queries and hostile fragments: the data files beside this one say which error each gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from sbon_node.engine.interface import Schema
from sbon_node.errors import SbonError
from sbon_node.query import allowlist
from sbon_node.query.allowlist import check_fragment
from sbon_node.query.catalog import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_node.query.planner import plan_query
from sbon_node.query.schema import parse_schema

HERE = Path(__file__).parent
BLOCK = re.compile(r"^-- expect: (?P<expected>.*)\n(?P<sql>(?:.*\n)*?)--$", re.MULTILINE)


def cases(name: str) -> list[tuple[str, str]]:
    text = (HERE / name).read_text(encoding="utf-8")
    return [(match["sql"].removesuffix("\n"), match["expected"]) for match in BLOCK.finditer(text)]


def flights() -> Mapping[str, CatalogEntry]:
    schema = parse_schema("ts timestamp, carrier string, dep_delay double, origin string, distance int, limit int")
    source = SourceDeclaration(stream="flights", name="ewr", node="n1", connector="file")
    idle = StreamDeclaration(name="idle", schema=parse_schema("ts timestamp"), event_time="ts")
    return {
        "flights": CatalogEntry(declaration=StreamDeclaration(name="flights", schema=schema, event_time="ts"), sources=(source,)),
        "idle": CatalogEntry(declaration=idle),
        "gone": CatalogEntry(declaration=StreamDeclaration(name="gone", schema=schema, event_time="ts"), dropped=True),
    }


async def never_analysed(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
    raise AssertionError(f"reached the engine: {fragment}")


REFUSALS = cases("refusals.sql")
BYPASSES = cases("bypasses.sql")


def test_the_tables_are_read() -> None:
    assert len(REFUSALS) >= 95
    assert len(BYPASSES) >= 125


@pytest.mark.parametrize("sql, expected", REFUSALS, ids=[sql[:60] for sql, _ in REFUSALS])
async def test_refused_with_code_and_place(sql: str, expected: str) -> None:
    with pytest.raises(SbonError) as refused:
        await plan_query(sql, flights(), "q1", never_analysed)
    error = refused.value
    place = error.where.replace("line ", "").replace(", column ", ":")
    assert f"{error.code} {place}" == expected
    assert error.message
    assert "\n" not in error.message
    if error.code not in ("bad-sql", "forbidden-operator"):
        assert error.hint


@pytest.mark.parametrize(
    "sql, message, hint",
    [
        ("SELECT delay FROM flights", "flights has no column 'delay': delay", "did you mean dep_delay?"),
        ("SELECT ts FROM flighs", "there is no stream 'flighs': flighs", "did you mean flights?"),
        ("SELECT ts FROM gone", "there is no stream 'gone': gone", "there are flights, idle"),
        ("SELECT ts FROM idle", "the stream 'idle' has no sources", "sbon stream attach idle ..."),
        ("SELECT uper(ts) FROM flights", "uper is not among the allowed functions: uper(ts)", "did you mean upper, power?"),
        ("SELECT ts FROM flights LIMIT 3", "LIMIT is not supported: LIMIT 3", "stop the query when there are rows enough: sbon query stop"),  # noqa: E501
        ("SELECT w.ts FROM flights f", "no stream of this query is called 'w': w.ts", "write f.ts"),
    ],
)  # fmt: skip
async def test_refusals_say_what_to_do(sql: str, message: str, hint: str) -> None:
    with pytest.raises(SbonError) as refused:
        await plan_query(sql, flights(), "q1", never_analysed)
    assert (refused.value.message, refused.value.hint) == (message, hint)


@pytest.mark.parametrize("sql, expected", BYPASSES, ids=[sql[:60] for sql, _ in BYPASSES])
def test_a_host_refuses_hostile_fragments(sql: str, expected: str) -> None:
    with pytest.raises(SbonError) as refused:
        check_fragment(sql, 1)
    assert refused.value.code == expected
    assert re.fullmatch(r"line \d+, column \d+", refused.value.where)


@pytest.mark.parametrize("sql", [sql for sql, _ in BYPASSES])
def test_the_tree_alone_refuses_them_too(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bare words are a second lock; the first holds without it."""
    monkeypatch.setattr(allowlist, "check_words", lambda text, tokens: None)
    with pytest.raises(SbonError):
        check_fragment(sql, 1)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "-" + " -" * 3000 + "a FROM in0",
        "SELECT " + "NOT " * 3000 + "a FROM in0",
        "SELECT " + "CASE WHEN a THEN " * 500 + "1" + " END" * 500 + " FROM in0",
        "SELECT " + " + ".join(["a"] * 2500) + " FROM in0",
        "SELECT " + "(" * 5000 + "a" + ")" * 5000 + " FROM in0",
        "SELECT " + "a[" * 33 + "1" + "]" * 33 + " FROM in0",
        "SELECT " + ", ".join(["a"] * 10_000) + " FROM in0",
        "SELECT '" + "x" * 70_000 + "' FROM in0",
    ],
    ids=lambda sql: sql[:20],
)
def test_depth_and_length_are_bounded(sql: str) -> None:
    with pytest.raises(SbonError) as refused:
        check_fragment(sql, 1)
    assert refused.value.code in ("too-deep", "query-too-long")


def test_inputs_are_counted() -> None:
    check_fragment("SELECT a FROM in1", 2)
    with pytest.raises(SbonError, match="in2"):
        check_fragment("SELECT a FROM in2", 2)
