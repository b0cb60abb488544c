"""A batch's output on its way to the node, over the real wire: when its commit is told, and what becomes of a refusal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.spark import wire
from sbon_node.engine.spark.listener import Listener
from sbon_node.engine.spark.messages import REQUEST, Committed, Done, Message, Request, Write
from sbon_node.engine.spark.operators.output import Output
from sbon_node.engine.spark.wire import FEED_VARIABLE
from sbon_node.model.frames import InputOffset
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.errors import SbonError
from tests.engine.scripted_engine import Batch
from tests.engine.states import PATIENCE_S

SPEC = OperatorSpec(id="o", query="q", fragment="SELECT n FROM in0", inputs=(), schema=())


class Node:
    """Requests to a node in order, and among them the syncs of the checkpoint."""

    def __init__(self, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[str] = []
        self.failures: list[Exception] = []
        self.refusal: SbonError | None = None
        self.checkpoint, self._changed = checkpoint, asyncio.Event()
        self._loop = asyncio.get_running_loop()
        really = os.fsync

        def fsync(descriptor: int) -> None:
            path = Path(f"/proc/self/fd/{descriptor}").resolve()
            self.told.append(f"sync {os.path.relpath(path, checkpoint)}")
            really(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)

    async def serve(self, request: Request) -> Message:
        assert isinstance(request, Write | Committed)
        self.told.append(f"{type(request).__name__.lower()} {request.batch}")
        if isinstance(request, Committed) and self.refusal is not None:
            raise self.refusal
        self._changed.set()
        return Done()

    def failed(self, error: Exception) -> None:
        self.failures.append(error)
        self._loop.call_soon_threadsafe(self._changed.set)

    async def wait(self, what: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while what not in self.told and not self.failures:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def output(node: Node, monkeypatch: pytest.MonkeyPatch, *, fsync: bool) -> AsyncIterator[Output]:
    listener = Listener(node.serve, REQUEST)
    monkeypatch.setenv(FEED_VARIABLE, await listener.open())
    log = BatchLog(node.checkpoint, fsync=fsync)
    made = await asyncio.to_thread(Output, SPEC, log, 1 << 18, node.failed, lambda: 0)
    try:
        yield made
    finally:
        await asyncio.to_thread(made.close)
        await listener.close()


async def run(made: Output, node: Node, batch: int, table: pa.Table | None = None) -> None:
    """As Spark runs a batch."""
    log = BatchLog(node.checkpoint)
    log.write_offsets(batch, (InputOffset(frame=batch + 1),))
    state = node.checkpoint / "state" / "0" / "0" / f"{batch + 1}.delta"
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_bytes(b"state")
    await asyncio.to_thread(made, Batch(table or pa.table({"n": [batch]})), batch)
    log.write_commit(batch)


async def test_a_checkpoint_is_synced_before_its_batch_becomes_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    async with output(node, monkeypatch, fsync=True) as made:
        for batch in range(2):
            await run(made, node, batch)
            await node.wait(f"committed {batch}")
    first, second = node.told.index("committed 0"), node.told.index("committed 1")
    for batch, told in enumerate([node.told[:first], node.told[first:second]]):
        files = {f"sync offsets/{batch}", f"sync commits/{batch}", f"sync state/0/0/{batch + 1}.delta"}
        assert files | {"sync offsets", "sync commits", "sync state/0/0"} <= set(told)
        assert told[0 if batch == 0 else 1] == f"write {batch}"
    for batch in range(2):
        assert node.told.count(f"sync commits/{batch}") == 1


async def test_without_fsync_nothing_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    async with output(node, monkeypatch, fsync=False) as made:
        await run(made, node, 0)
        await node.wait("committed 0")
    assert node.told == ["write 0", "committed 0"]


async def test_a_failed_sync_is_reported_and_nothing_becomes_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    async with output(node, monkeypatch, fsync=True) as made:
        await run(made, node, 0)
        await node.wait("committed 0")
    assert [str(error) for error in node.failures] == ["[Errno 28] No space left on device"]
    assert node.told == ["write 0"]


async def test_a_refused_commit_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    node.refusal = SbonError("fenced", "epoch 1 is over")
    async with output(node, monkeypatch, fsync=False) as made:
        await run(made, node, 0)
        await node.wait("nothing more")
    assert [str(error) for error in node.failures] == ["epoch 1 is over"]


async def test_a_row_that_is_too_large_is_refused_before_it_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    async with output(node, monkeypatch, fsync=False) as made:
        with pytest.raises(SbonError):
            await run(made, node, 0, pa.table({"s": ["x" * (2 << 20)]}))
        assert made.refusal is not None
        assert made.refusal.code == "row-too-large"
    assert node.told == []


async def test_an_output_above_a_messages_limit_fails_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch)
    async with output(node, monkeypatch, fsync=False) as made:
        monkeypatch.setattr(wire, "MAX_BYTES", 10_000)
        with pytest.raises(SbonError):
            await run(made, node, 0, pa.table({"s": [os.urandom(100) for _ in range(200)]}))
        assert made.refusal is not None
        assert (made.refusal.code, made.refusal.where) == ("output-too-large", "o")
        assert "the output of batch 0 is too large" in made.refusal.message
        assert "over the limit of 10,000" in made.refusal.message
        assert "streams.batch_span_bytes" in made.refusal.hint
    assert node.told == []
