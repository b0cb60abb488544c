"""A checkpoint copied while its operator runs, on real Spark: another operator goes on from it exactly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
import pytest_asyncio
from msgspec.structs import replace

from sbon_node.base.clock import Clock
from sbon_node.engine.checkpoint_copy import install_checkpoint
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, OperatorSpec, StateProvider
from tests.engine.many_port import ManyPort
from tests.engine.states import PATIENCE_S, States

pytestmark = [pytest.mark.live, pytest.mark.only_in_test_all("copies of running checkpoints")]
in_one_loop = pytest.mark.asyncio(loop_scope="module")

T = 1_356_998_400_000
SCHEMA = (Column("ts", "timestamp"), Column("n", "bigint"))
FRAGMENT = """SELECT in0.ts, in0.n, in1.n AS other FROM in0 LEFT JOIN in1
ON in0.n = in1.n AND in1.ts BETWEEN in0.ts - INTERVAL 5 SECONDS AND in0.ts"""
FRAMES, ROWS, COPY_AT, STEP_MS = 24, 40, 12, 2000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[SparkEngine, Path, States]]:
    folder, states = tmp_path_factory.mktemp("engine"), States()
    made = SparkEngine(
        EngineSettings(jit="c1", max_restarts=0, start_timeout_s=900),
        folder,
        Clock.real(),
        states,
        module="tests.engine.snapshotting_engine",
    )
    yield made, folder, states
    await made.close()


def frame(number: int, view: int) -> pa.Table:
    """Rows of two seconds; view 1 has every third number, a second earlier."""
    numbers = [n for n in range(number * ROWS, (number + 1) * ROWS) if not view or n % 3 == 0]
    times = [(T + n * STEP_MS // ROWS - 1000 * view) * 1000 for n in numbers]
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "n": pa.array(numbers, pa.int64())})


async def feed(port: ManyPort, first: int, upto: int) -> None:
    for number in range(first, upto):
        for view in (0, 1):
            await port.tell(T + number * STEP_MS - 1000, view, table=frame(number, view))
        await port.wait_read()


@in_one_loop
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb"])
async def test_another_operator_goes_on_from_a_copy(engine: tuple[SparkEngine, Path, States], provider: StateProvider) -> None:
    spark, folder, states = engine
    inputs = tuple(InputSpec(stream="in", node="n", schema=SCHEMA, view=view, event_time="ts") for view in (0, 1))
    spec = OperatorSpec(id=provider, query="q", fragment=FRAGMENT, inputs=inputs, schema=(), state_provider=provider)
    port, checkpoint, full = ManyPort(2), folder / "operators" / spec.id, {"hdfs": "snapshot", "rocksdb": "zip"}[provider]
    checkpoint.mkdir(parents=True)
    await spark.instantiate(spec, port, checkpoint)
    await states.unless_failed(spec.id, feed(port, 0, COPY_AT))
    async with asyncio.timeout(PATIENCE_S):
        while not [*checkpoint.rglob(f"*.{full}")]:  # noqa: ASYNC110 - Spark makes it in a thread of its own
            await asyncio.sleep(0.05)
    feeding = asyncio.ensure_future(states.unless_failed(spec.id, feed(port, COPY_AT, FRAMES)))
    copied = port.visible
    manifest = await spark.copy_checkpoint(spec.id, copied, folder / f"copy of {spec.id}")
    assert not feeding.done(), "the operator was to run meanwhile"
    assert any(file.path.endswith(f".{full}") for file in manifest.files)
    await feeding

    other, follower = replace(spec, id=f"{provider}.2"), ManyPort(2)
    await asyncio.to_thread(install_checkpoint, folder / f"copy of {spec.id}", manifest, folder / "operators" / other.id)
    follower.inputs, follower.visible = port.inputs, copied
    follower.output = {batch: [] for batch in range(copied + 1)}
    await spark.instantiate(other, follower, folder / "operators" / other.id)
    await port.tell(T + 10**7, ended=True)
    before = [draft for batch in range(copied + 1) for draft in port.output[batch]]
    await states.unless_failed(spec.id, port.wait_ended())
    await follower.tell_changed()
    await states.unless_failed(other.id, follower.wait_ended())
    whole, later = port.rows(), follower.rows()
    await spark.destroy(spec.id)
    await spark.destroy(other.id)

    assert rows(whole) == oracle()
    assert sum(draft.rows for draft in before) + later.num_rows == len(oracle())
    assert set(rows(later)) <= set(oracle())
    assert len({row[1] for row in rows(later)}) == later.num_rows


def rows(table: pa.Table) -> list[tuple[int, int, int | None]]:
    connection = duckdb.connect()
    connection.register("found", table)
    return sorted(connection.sql("SELECT epoch_ms(ts), n, other FROM found").fetchall(), key=repr)


def oracle() -> list[tuple[int, int, int | None]]:
    sql = f"SELECT {T} + n * {STEP_MS} // {ROWS}, n, CASE WHEN n % 3 = 0 THEN n END FROM range({FRAMES * ROWS}) AS t(n)"
    return sorted(duckdb.sql(sql).fetchall(), key=repr)
