"""Event times of 1970, where Spark's own watermark begins, and before, on real Spark: the rows are those of DuckDB."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import duckdb
import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace as replaced

from sbon_node.engine.spark.operators.interval_joins import blocked_join
from sbon_node.model.frames import END_WATERMARK_MS, NO_WATERMARK_MS
from sbon_protocol.api.operators import TimeBuckets
from tests.engine.many_port import ManyPort
from tests.engine.shared.bench import Bench
from tests.engine.shared.test_markers import operator

pytestmark = pytest.mark.live
in_one_loop = pytest.mark.asyncio(loop_scope="session")
ONE_PART = pytest.mark.one_part_per_commit("first batches without rows on Spark", parts=16)
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("operators over early times on Spark")

YEAR_1_MS = -62_135_596_800_000
NEAR = "ON in0.k = in1.k AND in1.ts BETWEEN in0.ts - INTERVAL 5 SECONDS AND in0.ts + INTERVAL 5 SECONDS"
BOTH = "SELECT in0.ts, in0.k, in1.ts AS other FROM in0"


@dataclass(frozen=True)
class Case:
    """``answer`` is DuckDB's; the fragment itself where it is empty. The rows begin with ``SECONDS[first]``."""

    fragment: str
    views: tuple[int, ...]
    answer: str = ""
    first: int = 0
    buckets: tuple[TimeBuckets, ...] = ()
    reader: Literal["simple", "partitioned"] = "simple"
    blocks: bool = False


def bucketed(kind: str, copied: int) -> Case:
    """Return buckets of 10 seconds in which the rows of this view are copied."""
    times = {"time": "ts", "copied_time": "ts", "from_ms": -5000, "upto_ms": 5000, "width_ms": 10_000}
    buckets = msgspec.convert({"view": 1 - copied, "copied_view": copied, **times}, TimeBuckets)
    return replace(CASES[kind], buckets=(buckets,))


CASES = {
    "inner": Case(f"{BOTH} JOIN in1 {NEAR}", (0, 1)),
    "left": Case(f"{BOTH} LEFT JOIN in1 {NEAR}", (0, 1)),
    "right": Case(f"{BOTH} RIGHT JOIN in1 {NEAR}", (0, 1)),
    "full": Case(f"{BOTH} FULL JOIN in1 {NEAR}", (0, 1)),
    "semi": Case(
        f"SELECT in0.ts, in0.k FROM in0 LEFT SEMI JOIN in1 {NEAR}", (0, 1), f"SELECT in0.* FROM in0 SEMI JOIN in1 {NEAR}"
    ),
    "tumbling": Case(
        "SELECT window.start AS s, k, count(*) AS n FROM in0 GROUP BY window(ts, '10 seconds'), k",
        (0, 0),
        "SELECT time_bucket(INTERVAL 10 SECONDS, ts) AS s, k, count(*) FROM in0 GROUP BY ALL",
    ),
    "sliding": Case(
        "SELECT window.start AS s, count(*) AS n FROM in0 GROUP BY window(ts, '10 seconds', '5 seconds')",
        (0,),
        "SELECT time_bucket(INTERVAL 5 SECONDS, ts) - to_seconds(back) AS s, count(*) FROM in0, (VALUES (0), (5)) AS b(back) "
        "GROUP BY ALL",
        first=1,  # its windows begin before the year 1
    ),
    "session": Case(
        "SELECT session_window.start AS s, k, count(*) AS n FROM in0 GROUP BY session_window(ts, '3 seconds'), k",
        (0,),
        "SELECT min(ts), k, count(*) FROM (SELECT ts, k, sum(new) OVER (PARTITION BY k ORDER BY ts) AS number FROM (SELECT *, "
        "coalesce(ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) > INTERVAL 3 SECONDS, true)::int AS new FROM in0)) "
        "GROUP BY number, k",
    ),
    "hours": Case("SELECT date_trunc('hour', ts) AS h, count(*) AS n FROM in0 GROUP BY date_trunc('hour', ts), ts", (0,)),
    "groups": Case("SELECT ts, k FROM in0 GROUP BY ts, k", (0, 0)),
}
CASES |= {
    "inner in buckets": bucketed("inner", 1),
    "inner in buckets of the left": bucketed("inner", 0),
    "left in buckets": bucketed("left", 1),
    "right in buckets": bucketed("right", 0),
    "semi in buckets": bucketed("semi", 1),
    "inner in blocks": replace(bucketed("inner", 1), reader="partitioned", blocks=True),
    "inner in blocks of the right and the left": replace(
        bucketed("inner", 0),
        reader="partitioned",
        blocks=True,
        fragment=f"{BOTH.replace('FROM in0', 'FROM in1 AS in0')} JOIN in0 AS in1 {NEAR}",
    ),
    "right in buckets of large batches": replace(bucketed("right", 0), reader="partitioned"),
}
AFTER_NOTHING = ("tumbling", "inner", "full", "session")
"""One of each kind of state."""
SAMPLE = ("tumbling",)
"""An aggregate of two inputs, which make test runs."""
SECONDS = (YEAR_1_MS // 1000, -7200, -3600, -3599, -11, -10, -9, -5, -1, 0, 1, 4, 5, 9, 10, 3600, 1_356_998_400)
FEW_SECONDS = (YEAR_1_MS // 1000, -10, -1, 0, 5, 1_356_998_400)


def rows(seconds: Sequence[float], keys: str = "a") -> pa.Table:
    times = [int(at * 1_000_000) for at in seconds for _ in keys]
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "k": list(keys) * len(seconds)})


