"""A view is read as if its text stood in brackets in place of its name."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from sbon_lab.simulation.engine.evaluate import output_schema
from sbon_node.model.schema import parse_schema
from sbon_node.planning.sql.planner import plan_query
from sbon_node.planning.sql.settings import QuerySettings
from sbon_protocol.api.catalogue import CatalogEntry, StreamDeclaration
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.plan import Plan
from sbon_protocol.errors import SbonError
from tests.planning.sql.test_refusals import CATALOG

LATE = "SELECT ts, carrier, origin, dep_delay FROM flights WHERE dep_delay > 15"
VERY_LATE = "SELECT ts, carrier AS airline, origin FROM late WHERE dep_delay > 60"
COUNTS = "SELECT window(ts, '1 hour') AS hour, carrier, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), carrier"
BOTH = """WITH a AS (SELECT ts, origin FROM flights), b AS (SELECT ts, origin FROM weather)
    SELECT * FROM a UNION ALL SELECT * FROM b"""
HIDING = "WITH late AS (SELECT ts FROM flights) SELECT ts FROM late"
TEXTS = {"late": LATE, "very_late": VERY_LATE, "counts": COUNTS, "both": BOTH, "hiding": HIDING}
JOIN = """SELECT l.carrier, w.temp FROM {late} l JOIN weather w
    ON l.origin = w.origin AND w.ts BETWEEN l.ts - INTERVAL 1 HOUR AND l.ts"""
EXISTS = """SELECT ts FROM weather w WHERE EXISTS (
    SELECT 1 FROM {late} l WHERE l.origin = w.origin AND l.ts BETWEEN w.ts - INTERVAL 1 HOUR AND w.ts)"""


def view(name: str, sql: str) -> CatalogEntry:
    return CatalogEntry(declaration=StreamDeclaration(name=name, schema=parse_schema("x int"), event_time="", sql=sql))


def views(texts: Mapping[str, str]) -> dict[str, CatalogEntry]:
    return {**CATALOG, **{name: view(name, sql) for name, sql in texts.items()}}


async def analysed(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
    return output_schema(fragment, inputs)


async def planned(sql: str, catalog: Mapping[str, CatalogEntry], settings: QuerySettings | None = None) -> Plan:
    return await plan_query(sql, catalog, "q", analysed, settings)


async def refusal(sql: str, catalog: Mapping[str, CatalogEntry], settings: QuerySettings | None = None) -> SbonError:
    with pytest.raises(SbonError) as refused:
        await planned(sql, catalog, settings)
    return refused.value


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("SELECT l.* FROM {late} l", {"late": LATE}),
        ("SELECT l.carrier FROM {late} AS l WHERE l.dep_delay < 100", {"late": LATE}),
        (JOIN, {"late": LATE}),
        (EXISTS, {"late": LATE}),
        ("SELECT airline FROM {very_late} v", {"very_late": VERY_LATE.replace("late WHERE", f"({LATE}) WHERE")}),
        ("SELECT carrier, n FROM {counts} c WHERE n > 3", {"counts": COUNTS}),
        ("SELECT origin FROM {both} b", {"both": BOTH}),
        ("SELECT ts FROM {late} l UNION ALL SELECT ts FROM {both} b", {"late": LATE, "both": BOTH}),
        ("SELECT ts FROM {hiding} h", {"hiding": HIDING}),
    ],
)
async def test_a_query_over_a_view_is_that_over_its_text(text: str, used: dict[str, str]) -> None:
    by_name = await planned(text.format(**{name: name for name in used}), views(TEXTS))
    by_text = await planned(text.format(**{name: f"({sql})" for name, sql in used.items()}), CATALOG)
    assert msgspec.structs.replace(by_name, text="") == msgspec.structs.replace(by_text, text="")


async def test_a_common_table_expression_hides_a_view_but_not_within_another_view() -> None:
    hidden = await planned("WITH late AS (SELECT ts FROM weather) SELECT ts FROM late", views(TEXTS))
    assert {planned.source.stream for planned in hidden.sources} == {"weather"}
    within = await planned("WITH late AS (SELECT ts FROM weather) SELECT airline FROM very_late", views(TEXTS))
    assert {planned.source.stream for planned in within.sources} == {"flights"}


FROM_V = "SELECT ts FROM v"
BAD_JOIN = "SELECT l.ts FROM weather w\nJOIN late l ON l.origin = w.origin"


@pytest.mark.parametrize(
    ("texts", "sql", "code", "place", "message"),
    [
        (
            {"v": "SELECT ts FROM gone"},
            "SELECT ts\nFROM v",
            "unknown-stream",
            (2, 6),
            "in the view 'v': there is no stream 'gone'",
        ),
        ({"v": "SELECT ts FROM idle"}, FROM_V, "no-sources", (1, 16), "in the view 'v': the stream 'idle' has no sources"),
        (
            {"v": "SELECT no FROM flights", "w": "SELECT * FROM v"},
            "SELECT 1 FROM w",
            "unknown-column",
            (1, 15),
            "in the view 'w': in",
        ),
        ({"v": FROM_V}, FROM_V, "view-of-itself", (1, 16), "the view 'v' reads itself"),
        ({"v": "SELECT ts FROM w", "w": FROM_V}, "SELECT ts FROM w", "view-of-itself", (1, 16), "the view 'w' reads itself"),
        ({"v": "DROP TABLE x"}, FROM_V, "not-a-select", (1, 16), "in the view 'v': only SELECT is allowed"),
        ({"late": LATE}, BAD_JOIN, "join-without-bound", (2, 6), ""),
        ({"late": LATE}, "SELECT no FROM late", "unknown-column", (1, 8), "no"),
    ],
)
async def test_an_error_within_a_view_points_at_its_name(
    texts: dict[str, str], sql: str, code: str, place: tuple[int, int], message: str
) -> None:
    error = await refusal(sql, views(texts))
    assert (error.code, error.where) == (code, f"line {place[0]}, column {place[1]}")
    assert message in error.message


async def test_views_that_multiply_are_refused_soon() -> None:
    texts = {"v0": "SELECT ts FROM flights"}
    texts |= {f"v{n}": f"SELECT ts FROM v{n - 1} UNION ALL SELECT ts FROM v{n - 1}" for n in range(1, 41)}
    error = await refusal("SELECT ts FROM v40", views(texts))
    assert error.code == "query-too-long"
