"""Markers on real Spark: they alone move its watermark."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sbon_node.clock import Clock
from sbon_node.engine.interface import Column, InputSpec, OperatorSpec
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_node.streams.frame import NO_WATERMARK_MS
from tests.engine.many_port import ManyPort
from tests.engine.states import States

pytestmark = pytest.mark.live
in_one_loop = pytest.mark.asyncio(loop_scope="module")

HOUR = 3_600_000
T = 1_356_998_400_000
"""2013-01-01, in milliseconds."""
SCHEMA = (Column("ts", "timestamp"), Column("k", "string"))
JOINED = "SELECT in0.ts, in0.k FROM in0 JOIN in1 ON in0.k = in1.k AND in1.ts BETWEEN in0.ts - INTERVAL 1 HOUR AND in0.ts"


class Bench:
    """An engine with a host that plants faults in operators of certain names, and its operators."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.states = folder, States()
        settings = EngineSettings(max_restarts=1, restart_s=0.1)
        self.engine = SparkEngine(settings, folder, Clock.real(), self.states, host="tests.engine.planted_host")

    async def start(self, spec: OperatorSpec, *, port: ManyPort | None = None) -> ManyPort:
        port = port or ManyPort(len(spec.inputs))
        checkpoint = self.folder / "operators" / spec.id
        checkpoint.mkdir(parents=True, exist_ok=True)
        await self.engine.instantiate(spec, port, checkpoint)
        return port


def operator(name: str, fragment: str, views: tuple[int, ...]) -> OperatorSpec:
    inputs = tuple(InputSpec(stream="in", node="n", schema=SCHEMA, view=view, event_time="ts") for view in views)
    return OperatorSpec(id=name, query="q", fragment=fragment, inputs=inputs, schema=())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("markers"))
    yield made
    await made.engine.close()


@in_one_loop
@pytest.mark.parametrize(
    "name, fragment, moves",
    [
        ("whole.join", JOINED, True),
        ("plain.join", JOINED, False),
    ],
)
async def test_a_join_infers_nothing_that_would_drop_its_markers(bench: Bench, name: str, fragment: str, moves: bool) -> None:
    """The join infers that its keys are not NULL: pushed below the watermark, that would drop the marker."""
    port = await bench.start(operator(name, fragment, (0, 1)))
    for hours in (1, 2):
        await port.tell(T + hours * HOUR)
        await port.wait_read()
    assert port.promised_ms == NO_WATERMARK_MS or moves
    if moves:
        await port.wait_promised(T + 2 * HOUR)
    await bench.engine.destroy(name)
