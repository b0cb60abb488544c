"""Tables of refused queries and hostile fragments: the data files beside this one say which error each gives, a query's in full:
code, place, message and hint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from sqlglot.dialects.spark import Spark

from sbon_lab.simulation.engine.evaluate import output_schema
from sbon_node.model.schema import parse_schema
from sbon_node.planning.sql.checks import allowlist
from sbon_node.planning.sql.checks.allowlist import check_fragment
from sbon_node.planning.sql.planner import plan_query
from sbon_node.planning.sql.relations.reader import read_query
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.syntax.dialect import KEYWORDS
from sbon_node.planning.sql.syntax.lexical import RESERVED, check_name
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Schema
from sbon_protocol.errors import SbonError

HERE = Path(__file__).parent
BLOCK = re.compile(r"^-- expect: (?P<expected>.*)\n(?P<sql>(?:.*\n)*?)--$", re.MULTILINE)
SAID = re.compile(
    r"^-- expect: (?P<code>\S+) (?P<place>.*)\n-- says: (?P<message>.*)\n(?:-- hint: (?P<hint>.*)\n)?(?P<sql>(?:.*\n)*?)--$",
    re.MULTILINE,
)


def said(name: str) -> list[tuple[str, str, tuple[str, str], str]]:
    text = (HERE / name).read_text(encoding="utf-8")
    return [
        (one["sql"].removesuffix("\n"), one["code"], (one["place"], one["message"]), one["hint"] or "")
        for one in SAID.finditer(text)
    ]


def cases(name: str) -> list[tuple[str, str]]:
    text = (HERE / name).read_text(encoding="utf-8")
    return [(match["sql"].removesuffix("\n"), match["expected"]) for match in BLOCK.finditer(text)]


def declared(name: str, schema: str, *sources: str, dropped: bool = False) -> CatalogEntry:
    declaration = StreamDeclaration(name=name, schema=parse_schema(schema), event_time="ts")
    attached = tuple(SourceDeclaration(stream=name, name=source, node="n1", connector="file") for source in sources)
    return CatalogEntry(declaration=declaration, sources=attached, dropped=dropped)


FLIGHTS = "ts timestamp, carrier string, dep_delay double, origin string, distance int, limit int, scheduled timestamp"
CATALOG: Mapping[str, CatalogEntry] = {
    "flights": declared("flights", FLIGHTS, "ewr"),
    "weather": declared("weather", "ts timestamp, origin string, temp double, wind double", "ewr"),
    "union": declared("union", "ts timestamp", "ewr"),
    "idle": declared("idle", "ts timestamp"),
    "gone": declared("gone", FLIGHTS, "ewr", dropped=True),
}


async def never_analysed(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
    raise AssertionError(f"reached the engine: {fragment}")


async def evaluated(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
    """For what only types tell."""
    return output_schema(fragment, inputs)


REFUSALS = said("refusals.sql")
BYPASSES = cases("bypasses.sql")


def test_the_tables_are_read() -> None:
    text = (HERE / "refusals.sql").read_text(encoding="utf-8")
    assert len(REFUSALS) == len(re.findall(r"^-- expect", text, re.MULTILINE)) >= 230
    assert len(BYPASSES) >= 125


@pytest.mark.parametrize("sql, code, message, hint", REFUSALS, ids=[sql[:60] for sql, *_ in REFUSALS])
async def test_a_refusal_is_shown_in_full(sql: str, code: str, message: tuple[str, str], hint: str) -> None:
    with pytest.raises(SbonError) as refused:
        await plan_query(sql, CATALOG, "q1", evaluated if code == "bad-union" else never_analysed)
    error = refused.value
    place = error.where.replace("line ", "").replace(", column ", ":")
    assert (error.code, (place, error.message), error.hint) == (code, message, hint)


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


def test_names_that_need_quotes_are_reserved() -> None:
    """Exactly the parser's words that cannot be a stream's name without quotes are reserved."""
    known = {word.lower() for word in Spark.Tokenizer.KEYWORDS if word.isidentifier()} | KEYWORDS | RESERVED
    unread = set()
    for word in sorted(known):
        catalog = {word: declared(word, "ts timestamp, x double", "ewr")}
        for sql in (f"SELECT x FROM {word}", f"SELECT {word}.x FROM {word} WHERE {word}.x > 1"):
            try:
                read_query(sql, catalog, QuerySettings())
            except SbonError:
                unread.add(word)
        read_query(f"SELECT `{word}`.x FROM `{word}` WHERE `{word}`.x > 1", catalog, QuerySettings())
    assert unread == RESERVED
    for word in sorted(known - RESERVED):
        check_name(word)


@pytest.mark.parametrize("word", ["select", "where", "union", "null"])
def test_a_stream_gets_no_reserved_name(word: str) -> None:
    with pytest.raises(SbonError, match=f"'{word}' is a word of SQL") as refused:
        check_name(word)
    assert (refused.value.code, refused.value.where) == ("bad-name", "name")
