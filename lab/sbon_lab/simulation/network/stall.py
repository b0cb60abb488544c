"""A process that pauses now and then (swapping, a long collection, CPU starvation) and then continues.

Meanwhile its kernel takes datagrams and bytes, up to a limit. Its timers are late, and it sees everything at once.
"""

import asyncio

from sbon_lab.simulation.loop import EPOCH_S, VirtualLoop
from sbon_lab.simulation.network.network import KERNEL_DATAGRAMS
from sbon_node.base.clock import Clock
from sbon_node.net.transport import (
    Address,
    Connection,
    ConnectionHandler,
    DatagramEndpoint,
    DatagramHandler,
    Listener,
    Transport,
)


class Stall:
    """The stall of one process."""

    def __init__(self) -> None:
        self._until = 0.0

    def begin(self, seconds: float) -> None:
        self._until = max(self._until, asyncio.get_running_loop().time() + seconds)

    def left_s(self) -> float:
        return self._until - asyncio.get_running_loop().time() if self._until else 0.0

    async def over(self) -> None:
        left_s = self.left_s()
        if left_s > 0:
            await asyncio.sleep(left_s)
            await self.over()  # the stall may have been prolonged


class StallingClock(Clock):
    """A clock whose sleepers wake up when the stall of their process ends."""

    def __init__(self, loop: VirtualLoop, stall: Stall) -> None:
        super().__init__(wall_s=lambda: EPOCH_S + loop.time(), monotonic_s=loop.time)
        self._stall = stall

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._stall.left_s() > 0:
            await self._stall.over()


class StallingTransport(Transport):
    def __init__(self, transport: Transport, stall: Stall) -> None:
        self._transport, self._stall = transport, stall

    async def open_datagrams(self, bind: Address, handler: DatagramHandler) -> DatagramEndpoint:
        return await self._transport.open_datagrams(bind, _Inbox(handler, self._stall).take)

    async def listen(self, bind: Address, handler: ConnectionHandler) -> Listener:
        async def serve(connection: Connection) -> None:
            await self._stall.over()
            await handler(_StallingConnection(connection, self._stall))

        return await self._transport.listen(bind, serve)

    async def connect(self, to: Address, *, timeout_s: float) -> Connection:
        return _StallingConnection(await self._transport.connect(to, timeout_s=timeout_s), self._stall)


class _Inbox:
    """The datagrams of one port; at a stall's end, its datagrams are read in order, with that time."""

    def __init__(self, handler: DatagramHandler, stall: Stall) -> None:
        self._handler, self._stall = handler, stall
        self._delayed: list[tuple[bytes, Address]] = []

    def take(self, payload: bytes, sender: Address, stamp: float) -> None:
        left_s = self._stall.left_s()
        if left_s <= 0 and not self._delayed:
            self._handler(payload, sender, stamp)
            return
        if not self._delayed:
            asyncio.get_running_loop().call_later(left_s, self._read)
        if len(self._delayed) < KERNEL_DATAGRAMS:
            self._delayed.append((payload, sender))

    def _read(self) -> None:
        loop = asyncio.get_running_loop()
        if (left_s := self._stall.left_s()) > 0:
            loop.call_later(left_s, self._read)
            return
        datagrams, self._delayed = self._delayed, []
        for payload, sender in datagrams:
            self._handler(payload, sender, loop.time())


class _StallingConnection(Connection):
    def __init__(self, connection: Connection, stall: Stall) -> None:
        self._connection, self._stall = connection, stall

    @property
    def peer(self) -> Address:
        return self._connection.peer

    async def read_exactly(self, count: int) -> bytes:
        payload = await self._connection.read_exactly(count)
        await self._stall.over()
        return payload

    def write(self, payload: bytes) -> None:
        self._connection.write(payload)

    async def drain(self) -> None:
        await self._connection.drain()

    def close(self) -> None:
        self._connection.close()
