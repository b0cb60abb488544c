"""Markers on real Spark: they alone move its watermark, none leaves a fragment, nothing earlier than they promise is taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sbon_node.model.frames import END_WATERMARK_MS
from sbon_node.planning.sql.planner import plan_query
from sbon_node.planning.sql.relations.reader import read_query
from sbon_node.planning.sql.rewrite.pushdown import push_down
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.stages.cut import cut
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from tests.engine.many_port import ManyPort
from tests.engine.shared.bench import Bench
from tests.planning.sql.test_stages import CASES, CATALOG
from tests.suite.shapes import shapes

pytestmark = pytest.mark.live
in_one_loop = pytest.mark.asyncio(loop_scope="session")

OPERATIONS = re.compile(r"tumbling|session|keys|inner|full")
"""Operations with state, as shapes of stages name them; other joins and windows are run as these are."""
HOUR = 3_600_000
T = 1_356_998_400_000
"""2013-01-01, in milliseconds."""
SCHEMA = (Column("ts", "timestamp"), Column("k", "string"))
JOINED = "SELECT in0.ts, in0.k FROM in0 LEFT JOIN in1 ON in0.k = in1.k AND in1.ts BETWEEN in0.ts - INTERVAL 1 HOUR AND in0.ts"
GROUPED = "SELECT window.start AS s, count(*) AS n FROM in0 GROUP BY window(ts, '1 hour')"


def operator(name: str, fragment: str, views: tuple[int, ...]) -> OperatorSpec:
    inputs = tuple(InputSpec(stream="in", node="n", schema=SCHEMA, view=view, event_time="ts") for view in views)
    return OperatorSpec(id=name, query="q", fragment=fragment, inputs=inputs, schema=())


def row(at_ms: int, key: str = "a") -> pa.Table:
    return pa.table({"ts": pa.array([at_ms * 1000], pa.timestamp("us", "UTC")), "k": [key]})


ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("queries' markers on Spark")


def numbers() -> Iterator[Any]:
    """Yield the numbers of all cases; ``make test`` leaves out those that have only operations of earlier ones, and draws
    from the others."""
    known: set[str] = set()
    for number, (sql, _) in enumerate(CASES):
        stages = cut(push_down(read_query(sql, CATALOG, QuerySettings())), sql)
        new = {word for shape in shapes(stages) for word in OPERATIONS.findall(shape)} - known
        known |= new
        yield pytest.param(number, id=sql[:70], marks=() if new else ONLY_IN_TEST_ALL)


@pytest.mark.one_part_per_commit("queries' markers on Spark with operations of their own", parts=6)
@in_one_loop
@pytest.mark.parametrize("number", list(numbers()))
async def test_no_marker_leaves_a_fragment_and_each_moves_its_watermark(bench: Bench, number: int) -> None:
    plan = await plan_query(CASES[number][0], CATALOG, f"c{number}", bench.engine.analyse, decompose="always")
    for planned in plan.operators:
        spec = planned.spec("q", dict.fromkeys((one.stream for one in planned.inputs), "n"))
        if not spec.has_state or bench.tried_before(spec):
            continue
        port = await bench.start(spec)
        await port.tell(T)
        await port.wait_promised(min(T - one.lag_ms for one in spec.inputs))
        assert port.promised_ms == min(T - one.lag_ms for one in spec.inputs)
        await port.tell(T, ended=True)
        await port.wait_promised(END_WATERMARK_MS)
        assert port.rows_visible() == 0
        await bench.engine.destroy(spec.id)


@in_one_loop
@pytest.mark.one_part_per_commit("filters of markers on Spark", parts=8)
@pytest.mark.parametrize(
    "name, fragment, moves",
    [
        ("whole.join", JOINED, True),
        ("plain.join", JOINED, False),
        ("whole.group", GROUPED, True),
        ("plain.group", GROUPED, True),
        ("alone.group", GROUPED, False),
    ],
)
async def test_each_half_of_the_filter_is_needed(bench: Bench, name: str, fragment: str, moves: bool) -> None:
    """The join infers that its keys are not NULL: pushed below the watermark, that would drop the marker. Spark takes an input
    without one for one at 1970."""
    port = await bench.start(operator(name, fragment, (0, 1) if fragment is JOINED else (0,)))
    for hours in (1, 2):
        await port.tell(T + hours * HOUR)
        await port.wait_read()
    assert port.promised_ms <= 1 or moves
    if moves:
        await port.wait_promised(T + 2 * HOUR)
    await bench.engine.destroy(name)


@in_one_loop
@pytest.mark.one_part_per_commit("restarts after an input's end on Spark", parts=8)
@pytest.mark.parametrize("reissues", [True, False], ids=["told again", "not told again"])
async def test_an_ended_input_holds_no_input_back_after_a_restart(bench: Bench, reissues: bool) -> None:
    spec = operator(f"whole.restart.{reissues}", GROUPED, (0, 0))
    port = await bench.start(spec, port=ManyPort(2, reissues=reissues))
    await port.tell(T, 0, table=row(T), ended=True)
    await port.tell(T + HOUR, 1)
    await port.wait_promised(T + HOUR)
    await bench.engine.destroy(spec.id)
    await bench.start(spec, port=port)
    for hours in (2, 3):
        await port.tell(T + hours * HOUR, 1)
        await port.wait_read()
    assert port.promised_ms >= T + 2 * HOUR or not reissues
    assert port.promised_ms == T + HOUR or reissues
    await bench.engine.destroy(spec.id)


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
@in_one_loop
@pytest.mark.parametrize("kind, last_batch", [("", 0), ("LEFT SEMI", 0), ("LEFT", 1)])
async def test_an_inner_join_ends_with_its_last_rows_and_an_outer_one_in_the_batch_after(
    bench: Bench, kind: str, last_batch: int
) -> None:
    """Only the outer one's state gives rows without later input. The first batch is that of the first rows."""
    spec = operator(f"whole.end.{last_batch}{len(kind)}", JOINED.replace("LEFT", kind), (0, 1))
    port = ManyPort(2)
    await port.tell(END_WATERMARK_MS, table=row(T), ended=True)
    await bench.start(spec, port=port)
    await port.wait_promised(END_WATERMARK_MS)
    assert min(batch for batch, drafts in port.output.items() if drafts[-1].ended) == last_batch
    assert port.rows()["k"].to_pylist() == ["a"]
    await bench.engine.destroy(spec.id)


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
@in_one_loop
@pytest.mark.parametrize("late_ms", [0, 1])
async def test_a_row_at_the_watermark_is_joined_and_one_before_it_fails_the_operator(bench: Bench, late_ms: int) -> None:
    """Equal times on both sides, the second of which comes when the watermark is there already."""
    fragment = "SELECT in0.ts, in0.k FROM in0 JOIN in1 ON in0.k = in1.k AND in0.ts = in1.ts"
    spec = operator(f"whole.equal.{late_ms}", fragment, (0, 1))
    port = await bench.start(spec)
    await port.tell(T, 0, table=row(T))
    await port.tell(T + late_ms, 1)
    await port.tell(T + late_ms, 0)
    await port.wait_promised(T + late_ms)
    await port.tell(T + late_ms, 1, table=row(T))
    if late_ms:
        reason = await bench.states.wait(spec.id, "failed")
        assert "1 rows came after the watermark" in reason
    else:
        await port.wait_read()
        assert port.rows()["k"].to_pylist() == ["a"]
    await bench.engine.destroy(spec.id)


@in_one_loop
async def test_a_query_that_spark_cannot_plan_fails_at_the_first_time(bench: Bench) -> None:
    """The planner adds a key to sessions of all rows, which Spark does not take."""
    fragment = "SELECT session_window.start AS s, count(*) AS n FROM in0 GROUP BY session_window(ts, '1 hour')"
    spec = operator("whole.refused", fragment, (0,))
    port = await bench.start(spec)
    await port.tell(T, table=row(T))
    reason = await bench.states.wait(spec.id, "failed")
    assert reason.startswith("[STREAM_FAILED] Global aggregation with session window")
    assert [state for state, _ in bench.states.told[spec.id]].count("starting") == 1
    await bench.engine.destroy(spec.id)
