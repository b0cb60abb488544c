"""Where operators keep their state: as the query says, else the configuration, else by the state that is expected."""

from __future__ import annotations

import pytest

from sbon_node.planning.sql.planner import plan_query
from sbon_node.planning.sql.settings import QuerySettings
from sbon_protocol.api.operators import StateChoice
from sbon_protocol.api.plan import Plan
from tests.planning.sql.test_time_buckets import analyse, catalog, joined

HOUR = "b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts"
"""At 1000 rows a second, millions of rows are kept."""


async def plan(sql: str, wanted: StateChoice | None = None, rows_s: float = 1000.0, **settings: object) -> Plan:
    sources = catalog(a=rows_s, b=rows_s)
    return await plan_query(sql, sources, "q", analyse, QuerySettings(**settings), state_provider=wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bound, rows_s, wanted, settings, provider",
    [
        (HOUR, 1000.0, None, {}, "rocksdb"),
        (HOUR, 1.0, None, {}, "hdfs"),
        (None, 1000.0, None, {}, "hdfs"),
        (HOUR, 1000.0, None, {"rocksdb_from_mb": 1e6}, "hdfs"),
        (HOUR, 1.0, None, {"rocksdb_from_mb": 0.0}, "rocksdb"),
        (HOUR, 1000.0, "hdfs", {}, "hdfs"),
        (HOUR, 1.0, "rocksdb", {}, "rocksdb"),
        (HOUR, 1000.0, None, {"state_provider": "hdfs"}, "hdfs"),
        (HOUR, 1.0, None, {"state_provider": "rocksdb"}, "rocksdb"),
        (HOUR, 1000.0, "auto", {"state_provider": "hdfs"}, "rocksdb"),
    ],
)
async def test_the_provider_is_chosen_when_the_query_is_planned(
    bound: str | None, rows_s: float, wanted: StateChoice | None, settings: dict[str, object], provider: str
) -> None:
    planned = await plan(joined("", bound) if bound else joined(""), wanted, rows_s, **settings)
    join = planned.operators[-1]
    assert join.has_state
    assert (join.state_provider, join.state_mb > 0) == (provider, True)
    hosts = dict.fromkeys([one.stream for one in join.inputs], "n")
    assert join.spec("q", hosts).state_provider == provider
    filters = [one for one in planned.operators if not one.has_state]
    assert [(one.state_provider, one.state_mb) for one in filters] == [("hdfs", 0.0)] * len(filters)


async def test_more_rows_are_expected_to_be_more_state() -> None:
    sizes = [(await plan(joined("", HOUR), rows_s=rows_s)).operators[-1].state_mb for rows_s in (1.0, 10.0, 1000.0)]
    assert sizes[0] == pytest.approx(sizes[1] / 10, rel=0.01) == pytest.approx(sizes[2] / 1000, rel=0.01)
