"""An engine whose checkpoints lie on a file system of a megabyte, mounted for this process alone; see ``test_no_space``.

Run by ``unshare --mount``. Prints, as JSON, what the operator's states were and the rows that came out.
"""

from __future__ import annotations

import asyncio
import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from sbon_node.base.clock import Clock
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from tests.engine.states import States
from tests.engine.toy_port import ToyPort

FRAMES, ROWS = 6, 100


def mount(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)


def fill(out: BinaryIO, leave: int = 0) -> None:
    """Takes all the room there is but ``leave`` bytes, to the last one."""
    for size in (4096, 1):
        try:
            while True:
                out.write(b"x" * size)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    out.truncate(out.tell() - leave)


async def main(folder: Path) -> None:
    disk = folder / "operators"
    checkpoint = disk / "o"
    mount(disk)
    checkpoint.mkdir()
    states, port = States(), ToyPort()
    engine = SparkEngine(EngineSettings(jit="c1", max_restarts=0, restart_s=0.1), folder, Clock.real(), states)
    inputs = (InputSpec(stream="in", node="n", schema=(Column("k", "bigint"),)),)
    spec = OperatorSpec(id="o", query="q", fragment="SELECT k * 2 AS k FROM in0 WHERE k % 3 = 0", inputs=inputs, schema=())

    async def feed(frame: int, *, ended: bool = False) -> None:
        await port.feed(pa.table({"k": range(frame * ROWS, (frame + 1) * ROWS)}), ended=ended)

    await engine.instantiate(spec, port, checkpoint)
    await feed(0)
    await port.wait_visible(0)
    with (disk / "filler").open("wb", buffering=0) as filler:
        fill(filler)
    before = port.visible
    for frame in range(1, FRAMES):
        await feed(frame, ended=frame == FRAMES - 1)
    reason = await states.wait("o", "stopped")
    await states.wait("o", "stopped", 3)
    told = {"reason": reason, "shown_while_full": port.visible - before}
    (disk / "filler").unlink()
    rows = (await port.wait_ended())["k"].to_pylist()
    await engine.close()
    print("told", json.dumps({**told, "rows": rows, "failed": states.count("o", "failed")}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
