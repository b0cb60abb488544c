"""A commit that waits, as for a backup that is away, holds up neither its operator's stop nor other operators."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sbon_node.model.frames import InputOffset
from sbon_protocol.errors import SbonError
from tests.engine.scripted_engine import CLOSED
from tests.engine.states import PATIENCE_S
from tests.engine.test_restarts import Bench, bench, row
from tests.engine.toy_port import ToyPort


class WaitingPort(ToyPort):
    """Shows no commit until ``stored``; a poll raises ``failure`` once."""

    def __init__(self) -> None:
        super().__init__()
        self.committing, self.stored = asyncio.Event(), asyncio.Event()
        self.failure: SbonError | None = None

    async def committed(self, batch: int) -> None:
        self.committing.set()
        await self.stored.wait()
        await super().committed(batch)

    async def store(self, committed: int | None) -> None:
        if committed is not None:
            await self.stored.wait()

    async def poll(self, after: tuple[InputOffset, ...], wait_s: float) -> tuple[InputOffset, ...]:
        if self.failure is not None and self.committing.is_set():
            failure, self.failure = self.failure, None
            raise failure
        return await super().poll(after, wait_s)


async def waiting(it: Bench, port: WaitingPort) -> None:
    """Start an operator, and wait until its first commit is told."""
    await it.instantiate("waits", port)
    await port.feed(row(0))
    async with asyncio.timeout(PATIENCE_S):
        await port.committing.wait()


async def test_its_operator_is_destroyed_and_continues_elsewhere(tmp_path: Path) -> None:
    async with bench(tmp_path, stop_s=0.1) as it:
        port = WaitingPort()
        await waiting(it, port)
        async with asyncio.timeout(PATIENCE_S):
            await it.engine.destroy("waits")
        assert not port.rows_visible()
        await it.start("other")
        port.stored.set()
        await it.instantiate("again", port, checkpoint="waits")
        await port.feed(row(1), ended=True)
        assert (await port.wait_ended())["n"].to_pylist() == [0, 1]
        assert it.engine.starts == 1, "the engine was killed since it did not answer"


async def test_others_start_while_its_operator_is_to_start_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        port = WaitingPort()
        port.failure = SbonError("disk-full", "there is no room for the input")
        await waiting(it, port)
        await it.states.wait("waits", "stopped")
        async with asyncio.timeout(PATIENCE_S):
            other = await it.start("other")
            await other.feed(row(0))
            await other.wait_seen(0)
        assert it.engine.starts == 1, "the engine was killed since it did not answer"
        assert not port.rows_visible()
        port.stored.set()
        await port.feed(row(1), ended=True)
        assert (await port.wait_ended())["n"].to_pylist() == [0, 1]


async def test_the_engine_is_replaced_and_ends_by_itself(tmp_path: Path) -> None:
    closed = tmp_path / CLOSED
    async with bench(tmp_path, stop_s=0.1, max_restarts=0) as it:
        port = WaitingPort()
        await waiting(it, port)
        replacing = asyncio.create_task(it.engine._replace("it is full"))
        await it.states.wait("waits", "starting", 2)
        assert closed.exists()
        closed.unlink()
        port.stored.set()
        await replacing
        await port.wait_visible(0)
        port.stored.clear()
        port.committing.clear()
        await port.feed(row(1))
        async with asyncio.timeout(PATIENCE_S):
            await port.committing.wait()
        assert not it.states.count("waits", "failed"), it.states.told["waits"]
    assert closed.exists()
