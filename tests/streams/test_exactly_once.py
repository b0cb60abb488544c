"""A source, an operator and a file sink on three nodes, one of which dies right after each step there is, once and again.

Everything but the engine and the sink is the real thing, on real files and under virtual time. The engine keeps Spark's contract:
what is planned and not committed is run again over the same offsets. Then each rule is broken on purpose, and shown to be missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.loop import VirtualLoop, VirtualTimeError
from sbon_lab.simulation.process import KilledError, Process
from sbon_node.model.frames import FrameDraft, InputOffset
from sbon_node.net.transport import ConnectionLostError
from sbon_node.streams.outbox import statements
from sbon_node.streams.outbox.ledger import Stream
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.port import NodePort
from sbon_node.streams.watermark import output_watermark
from sbon_protocol.errors import BrokenInvariantError, SbonError
from tests.streams.outboxes import stream_settings

ROWS = [f"row {number}" for number in range(8)]
SETTINGS = stream_settings(
    live_retention_bytes=0,
    inbox_credit_bytes=400,
    batch_span_bytes=200,
    outbox_quota_bytes=300,
    reconnect_s=0.01,
    reconnect_max_s=0.02,
)
NONE = (InputOffset(),)


class World:
    """State that survives a death (files, checkpoint, the sink's bytes), and which process dies when."""

    def __init__(self, folder: Path, host_class: Any, pair: Any, deaths: tuple[int, ...]) -> None:
        self.folder, self.host_class, self.pair, self.deaths = folder, host_class, pair, deaths
        self.trace: list[str] = []
        self.offsets: dict[int, tuple[InputOffset, ...]] = {}
        self.commits: set[int] = set()
        self.file: list[str] = []
        self.position = (0, 0)
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Node:
    """A node through all its lives."""

    def __init__(self, world: World, name: str, work: Callable[[Node, Any], Any]) -> None:
        self.world, self.name, self.work = world, name, work
        self.host: Any = None

    async def live(self) -> None:
        for life in range(10):
            process = Process(f"{self.name}#{life}")

            def step(name: str, process: Process = process) -> None:
                process.check_alive()
                self.world.trace.append(name)
                if len(self.world.trace) in self.world.deaths:
                    process.kill()
                    raise KilledError(name)

            died = asyncio.Event()
            self.host = host = self.world.host_class(self.world.folder / f"{self.name}.db", SETTINGS, step)
            self.process = process
            process.on_kill(host.cut)
            process.on_kill(host.outbox._store.close)
            process.on_kill(died.set)
            task = process.start(self.work(self, host))
            waiting = asyncio.ensure_future(died.wait())
            try:
                await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
                if not died.is_set():
                    task.result()
            finally:
                waiting.cancel()
                process.kill()
            await asyncio.sleep(0.05)

    async def open_stream(self, address: Any, expected: Any = None, *, stream: str = "") -> Any:
        if self.host is None or not self.process.alive:
            raise ConnectionLostError("nobody listens")
        ours, theirs = self.world.pair()
        self.host.channels.append(ours)
        self.host.tasks.append(self.process.start(self.host.serve(theirs)))
        return ours


async def read_source(node: Node, host: Any) -> None:
    # A live source that retains nothing for later queries: what is acknowledged too early is gone.
    host.outbox.open_stream("source", "source")
    while not host.outbox.link_counts("source").links:  # noqa: ASYNC110 - time is virtual
        await asyncio.sleep(0.01)
    while (line := int(host.outbox.position("source") or b"0")) < len(ROWS):
        await host.outbox.wait_room("source")
        drafts = [FrameDraft(payload=row.encode(), rows=1, ended=row == ROWS[-1]) for row in ROWS[line : line + 2]]
        host.outbox.write_source("source", drafts, str(line + 2).encode())
    await asyncio.Event().wait()


async def run_operator(node: Node, host: Any, upstream: Node) -> None:
    world = node.world
    host.open_stream = upstream.open_stream
    port: NodePort = host.port("op", "source")
    port.recover(max(world.commits, default=None))
    batch = max(world.commits, default=-1) + 1
    while True:
        after = world.offsets.get(batch - 1, NONE)
        if batch not in world.offsets:
            upto = await port.poll(after, 0.5)
            if upto is after:
                continue
            world.offsets[batch] = upto
            host.failpoint("plan")
        upto = world.offsets[batch]
        frames = await port.fetch(0, after[0].frame, upto[0].frame)
        host.failpoint("run")
        watermark_ms, ended = output_watermark(upto)
        # A second run of a batch cuts its rows otherwise, as Spark may.
        texts = [frame.payload.decode().upper() for frame in frames]
        cut = len(world.trace) % 3
        drafts = [
            FrameDraft(payload=";".join(part).encode(), rows=len(part), watermark_ms=watermark_ms, ended=ended)
            for part in (texts[:cut], texts[cut:])
        ]
        await port.write(batch, upto, drafts)
        await asyncio.sleep(0.01)
        world.commits.add(batch)
        host.failpoint("commit")
        await port.committed(batch)
        batch += 1


async def write_sink(node: Node, host: Any, upstream: Node) -> None:
    world = node.world
    host.open_stream = upstream.open_stream
    number, length = world.position
    del world.file[length:]
    link = host.link("op", failpoint=host.failpoint, start_after=number)
    while True:
        await link.wait(number)
        frame = link.inbox.frames(number, number + 1)[0]
        world.file += [text for text in frame.payload.decode().split(";") if text]
        host.failpoint("sink-write")
        world.position = (frame.number, len(world.file))
        if frame.ended and not world.finished.done():
            world.finished.set_result(None)
        host.failpoint("position-write")
        link.acknowledge(frame.number)
        number = frame.number


async def play(folder: Path, host_class: Any, pair: Any, deaths: tuple[int, ...]) -> World:
    world = World(folder, host_class, pair, deaths)
    up = Node(world, "up", read_source)
    mid = Node(world, "mid", lambda node, host: run_operator(node, host, up))
    down = Node(world, "down", lambda node, host: write_sink(node, host, mid))
    lives = [asyncio.ensure_future(node.live()) for node in (up, mid, down)]
    try:
        await asyncio.wait([world.finished, *lives], return_when=asyncio.FIRST_COMPLETED)
        # Late frames must do no harm either.
        await asyncio.wait(lives, timeout=2.0)
        for life in lives:
            if life.done():
                life.result()
    finally:
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
    return world


@pytest.fixture
def run_world(tmp_path: Path, host_class: Any, channel_pair: Any) -> Callable[..., World]:
    runs = iter(range(10_000))

    def run(*deaths: int) -> World:
        folder = tmp_path / str(next(runs))
        folder.mkdir()
        loop = VirtualLoop(max_time_s=60.0)
        try:
            return loop.run_until_complete(play(folder, host_class, channel_pair, deaths))
        finally:
            loop.cancel_all()
            loop.close()

    return run


EXPECTED = [row.upper() for row in ROWS]
STEPS = {
    *(
        "plan",
        "run",
        "outbox-write",
        "commit",
        "publish",
        "send",
        "receive",
        "acknowledge",
        "trim",
        "sink-write",
        "position-write",
    ),
}


@pytest.mark.one_part_per_commit("streams", parts=6)
def test_each_row_arrives_exactly_once_whatever_dies_after_whichever_step(run_world: Callable[..., World]) -> None:
    undisturbed = run_world()
    assert undisturbed.file == EXPECTED
    assert set(undisturbed.trace) == STEPS
    for death in range(1, len(undisturbed.trace) + 1):
        assert run_world(death).file == EXPECTED, f"died after step {death}"
        if death % 3 == 0:
            assert run_world(death, death + 1 + death % 17).file == EXPECTED, f"died after step {death} and again"


# -- bugs, planted ----------------------------------------------------------------------------------------------------


def publish_before_commit(patch: pytest.MonkeyPatch) -> None:
    write = NodePort.write

    async def early(self: NodePort, batch: int, offsets: Any, drafts: Any) -> None:
        await write(self, batch, offsets, drafts)
        self._outbox.publish(self.operator, batch)

    patch.setattr(NodePort, "write", early)
    patch.setattr(NodePort, "recover", forgiving(NodePort.recover))


def forgiving(recover: Any) -> Any:
    def anyway(self: NodePort, committed: int | None) -> None:
        recover(self, max(-1 if committed is None else committed, self._outbox.visible_batch(self.operator)))

    return anyway


def acknowledge_early(patch: pytest.MonkeyPatch) -> None:
    write = NodePort.write

    async def early(self: NodePort, batch: int, offsets: Any, drafts: Any) -> None:
        await write(self, batch, offsets, drafts)
        self._acknowledge(offsets)

    async def missing(self: NodePort, position: int, after: int, upto: int) -> Any:
        link = self.links[position]
        await link.wait(upto - 1)
        return [frame for number, frame in link.inbox._frames.items() if after < number <= upto]

    patch.setattr(NodePort, "write", early)
    patch.setattr(NodePort, "fetch", missing)


def position_apart(patch: pytest.MonkeyPatch) -> None:
    write = Outbox.write_source

    def apart(self: Outbox, stream: str, drafts: Any, position: bytes) -> None:
        write(self, stream, drafts, self.position(stream) or b"0")
        write(self, stream, [], position)

    patch.setattr(Outbox, "write_source", apart)


def never_drop(patch: pytest.MonkeyPatch) -> None:
    """A re-run of a visible batch, written as if it were a new one."""
    write = Outbox.write_batch

    def anew(self: Outbox, stream: str, batch: int, offsets: Any, drafts: Any) -> str:
        return write(self, stream, max(batch, self.visible_batch(stream) + 1), offsets, drafts)

    patch.setattr(Outbox, "write_batch", anew)
    publish_before_commit(patch)


def never_replace(patch: pytest.MonkeyPatch) -> None:
    """A re-run of an invisible batch, added to what is there."""
    patch.setattr(statements, "delete_pending", lambda *_, **__: None)
    insert = statements.insert_frames

    def after_all(connection: Any, stream: Any, frames: Any, upto: int) -> None:
        insert(connection, stream, [f for f in frames if stream.kind == "source" or f.number > stream.newest.last], upto)

    patch.setattr(statements, "insert_frames", after_all)
    patch.setattr(statements, "insert_pending", lambda connection, stream, tail: None)


def trim_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Stream, "floor", lambda self: max([one.received for one in self.active()], default=0))


@pytest.mark.parametrize(
    "plant",
    [publish_before_commit, acknowledge_early, position_apart, never_drop, never_replace, trim_early],
    ids=lambda f: f.__name__,
)
def test_a_broken_rule_is_caught(run_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, plant: Any) -> None:
    count = len(run_world().trace)
    plant(monkeypatch)
    for death in range(1, count + 1):
        try:
            world = run_world(death)
        except (BrokenInvariantError, SbonError, VirtualTimeError, KeyError, IndexError):
            return
        if world.file != EXPECTED:
            return
    pytest.fail("nothing noticed")