def ordered(found: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=str)


def answer(case: Case, *inputs: Sequence[pa.Table]) -> list[tuple[Any, ...]]:
    """DuckDB's, of all rows of the inputs; several are of one view where there is but one view."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for view in sorted(set(case.views)):
            of_view = [table for number, tables in zip(case.views, inputs, strict=True) if number == view for table in tables]
            connection.register(f"in{view}", pa.concat_tables(of_view))
        return ordered(connection.sql(case.answer or case.fragment).to_arrow_table())


async def say(port: ManyPort, position: int, table: pa.Table, seconds: float) -> pa.Table:
    await port.tell(int(seconds * 1000), position, table=table)
    await port.wait_read()
    return table


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
@in_one_loop
@pytest.mark.parametrize(
    "name, seconds",
    [
        *(pytest.param(name, FEW_SECONDS, id=f"{name} with few rows") for name in SAMPLE),
        *(pytest.param(name, SECONDS[case.first :], id=name, marks=ONLY_IN_TEST_ALL) for name, case in CASES.items()),
    ],
)
async def test_rows_before_at_and_after_1970_are_those_of_duckdb(bench: Bench, name: str, seconds: Sequence[int]) -> None:
    """The inputs take turns, each promising what its own rows do not break; the engine is restarted between."""
    case = CASES[name]
    spec = replaced(
        operator(f"whole.{name.replace(' ', '-')}.{len(seconds)}", case.fragment, case.views),
        buckets=case.buckets,
        reader=case.reader,
        blocks=case.blocks,
    )
    port = await bench.start(spec)
    assert (blocked_join(spec) is not None) is case.blocks
    told: list[list[pa.Table]] = [[] for _ in case.views]
    for number, at in enumerate(seconds):
        for position in range(len(case.views)):
            keys = "ab" if (number + position) % 3 else "a"
            told[position].append(await say(port, position, rows([at, at + 0.5 * position], keys), at))
        if at in (-10, 0):
            await bench.engine.destroy(spec.id)
            await bench.start(spec, port=port)
    await port.tell(END_WATERMARK_MS, ended=True)
    await port.wait_promised(END_WATERMARK_MS)
    assert ordered(port.rows()) == answer(case, *told)
    await bench.engine.destroy(spec.id)


@in_one_loop
@pytest.mark.parametrize("name", ["full", "inner", "tumbling"])
@ONLY_IN_TEST_ALL
async def test_an_input_that_is_far_behind_1970_holds_one_that_is_far_beyond(bench: Bench, name: str) -> None:
    """A restart loses an input's watermark, here amid a batch that reads only the other input."""
    case = CASES[name]
    spec = operator(f"whole.behind.{name}", case.fragment, case.views)
    port = await bench.start(spec)
    told: list[list[pa.Table]] = [[], []]
    told[0].append(await say(port, 0, rows([-100]), -100))
    told[1].append(await say(port, 1, rows([-100]), -100))
    port.hold_writes()
    await port.tell(10_000, 0, table=rows([10]))
    await port.wait_held()
    await bench.engine.destroy(spec.id)
    port.let_go()
    told[0].append(rows([10]))
    await bench.start(spec, port=port)
    await port.wait_read()
    assert port.promised_ms <= -100_000
    told[1].append(await say(port, 1, rows([-50]), -50))
    told[1].append(await say(port, 1, rows([8]), 8))
    await port.tell(END_WATERMARK_MS, ended=True)
    await port.wait_promised(END_WATERMARK_MS)
    assert ordered(port.rows()) == answer(case, *told)
    await bench.engine.destroy(spec.id)


