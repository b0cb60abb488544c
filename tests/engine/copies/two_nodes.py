"""Two nodes on real sockets: one offers a copy, the other fetches it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sbon_node.base.clock import Clock
from sbon_node.base.executors import in_thread
from sbon_node.engine.copies.listing import CopyLimits
from sbon_node.engine.copies.receiver import CopyReceiver, CopySource
from sbon_node.engine.copies.sender import CopySender
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.manifest import CopiedFile
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Expected, FrameChannel, Identity, Peers, PeerServer
from sbon_node.net.settings import NetSettings
from sbon_node.net.sockets import SocketTransport
from sbon_node.net.transport import Address, ConnectionLostError
from sbon_protocol.api.moves import MoveProgress
from sbon_protocol.messages import Chunk, Frame, Hello

ATTEMPT, OPERATOR = "5f0c2e9ab1d44c71", "q1-7f3a.0"
TARGET = Expected("b", "i-b")
OFFERING = Identity("sbon", "a", "i-a")
LIMITS = CopyLimits(max_files=100, max_bytes=64 * 2**20)
CONTENTS = {
    "offsets/7": b"v1\n{}",
    "state/0/0/1.delta": os.urandom(3),
    "state/0/0/2.snapshot": os.urandom(900_000),
    "state/0/1/1.delta": b"",
    "state/0/2/1.delta": b"",
    "state/0/1/2.delta": os.urandom(200_001),
}


def files_in(folder: Path, contents: dict[str, bytes]) -> tuple[CopiedFile, ...]:
    """Write the files, and return their list."""
    for path, content in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return tuple(
        CopiedFile(path=path, bytes=len(content), digest=hashlib.sha256(content).hexdigest())
        for path, content in contents.items()
    )


def contents_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Cut:
    """Opens connections for copies; each ends after so many chunks, the last number for all further ones. Counts the chunks."""

    def __init__(self, peers: Peers, after: list[int]) -> None:
        self._peers, self._after = peers, after
        self.chunks: list[list[tuple[int, int]]] = []

    async def open_copy(self, address: Address, expected: Expected) -> FrameChannel:
        channel = await self._peers.open_copy(address, expected)
        left = self._after[min(len(self.chunks), len(self._after) - 1)]
        taken: list[tuple[int, int]] = []
        self.chunks.append(taken)
        receive = channel.receive

        async def counted() -> Frame:
            if len(taken) >= left:
                channel.close()
                raise ConnectionLostError("cut")
            message = await receive()
            if isinstance(message, Chunk):
                taken.append((message.file, message.offset))
            return message

        channel.receive = counted  # type: ignore[method-assign]
        return channel


class Nodes:
    """Node a with a sender, and node b with its peers."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.settings = MigrationSettings(**({"stall_s": 2.0} | settings))
        self.clock = Clock.real()
        self.counters = Counters(self.clock.now)
        self._net = SocketTransport(self.clock, NetSettings(), self.counters)
        self.sender = CopySender(self.clock, self.settings, in_thread)
        self.server = PeerServer(self._net, self.clock, OFFERING, NetSettings(), self.counters)
        self.server.on_copy(self.sender.serve)
        self.peers = self.peers_of("b", "i-b")
        self.address = Address("127.0.0.1", 0)
        self.progress: list[MoveProgress] = []

    def peers_of(self, node: str, instance: str) -> Peers:
        return Peers(self._net, self.clock, Identity("sbon", node, instance), NetSettings(), self.counters)

    def offer(self, contents: dict[str, bytes], receiver: Expected = TARGET) -> tuple[CopiedFile, ...]:
        files = files_in(self.folder / "offered", contents)
        self.sender.offer(ATTEMPT, OPERATOR, receiver, self.folder / "offered", files)
        return files

    async def receive(
        self, opener: Any = None, *, limits: CopyLimits = LIMITS, attempt: str = ATTEMPT, expect: Expected | None = None
    ) -> dict[str, bytes]:
        """Fetch the copy, and return the contents by path."""
        receiver = CopyReceiver(
            opener or self.peers,
            clock=self.clock,
            executor=in_thread,
            settings=self.settings,
            limits=limits,
            rng=random.Random(1),
        )
        source = CopySource(OPERATOR, attempt, lambda: self.address, lambda: expect or Expected("a", "i-a"))
        await receiver.receive(source, self.folder / "received", self.folder / "assembled", self.progress.append)
        return contents_of(self.folder / "assembled")


@asynccontextmanager
async def two_nodes(folder: Path, **settings: Any) -> AsyncIterator[Nodes]:
    nodes = Nodes(folder, **settings)
    nodes.address = await nodes.server.start(nodes.address)
    try:
        yield nodes
    finally:
        await nodes.peers.close()
        await nodes.server.close()


@asynccontextmanager
async def impostor(
    nodes: Nodes, serve: Callable[[FrameChannel, Hello], Awaitable[None]], identity: Identity = OFFERING
) -> AsyncIterator[None]:
    """Another sender at the address from which the receiver copies."""
    server = PeerServer(nodes._net, nodes.clock, identity, NetSettings(), nodes.counters)
    server.on_copy(serve)
    nodes.address = await server.start(Address("127.0.0.1", 0))
    try:
        yield
    finally:
        await server.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - sockets
            await asyncio.sleep(0.005)
