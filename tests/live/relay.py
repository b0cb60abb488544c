"""The network between the nodes of a local cluster: a relay that can cut or limit any path.

Each node announces an address of the relay in place of its own, so that its messages from others pass the relay. The relay
recognises senders by their source addresses, and forwards from the sender's announced address: replies pass it as well. The
relay is an ordinary program and needs no rights. Only a join through another node's own address bypasses it.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

from tests.addresses import own_host

R = TypeVar("R")

Manner = Literal["hold", "lose", "reset"]
"""Effect of a cut on connections, while datagrams are lost.

``hold``: bytes wait for its end, as resent segments do. ``lose``: bytes are lost, and at the end the connections as well, because
the other side has given them up. ``reset``: connections are reset at once, and new ones too.
"""

CHUNK_BYTES = 65_536
_numbers = itertools.count(100)
"""Numbers of announced addresses in this process: each relay has its own."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets."""


class Limit(NamedTuple):
    """Each connection carries ``budget_bytes`` in each direction, then only ``rate_bytes_s``.

    ``reached`` is set once a connection is limited.
    """

    budget_bytes: int
    rate_bytes_s: float
    reached: threading.Event


class _Path:
    """The path between two nodes, in both directions.

    ``lost`` counts the datagrams lost to the newest cut, ``carried`` each connection's bytes towards its writer since the newest
    limit.
    """

    def __init__(self) -> None:
        self.manner: Manner | None = None
        self.whole = asyncio.Event()
        self.whole.set()
        self.limit: Limit | None = None
        self.unlimited = asyncio.Event()
        self.carried: Counter[asyncio.StreamWriter] = Counter()
        self.lost = 0
        self.ends: set[asyncio.StreamWriter] = set()

    def cut(self, manner: Manner) -> None:
        self.manner = manner
        self.lost = 0
        self.whole.clear()
        if manner == "reset":
            self.reset()

    def heal(self) -> None:
        if self.manner == "lose":
            self.reset()
        self.manner = None
        self.whole.set()

    def reset(self) -> None:
        for end in self.ends:
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.transport.abort()
        self.ends.clear()

    def set_limit(self, limit: Limit | None) -> None:
        self.limit = limit
        self.unlimited = asyncio.Event()
        self.carried.clear()

    def lift_limit(self) -> None:
        self.limit = None
        self.unlimited.set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction of a connection, until its end or the connection's."""
        while chunk := await reader.read(CHUNK_BYTES):
            if self.limit is not None:
                await self._spend(self.limit, writer, len(chunk))
            if self.manner == "lose":
                continue
            await self.whole.wait()
            writer.write(chunk)
            await writer.drain()
        await self.whole.wait()
        writer.write_eof()

    async def _spend(self, limit: Limit, writer: asyncio.StreamWriter, size: int) -> None:
        self.carried[writer] += size
        if self.carried[writer] <= limit.budget_bytes:
            return
        limit.reached.set()
        try:
            async with asyncio.timeout(size / limit.rate_bytes_s if limit.rate_bytes_s else None):
                await self.unlimited.wait()
        except TimeoutError:
            return


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, take: Callable[[bytes, str], None]) -> None:
        self._take = take

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._take(data, addr[0])


class Relay:
    """Relay for the nodes ``names``, which all listen at ``port``. Any thread may call the methods."""

    def __init__(self, names: Sequence[str], port: int) -> None:
        self.announced = {name: own_host(next(_numbers)) for name in names}
        self._port = port
        self._hosts: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._paths = {frozenset((a, b)): _Path() for a in names for b in names}
        self._datagrams: dict[str, asyncio.DatagramTransport] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @contextmanager
    def running(self, hosts: Mapping[str, str]) -> Iterator[None]:
        """Between nodes that listen at ``hosts``, by name."""
        self._hosts = dict(hosts)
        thread = threading.Thread(target=self._loop.run_forever, name="relay")
        thread.start()
        try:
            self._do(self._open)
            yield
        finally:
            self._do(self._close)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    @contextmanager
    def cut(self, side: Sequence[str], other: Sequence[str], manner: Manner) -> Iterator[None]:
        """Cut all paths between the two sides until the end of the block."""
        paths = [self._paths[frozenset((a, b))] for a in side for b in other]
        self._each(paths, lambda path: path.cut(manner))
        try:
            yield
        finally:
            self._each(paths, _Path.heal)

    @contextmanager
    def limit(
        self, side: Sequence[str], other: Sequence[str], budget_bytes: int, rate_bytes_s: float = 0.0
    ) -> Iterator[threading.Event]:
        """Limit connections between the two sides as :class:`Limit` describes; datagrams are not limited."""
        paths = [self._paths[frozenset((a, b))] for a in side for b in other]
        limit = Limit(budget_bytes, rate_bytes_s, threading.Event())
        self._each(paths, lambda path: path.set_limit(limit))
        try:
            yield limit.reached
        finally:
            self._each(paths, _Path.lift_limit)

    def lost(self, one: str, other: str) -> int:
        """Datagrams that the newest cut between the two has swallowed."""
        return self._paths[frozenset((one, other))].lost

    # -- on the loop --------------------------------------------------------------------------------------------------

    def _do(self, work: Callable[[], Awaitable[R]]) -> R:
        async def run() -> R:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _each(self, paths: Sequence[_Path], change: Callable[[_Path], None]) -> None:
        async def all_at_once() -> None:
            for path in paths:
                change(path)

        self._do(all_at_once)

    async def _open(self) -> None:
        for name, host in self.announced.items():
            self._datagrams[name], _ = await self._loop.create_datagram_endpoint(
                partial(_Datagrams, partial(self._forward, name)), local_addr=(host, self._port)
            )
            self._servers.append(await asyncio.start_server(partial(self._accepted, name), host, self._port))

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for path in self._paths.values():
            path.reset()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for transport in self._datagrams.values():
            transport.close()

    def _named(self, host: str) -> str | None:
        return next((name for name, known in self._hosts.items() if known == host), None)

    def _forward(self, target: str, data: bytes, sender: str) -> None:
        source = self._named(sender)
        if source is None:
            return
        path = self._paths[frozenset((source, target))]
        if path.manner is not None:
            path.lost += 1
        else:
            self._datagrams[source].sendto(data, (self._hosts[target], self._port))

    def _accepted(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = self._named(writer.get_extra_info("peername")[0])
        if source is None:
            writer.close()
            return
        task = self._loop.create_task(self._connect(reader, writer, source, target), name=f"{source} to {target}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str, target: str) -> None:
        path = self._paths[frozenset((source, target))]
        ends = {writer}
        path.ends |= ends
        if path.manner == "reset":
            path.reset()
            return
        try:
            await path.whole.wait()
            if writer.is_closing():
                return
            there, on = await asyncio.open_connection(self._hosts[target], self._port, local_addr=(self.announced[source], 0))
            ends.add(on)
            path.ends.add(on)
            await asyncio.gather(path.carry(reader, on), path.carry(there, writer))
        except OSError:
            for end in ends:
                end.transport.abort()
        finally:
            path.ends -= ends
            for end in ends:
                end.close()
