"""A source that reads a script, and the runner with the outbox it writes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from sbon_lab.simulation.loop import run
from sbon_node.base.clock import Clock
from sbon_node.connectors.formats import frames
from sbon_node.connectors.interface import Chunk
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.runner import SourceRunner
from sbon_node.model.frames import Frame
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.api.streams import SourceInfo

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("n", pa.int64())])
STREAM = StreamDeclaration(
    name="clicks", schema=(Column("ts", "timestamp"), Column("n", "bigint")), event_time="ts", delay_ms=1000
)
SOURCE = SourceDeclaration(stream="clicks", name="one", node="here", connector="scripted")


def at(times: list[int | None]) -> pa.Array:
    return pa.array(times, pa.int64()).cast(pa.timestamp("ms")).cast(SCHEMA.field("ts").type)


class Scripted:
    """Gives the chunks of a script, each of event times in milliseconds; position is the number of the next."""

    finite = True
    waits = True

    def __init__(self, script: list[list[int | None]], pause_s: float = 0.0) -> None:
        self.script, self.pause_s, self.next = script, pause_s, 0

    def check(self) -> None: ...

    async def open(self, position: bytes | None) -> None:
        self.next = int(position or b"0")

    async def read(self) -> Chunk | None:
        await asyncio.sleep(self.pause_s)
        if self.next == len(self.script):
            return None
        times = self.script[self.next]
        before = sum(map(len, self.script[: self.next]))
        self.next += 1
        rows = pa.RecordBatch.from_pydict({"ts": at(times), "n": range(before, before + len(times))}, SCHEMA)
        return Chunk(rows, b"%d" % self.next, lambda i: (before + i + 1, f"row {before + i}"))

    async def close(self) -> None: ...


class Killed(Exception):
    pass


class World:
    def __init__(self, folder: Path, source: Callable[[], Any], **settings: Any) -> None:
        self.folder, self.source = folder, source
        self.settings = ConnectorSettings(**settings)
        self.states: list[tuple[str, str]] = []
        self.failpoint: Callable[[str], None] = lambda step: None
        self.stream_settings = StreamSettings()
        self.told: SourceInfo
        """The runner's description of the source at the end of a run."""

    def run(self, *, until_s: float | None = None, read: bool = True) -> list[Frame]:
        async def main() -> list[Frame]:
            outbox = Outbox(self.folder / "outbox.db", self.stream_settings, lambda step: self.failpoint(step))
            try:
                self.runner = SourceRunner(
                    SOURCE,
                    STREAM,
                    self.source(),
                    outbox=outbox,
                    clock=Clock(),
                    settings=self.settings,
                    dead_letters=self.folder / "dead-letters",
                    wanted=lambda: asyncio.sleep(0),
                    on_state=lambda state, reason: self.states.append((state, reason)),
                )
                try:
                    async with asyncio.timeout(until_s):
                        await self.runner.run()
                except TimeoutError:
                    pass
                self.told = self.runner.describe()
                return outbox.read(SOURCE.id, 0, 2**40) if read else []
            finally:
                outbox.close()

        return run(lambda loop, rng: main(), seed=1)

    def letters(self) -> list[dict[str, Any]]:
        return [
            msgspec.json.decode(line) for f in sorted(self.folder.glob("dead-letters/*")) for line in f.read_bytes().splitlines()
        ]


def rows_of(found: list[Frame]) -> list[dict[str, Any]]:
    return [row for frame in found for row in frames.decode(frame.payload, SCHEMA).to_pylist()]


def numbers(found: list[Frame]) -> list[int]:
    return [row["n"] for row in rows_of(found)]
