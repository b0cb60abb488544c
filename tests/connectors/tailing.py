"""A growing file and the source that reads it, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from sbon_lab.simulation.loop import run
from sbon_node.base.clock import Clock
from sbon_node.connectors.interface import BadRow, Chunk
from sbon_node.connectors.options import read_options
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.tail import TailOptions, TailSource
from tests.connectors.source_context import context_of

US = pa.timestamp("us", "UTC")
LINES = pa.schema([("ts", US), ("line", pa.string())])
NUMBERS = pa.schema([("ts", US), ("n", pa.int64())])
SMALL = ConnectorSettings(block_bytes=1024, max_record_bytes=2048)
WALL_S = 1_600_000_000


class Tail:
    """A source that is read until nothing more comes, stopped and taken up again."""

    def __init__(self, path: Path, schema: pa.Schema = LINES, limits: ConnectorSettings = SMALL, **options: Any) -> None:
        self.path = path
        read = read_options(TailOptions, {"path": str(path), **options}, "tail")
        clock = Clock(wall_s=lambda: WALL_S)
        limits = msgspec.structs.replace(limits, data_roots=(str(path.parent),))
        self.source = TailSource(context_of(schema, limits, clock), read)
        self.chunks: list[Chunk] = []
        self.position: bytes | None = None

    async def open(self) -> None:
        await self.source.open(self.position)

    async def drain(self) -> None:
        """Read what is there. A missing file raises, as the runner expects, which opens the source again later."""
        while True:
            try:
                async with asyncio.timeout(10):
                    chunk = await self.source.read()
            except TimeoutError:
                return
            assert chunk is not None
            self.chunks.append(chunk)
            self.position = chunk.position

    async def restart(self) -> None:
        await self.source.close()
        await self.open()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for chunk in self.chunks for row in chunk.rows.to_pylist()]

    @property
    def lines(self) -> list[str]:
        return [row["line"] for row in self.rows]

    @property
    def bad(self) -> list[BadRow]:
        return [bad for chunk in self.chunks for bad in chunk.bad]


def virtually(test: Callable[[], Awaitable[None]]) -> None:
    async def main(loop: Any, rng: Any) -> None:
        await test()

    run(main, seed=1, max_time_s=1e6)


def append(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


class AtItsPlace:
    """A writer like ``program > app.log``, which goes on at its own place, also in a file that was truncated meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path, self.place = path, 0

    def write(self, text: str) -> None:
        with open(self.path, "r+b") as file:
            file.seek(self.place)
            self.place += file.write(text.encode())


def whole(folder: Path, count: int) -> Path:
    path = folder / "n.ndjson"
    path.write_text("".join(f'{{"ts":"2020-01-01T00:00:00Z","n":{i}}}\n' for i in range(count)))
    return path
