"""Joins that are given a bound in time by an option, and only those that have none."""

from __future__ import annotations

import pytest

from sbon_node.model.schema import parse_schema
from sbon_node.planning.sql.planner import plan_query
from sbon_node.planning.sql.syntax.durations import MAX_MS
from sbon_protocol.api.columns import Schema
from sbon_protocol.errors import SbonError
from tests.planning.sql.test_stages import CATALOG

WITHIN = "in0.ts BETWEEN in1.ts - INTERVAL '90' SECOND AND in1.ts + INTERVAL '90' SECOND"
KEPT = [
    ("SELECT f.ts FROM flights f JOIN weather w ON f.origin = w.origin AND w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts", ""),
    ("SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.origin AND w.ts = f.ts", ""),
    ("SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.origin", f"ON in0.origin = in1.origin AND ({WITHIN})"),
    ("SELECT f.carrier FROM flights f LEFT JOIN weather w ON f.origin = w.origin", f"in1.origin AND ({WITHIN})"),
    ("SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.origin AND w.ts > f.ts", f"in1.ts > in0.ts AND ({WITHIN})"),
    ("SELECT carrier FROM flights WHERE origin IN (SELECT origin FROM weather)", f"in1.origin AND ({WITHIN})"),
    (
        "SELECT a.k FROM (SELECT f.origin AS k, f.ts FROM flights f JOIN weather w ON f.origin = w.origin) a"
        " JOIN weather b ON a.k = b.origin",
        f"in0.k = in1.origin AND ({WITHIN})",
    ),
    (
        "SELECT f.ts FROM flights f JOIN (SELECT window.end AS e, origin FROM weather GROUP BY window(ts, '1 hour'), origin) w"
        " ON f.origin = w.origin",
        f"in1.origin AND ({WITHIN.replace('in1.ts', 'in1.e')})",
    ),
]  # fmt: skip


async def analyse(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
    return parse_schema("carrier string")


async def last_fragment(sql: str, window_ms: int | None) -> str:
    return (await plan_query(sql, CATALOG, "q", analyse, join_window_ms=window_ms)).operators[-1].fragment


@pytest.mark.parametrize("sql, bound", KEPT, ids=[sql[:100] for sql, _ in KEPT])
async def test_a_join_without_a_bound_is_given_one(sql: str, bound: str) -> None:
    if bound:
        with pytest.raises(SbonError, match="no bound in time") as refused:
            await last_fragment(sql, None)
        assert "--join-window" in refused.value.hint
        assert bound in await last_fragment(sql, 90_000)
    else:
        assert await last_fragment(sql, 90_000) == await last_fragment(sql, None)


async def test_a_side_without_an_event_time_is_refused_all_the_same() -> None:
    with pytest.raises(SbonError, match="no bound in time") as refused:
        await last_fragment("SELECT f.carrier FROM flights f JOIN (SELECT origin FROM weather) w ON f.origin = w.origin", 90_000)
    assert "--join-window" not in refused.value.hint


@pytest.mark.parametrize("window_ms", [0, -1, MAX_MS + 1])
async def test_a_window_of_no_length_or_none_that_ends_is_refused(window_ms: int) -> None:
    with pytest.raises(SbonError) as refused:
        await last_fragment(KEPT[0][0], window_ms)
    assert (refused.value.code, refused.value.where) == ("bad-join-window", "join_window_ms")
    assert "from 1 ms to 3,650 days" in refused.value.hint