FILTERED = "(SELECT * FROM {0} WHERE k <> 'z') AS {0}"


@in_one_loop
@pytest.mark.parametrize("first", ["without news", "filtered"])
@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=ONE_PART) for name in AFTER_NOTHING),
        *(pytest.param(name, marks=ONLY_IN_TEST_ALL) for name in CASES if name not in AFTER_NOTHING),
    ],
)
async def test_a_first_batch_without_rows_leaves_times_before_1970(bench: Bench, name: str, first: str) -> None:
    """Spark counts an input that has given nothing as one at 1970, ever after."""
    case = CASES[name]
    if first == "filtered":
        views = [f"in{view}" for view in sorted(set(case.views))]
        case = replace(case, answer=case.answer or case.fragment)
        for view in views:
            of_all = re.compile(rf"\b(FROM|JOIN) {view}\b(?: AS in\d)?")
            case = replace(case, fragment=of_all.sub(rf"\1 {FILTERED.format(view)}", case.fragment))
    spec = operator(f"whole.first.{first[:4]}.{name.replace(' ', '-')}", case.fragment, case.views)
    port = await bench.start(spec)
    if first == "filtered":
        await port.tell(-200_000, table=rows([-100], "z"))
        await port.wait_read()
    else:
        await port.wait_visible(0)
    told: list[list[pa.Table]] = [[] for _ in case.views]
    for at in (-50, -10):
        for position in range(len(case.views)):
            told[position].append(await say(port, position, rows([at]), at))
    await port.tell(END_WATERMARK_MS, ended=True)
    await port.wait_promised(END_WATERMARK_MS)
    assert ordered(port.rows()) == answer(case, *told)
    await bench.engine.destroy(spec.id)


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
@in_one_loop
async def test_nothing_is_promised_before_an_input_has_promised_it(bench: Bench) -> None:
    spec = operator("whole.silent", CASES["inner"].fragment, (0, 1))
    port = await bench.start(spec)
    await say(port, 0, rows([5]), 5)
    await say(port, 0, rows([6]), 6)
    assert port.promised_ms == NO_WATERMARK_MS
    await say(port, 1, rows([0]), 0)
    await port.wait_promised(0)
    assert ordered(port.rows())[0][0].timestamp() == 5
    await bench.engine.destroy(spec.id)


OUTER_FIRST = (
    f"SELECT window.start AS s, count(*) AS n FROM (SELECT in0.ts FROM in0 LEFT JOIN in1 {NEAR}) "
    "GROUP BY window(ts, '10 seconds')"
)


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
@in_one_loop
@pytest.mark.parametrize("at", [pytest.param(-1, marks=ONLY_IN_TEST_ALL), 0, 10])
async def test_where_nodes_with_state_share_an_operator_times_before_1970_fail_it(bench: Bench, at: int) -> None:
    spec = operator(f"whole.several.{at}", OUTER_FIRST, (0, 1))
    port = await bench.start(spec)
    for position in range(2):
        await port.tell(-20_000, position, table=rows([at]))
    if at <= 0:
        reason = await bench.states.wait(spec.id, "failed")
        assert "rows are of 1970-01-01T00:00:00Z or before" in reason
    else:
        await port.tell(END_WATERMARK_MS, ended=True)
        await port.wait_promised(END_WATERMARK_MS)
        assert port.rows()["n"].to_pylist() == [1]
    await bench.engine.destroy(spec.id)
