"""A host and its subscribers in one process, joined by channels that can be watched, changed and cut."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sbon_node.base.clock import Clock
from sbon_node.base.failpoints import Failpoints, unobserved
from sbon_node.model.frames import FrameDraft, InputOffset
from sbon_node.net.transport import Address, ConnectionLostError
from sbon_node.streams.links.link import Link
from sbon_node.streams.links.publisher import Publisher, ReaderChecks
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.outbox.signals import Signal
from sbon_node.streams.port import NodePort, PortInput
from sbon_node.streams.settings import NO_LIMITS, BatchLimits, StreamSettings
from sbon_protocol.messages import Frame, Hello, Welcome
from tests.streams.outboxes import SETTINGS, stream_settings

UNTIL_S = 300.0
"""Longest wait for a condition on a busy machine."""
HERE = Address("127.0.0.1", 7400)
HELLO = Hello(version=1, oldest_version=1, cluster="c", node="reader", role="stream")


async def anybody(follower: str, hello: Hello) -> None:
    """Admit every follower: no register names them here."""


async def any_host(component: str, epoch: int, hello: Hello) -> None:
    """Admit every reader, as no register names its host here."""


CHECKS = ReaderChecks(anybody, any_host)


class Channel:
    """One end. A sender queues its frame and waits for its receiver, as on a real connection."""

    def __init__(self) -> None:
        self.inbound: asyncio.Queue[Frame] = asyncio.Queue()
        self.taken = Signal()
        self.peer: Hello | Welcome | None = None
        self.other: Channel
        self.closed = asyncio.Event()

    async def receive(self) -> Frame:
        frame: Frame = await self._unless_closed(self.inbound.get())
        self.taken.notify()
        return frame

    async def send(self, frame: Frame) -> None:
        if self.closed.is_set():
            raise ConnectionLostError("cut")
        self.other.inbound.put_nowait(frame)
        await self._unless_closed(asyncio.sleep(0))
        while self.other.inbound.qsize() > 4:
            await self._unless_closed(self.other.taken.wait())

    def close(self) -> None:
        self.closed.set()
        self.other.closed.set()

    async def _unless_closed(self, work: Any) -> Any:
        task, closed = asyncio.ensure_future(work), asyncio.ensure_future(self.closed.wait())
        try:
            await asyncio.wait([task, closed], return_when=asyncio.FIRST_COMPLETED)
            if self.closed.is_set():
                raise ConnectionLostError("cut")
            return task.result()
        finally:
            task.cancel()
            closed.cancel()
            await asyncio.gather(task, closed, return_exceptions=True)


def pair() -> tuple[Channel, Channel]:
    one, other = Channel(), Channel()
    one.other, other.other = other, one
    return one, other


class Host:
    """An outbox, its publisher, and everyone who has connected; ``serve`` may be replaced by a host that misbehaves."""

    def __init__(self, path: Path, settings: StreamSettings, failpoint: Failpoints) -> None:
        self.path, self.settings, self.failpoint = path, settings, failpoint
        self.clock = Clock()
        self.away = False
        self.welcome: Welcome | None = None
        """Its answer to a reader that shares its connections."""
        self.channels: list[Channel] = []
        self.links: list[Link] = []
        self.ports: list[NodePort] = []
        self.tasks: deque[asyncio.Task[None]] = deque()
        self.serve: Callable[[Channel], Awaitable[None]]
        self.boot()

    def boot(self) -> None:
        self.outbox = Outbox(self.path, self.settings, self.failpoint)
        self.publisher = Publisher(self.outbox, self.clock, self.settings, self.failpoint)
        self.serve = partial(self.publisher.serve, hello=HELLO, checks=CHECKS)

    def restart(self) -> None:
        """As after a kill: all connections are cut, and all that is known comes from the file."""
        self.cut()
        self.outbox.close()
        self.boot()

    def cut(self) -> None:
        for channel in self.channels:
            channel.close()
        self.channels.clear()

    async def open_stream(self, address: Address, expected: Any = None, *, stream: str = "") -> Channel:
        if self.away:
            raise ConnectionLostError("nobody listens")
        ours, theirs = pair()
        ours.peer = self.welcome
        self.channels.append(ours)
        self.tasks.append(asyncio.ensure_future(self.serve(theirs)))
        return ours

    def link(self, stream: str, subscriber: str = "down", **more: Any) -> Link:
        more.setdefault("locate", lambda: HERE)
        more.setdefault("settings", self.settings)
        more.setdefault("peers", self)
        link = Link(stream, subscriber, clock=self.clock, rng=random.Random(1), **more)
        link.start()
        self.links.append(link)
        return link

    def port(self, operator: str, *inputs: str | PortInput, limits: BatchLimits = NO_LIMITS, **more: Any) -> NodePort:
        self.outbox.open_stream(operator, "operator")
        port = NodePort(
            operator,
            [one if isinstance(one, PortInput) else PortInput(stream=one, locate=lambda: HERE, **more) for one in inputs],
            outbox=self.outbox,
            peers=self,
            clock=self.clock,
            settings=self.settings,
            rng=random.Random(1),
            failpoint=self.failpoint,
            limits=limits,
        )
        self.ports.append(port)
        return port

    def source(self, stream: str, *texts: str, ended: bool = False, finite: bool = True) -> None:
        """Opens the stream where need be and writes a frame for each text; the watermark is the frame's number."""
        self.outbox.open_stream(stream, "source", finite=finite)
        for index, text in enumerate(texts):
            number = self.outbox.latest(stream) + 1
            last = ended and index == len(texts) - 1
            draft = FrameDraft(payload=text.encode(), rows=len(text), watermark_ms=number, ended=last)
            self.outbox.write_source(stream, [draft], str(number).encode())

    def batch(self, stream: str, text: str) -> None:
        """Writes and publishes the next batch of an operator's stream."""
        self.outbox.open_stream(stream, "operator")
        batch = self.outbox.newest(stream) + 1
        self.outbox.write_batch(stream, batch, (InputOffset(frame=batch),), [FrameDraft(payload=text.encode(), rows=len(text))])
        self.outbox.publish(stream, batch)

    async def close(self) -> None:
        for port in self.ports:
            await port.close()
        for link in self.links:
            await link.close()
        self.cut()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.outbox.close()


@pytest.fixture
async def make_host(tmp_path: Path) -> AsyncIterator[Callable[..., Host]]:
    hosts: list[Host] = []

    def make(settings: StreamSettings | None = None, failpoint: Failpoints = unobserved) -> Host:
        settings = settings or stream_settings(reconnect_s=0.001, reconnect_max_s=0.002)
        hosts.append(Host(tmp_path / f"outbox-{len(hosts)}.db", settings, failpoint))
        return hosts[-1]

    yield make
    for host in hosts:
        await host.close()


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    async def wait(condition: Callable[[], object]) -> None:
        until_s = time.monotonic() + UNTIL_S
        while not condition():
            assert time.monotonic() < until_s, inspect.getsource(condition).strip()
            await asyncio.sleep(0.001)

    return wait


@pytest.fixture
def host_class() -> type[Host]:
    return Host


@pytest.fixture
def channel_pair() -> Callable[[], tuple[Channel, Channel]]:
    return pair


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


@pytest.fixture
def outbox(path: Path) -> Iterator[Outbox]:
    box = Outbox(path, SETTINGS)
    box.open_stream("op", "operator")
    box.open_stream("file", "source", finite=True)
    box.open_stream("live", "source")
    yield box
    box.close()
