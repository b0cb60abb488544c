"""State in the heap and in RocksDB on real Spark: the same rows, for life, and never another provider than was asked for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from sbon_node.engine import state_provider
from sbon_node.engine.checkpoint import BatchLog
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, OperatorSpec, StateProvider
from sbon_protocol.errors import SbonError
from tests.engine.many_port import ManyPort
from tests.engine.shared.bench import Bench

pytestmark = pytest.mark.live
in_one_loop = pytest.mark.asyncio(loop_scope="session")

T = 1_356_998_400_000
SCHEMA = (Column("ts", "timestamp"), Column("k", "string"))
FRAGMENT = """SELECT in0.ts, in0.k, in1.ts AS other FROM in0 LEFT JOIN in1
ON in0.k = in1.k AND in1.ts BETWEEN in0.ts - INTERVAL 5 SECONDS AND in0.ts"""


def operator(name: str, provider: StateProvider) -> OperatorSpec:
    inputs = tuple(InputSpec(stream="in", node="n", schema=SCHEMA, view=view, event_time="ts") for view in (0, 1))
    return OperatorSpec(id=name, query="q", fragment=FRAGMENT, inputs=inputs, schema=(), state_provider=provider)


def rows(*seconds: int) -> pa.Table:
    times = pa.array([(T + second * 1000) * 1000 for second in seconds], pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "k": pa.array(["a"] * len(seconds))})


@in_one_loop
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb"])
async def test_an_operator_keeps_its_provider(bench: Bench, provider: StateProvider) -> None:
    spec, port = operator(provider, provider), ManyPort(2)
    await bench.start(spec, port=port)
    await port.tell(T, 0, table=rows(0, 20))
    await port.tell(T, 1, table=rows(-3))
    await port.wait_read()
    await bench.engine.destroy(spec.id)
    log = BatchLog(bench.checkpoint(spec.id))
    assert log.read_setting(log.offsets()[-1], state_provider.CLASS) == state_provider.CLASSES[provider]

    other: StateProvider = "hdfs" if provider == "rocksdb" else "rocksdb"
    with pytest.raises(SbonError) as refusal:
        await bench.start(replace(spec, state_provider=other), port=port)
    assert refusal.value.code == "state-provider-differs"

    await bench.start(spec, port=port)
    await port.tell(T + 60_000, ended=True)
    found = (await port.wait_ended()).to_pylist()
    await bench.engine.destroy(spec.id)
    assert sorted(_seconds(row) for row in found) == [(0, -3), (20, None)]


def _seconds(row: dict[str, Any]) -> tuple[int, int | None]:
    def of(time: Any) -> int | None:
        return None if time is None else round(time.timestamp() - T / 1000)

    first = of(row["ts"])
    assert first is not None
    return first, of(row["other"])


@pytest.mark.parametrize("logged, provider", [("", "rocksdb"), (state_provider.CLASSES["rocksdb"], "hdfs"), ("a.B", "hdfs")])
def test_a_checkpoint_of_another_provider_is_refused(logged: str, provider: StateProvider) -> None:
    with pytest.raises(SbonError, match="has its state in"):
        state_provider.check_pinned(logged, provider, "q.o1")


def test_a_checkpoint_that_names_none_has_the_default() -> None:
    state_provider.check_pinned("", "hdfs", "q.o1")
