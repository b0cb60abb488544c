"""Joins in blocks on real Spark: the pairs are DuckDB's, and the watermark releases blocks."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from sbon_node.engine.spark.operators.interval_joins import blocked_join
from sbon_node.model.frames import END_WATERMARK_MS
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, OperatorSpec, TimeBuckets
from tests.engine.counting_engine import KEPT
from tests.engine.shared.bench import Bench

pytestmark = pytest.mark.live

T = 1_356_998_400_000
SCHEMA = (Column("ts", "timestamp"), Column("k", "string"), Column("n", "bigint"))
FRAGMENT = """SELECT in0.ts, in0.n AS left_n, in1.n AS right_n FROM in0 JOIN in1
ON in0.k = in1.k AND in1.ts BETWEEN in0.ts - INTERVAL 5 SECONDS AND in0.ts + INTERVAL 5 SECONDS"""
BUCKETS = TimeBuckets(view=0, time="ts", copied_view=1, copied_time="ts", from_ms=-5000, upto_ms=5000, width_ms=20_000)
SPEC = OperatorSpec(
    id="blocks",
    query="q",
    fragment=FRAGMENT,
    inputs=tuple(InputSpec(stream="in", node="n", schema=SCHEMA, view=view, event_time="ts") for view in (0, 1)),
    schema=(),
    reader="partitioned",
    buckets=(BUCKETS,),
    blocks=True,
)
ROUNDS, ROWS = 6, 300
ROUND_S = 120
"""Twice the span of a block."""


def rows(number: int, side: int) -> pa.Table:
    """The rows of a round, three keys in turn and NULL, ten rows in the same four seconds."""
    seconds = [number * ROUND_S + at * (ROUND_S - side) / ROWS for at in range(ROWS)]
    times = pa.array([int((T + second * 1000) * 1000) for second in seconds], pa.timestamp("us", "UTC"))
    keys = pa.array([(None, "a", "b", "c")[(at * 7 + side) % 4] for at in range(ROWS)])
    return pa.table({"ts": times, "k": keys, "n": pa.array([number * ROWS + at for at in range(ROWS)])})


@pytest.mark.asyncio(loop_scope="session")
async def test_pairs_are_duckdbs_and_blocks_are_released(bench: Bench) -> None:
    assert blocked_join(SPEC) is not None
    port, kept = await bench.start(SPEC), []
    for number in range(ROUNDS):
        for side in (0, 1):
            await port.tell(T + number * ROUND_S * 1000, side, table=rows(number, side))
        await port.wait_read()
        if number == ROUNDS // 2:
            await bench.engine.destroy(SPEC.id)
            await bench.start(SPEC, port=port)
        (column,) = await bench.engine.analyse(f"{KEPT}{SPEC.id} {number}", ())
        kept.append(int(column.name))
    await port.tell(END_WATERMARK_MS, ended=True)
    await port.wait_promised(END_WATERMARK_MS)
    await bench.engine.destroy(SPEC.id)
    assert bench.states.count(SPEC.id, "starting") == 2, bench.states.told[SPEC.id]
    blocks_of_round = 2 * ROUND_S // 60
    assert blocks_of_round <= max(kept) <= 4 * blocks_of_round, f"records after each round: {kept}"
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for side in (0, 1):
            database.register(f"in{side}", pa.concat_tables(rows(number, side) for number in range(ROUNDS)))
        expected = database.sql(f"SELECT left_n, right_n FROM ({FRAGMENT}) ORDER BY ALL").fetchall()
    assert sorted((row["left_n"], row["right_n"]) for row in port.rows().to_pylist()) == expected
    assert len(expected) > ROUNDS * ROWS
