"""Bounds on each input's lead: the lag of its siblings from delays, windows and joins on their paths."""

from __future__ import annotations

import pytest

from sbon_node.model.schema import parse_schema
from sbon_node.planning.sql.planner import plan_query
from sbon_node.planning.sql.settings import QuerySettings
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.plan import Plan

HOUR = 3_600_000
DAY = 24 * HOUR
SLACK = QuerySettings(ahead_slack_s=0.007)


def entry(name: str, delay_ms: int, *sources: str) -> CatalogEntry:
    schema = parse_schema("ts timestamp, k string, v double")
    return CatalogEntry(
        declaration=StreamDeclaration(name=name, schema=schema, event_time="ts", delay_ms=delay_ms),
        sources=tuple(SourceDeclaration(stream=name, name=one, node=one, connector="file") for one in sources),
    )


CATALOG = {"f": entry("f", 0, "x"), "w": entry("w", 5000, "y"), "two": entry("two", 100, "a", "b")}


async def analyse(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
    """Not what is tested here."""
    return parse_schema("ts timestamp, k string, v double")


async def plan(sql: str) -> Plan:
    return await plan_query(sql, CATALOG, "q", analyse, SLACK)


@pytest.mark.parametrize(
    "sql, ahead",
    [
        pytest.param("SELECT k FROM f", [(None, False)], id="one input"),
        pytest.param(
            "SELECT window.end AS e, count(*) AS n FROM f GROUP BY window(ts, '1 day')", [(None, False)], id="of one source"
        ),
        pytest.param(
            "SELECT count(*) AS n FROM two GROUP BY session_window(ts, '1 day')",
            [(107, False), (107, False)],
            id="two sources: their delay",
        ),
        pytest.param(
            "SELECT count(*) AS n FROM two GROUP BY window(ts, '1 day')",
            [(DAY + 107, False), (DAY + 107, False)],
            id="partial aggregates: their window",
        ),
        pytest.param(
            "SELECT a.k FROM f a JOIN w b ON a.k = b.k AND a.ts = b.ts", [(5007, False), (7, False)], id="the other's delay"
        ),
        pytest.param("SELECT a.k FROM f a JOIN f b ON a.k = b.k AND a.ts = b.ts", [(7, True), (7, True)], id="itself"),
        pytest.param(
            "SELECT a.k FROM f a JOIN (SELECT k, window.end AS e FROM f GROUP BY window(ts, '1 day'), k) b ON a.k = b.k"
            " AND a.ts BETWEEN b.e - INTERVAL 1 DAY AND b.e",
            [(DAY + 7, True), (7, True)],
            id="its own aggregate: the window",
        ),
        pytest.param(
            "SELECT a.k FROM f a JOIN (SELECT k, date_trunc('day', ts) AS d FROM f GROUP BY d, k) b ON a.k = b.k"
            " AND date_trunc('day', a.ts) = b.d",
            [(DAY + 7, True), (DAY + 7, True)],
            id="its own aggregate: the lag",
        ),
        pytest.param(
            "SELECT a.k FROM (SELECT x.k, x.ts FROM f x JOIN w y ON x.k = y.k AND x.ts BETWEEN y.ts AND y.ts + INTERVAL 1 HOUR) a"
            " JOIN two b ON a.k = b.k AND a.ts = b.ts",
            [(107, False), (5000 + HOUR + 1 + 1 + 7, False), (5000 + HOUR + 1 + 1 + 7, False)],
            id="a join: its width and its lag, for each source of the other",
        ),
    ],
)
async def test_an_input_may_be_ahead_by_what_its_siblings_are_behind(sql: str, ahead: list[tuple[int | None, bool]]) -> None:
    planned = await plan(sql)
    last = planned.operators[-1]
    assert [(one.ahead_ms, one.shared) for one in last.inputs] == ahead
    hosts = {one.stream: "node" for one in last.inputs}
    assert [(one.ahead_ms, one.shared) for one in last.spec("q", hosts).inputs] == ahead
