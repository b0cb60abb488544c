"""Operators whose checkpoints lie on file systems of their own, full but for so many pages when the first batch runs.

Run by ``unshare --mount``; see ``test_no_space``. Prints, as JSON, what each operator's states were and the rows that came out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from sbon_node.base.clock import Clock
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from sbon_protocol.errors import SbonError
from tests.engine.no_space import fill, mount
from tests.engine.states import States
from tests.engine.toy_port import ToyPort

PAGE = 4096
PAGES = range(6)
"""Free at the first batch. Each write takes one: the query's id, its plan, the schemas of its state, its state, the commit."""
ROWS = 100
FRAGMENT = "SELECT k % 7 AS k, count(*) AS n FROM in0 GROUP BY k % 7, window(ts, '1 minute')"


class Full:
    """An operator on a disk of its own, full but for so many pages; ``gone`` fills it, and has no name there."""

    def __init__(self, folder: Path, states: States, pages: int) -> None:
        columns = (Column("k", "bigint"), Column("ts", "timestamp"))
        inputs = (InputSpec(stream="in", node="n", schema=columns, event_time="ts"),)
        self.spec = OperatorSpec(id=f"o{pages}", query="q", fragment=FRAGMENT, inputs=inputs, schema=())
        self.checkpoint, self.port, self._states = folder / self.spec.id, ToyPort(), states
        self.refused = False
        mount(self.checkpoint)
        self.gone: BinaryIO = (self.checkpoint / "gone").open("wb", buffering=0)
        (self.checkpoint / "gone").unlink()
        fill(self.gone, leave=pages * PAGE)

    async def start(self, engine: SparkEngine) -> None:
        """With its rows there; a submission may be refused, and a node that resumes comes again."""
        times = pa.array([1_000_000 * k for k in range(ROWS)], pa.timestamp("us", "UTC"))
        await self.port.feed(pa.table({"k": pa.array(range(ROWS), pa.int64()), "ts": times}))
        try:
            await engine.instantiate(self.spec, self.port, self.checkpoint)
        except SbonError as error:
            self.refused = True
            self._states(self.spec.id, "stopped", str(error))

    async def free(self, engine: SparkEngine) -> None:
        await self._states.wait(self.spec.id, "stopped")
        self.gone.close()
        if self.refused:
            await engine.instantiate(self.spec, self.port, self.checkpoint)
        await self.port.feed(None, ended=True)


async def main(folder: Path) -> None:
    states = States()
    engine = SparkEngine(EngineSettings(jit="c1", max_restarts=0), folder, Clock.real(), states)
    operators = [Full(folder / "operators", states, pages) for pages in PAGES]
    for operator in operators:
        await operator.start(engine)
    for operator in operators:
        await operator.free(engine)
    told = {}
    for operator in operators:
        try:
            rows = (await operator.port.wait_ended()).to_pylist()
        except TimeoutError:
            rows = []
        left = [path.name for path in operator.checkpoint.rglob(".*.tmp")]
        told[operator.spec.id] = {"states": states.told[operator.spec.id], "rows": rows, "left": left}
    await engine.close()
    print("told", json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
