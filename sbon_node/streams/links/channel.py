"""The network that streams need: a connection that carries frames, and a method to open one."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from sbon_node.net.peers import ANYONE, Expected
from sbon_node.net.transport import Address
from sbon_protocol.messages import Frame


class FrameChannel(Protocol):
    """One connection after the handshake. Raises ``ConnectionLostError`` and ``ProtocolError``."""

    async def receive(self) -> Frame: ...

    async def send(self, frame: Frame) -> None: ...

    def close(self) -> None: ...


class StreamOpener(Protocol):
    """Opens channels for subscriptions to a ``stream``; several of them may share a connection."""

    async def open_stream(self, address: Address, expected: Expected = ANYONE, *, stream: str) -> FrameChannel: ...


async def race(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run all until the first ends, cancel the others and wait for them; raise the first one's error."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        done = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
