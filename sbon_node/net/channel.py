"""A connection after its handshake: whole frames, and the handshake from the opening side."""

from __future__ import annotations

from typing import NamedTuple

from sbon_node.base.clock import Clock
from sbon_node.net.counters import Counters
from sbon_node.net.transport import Address, Connection, ConnectionLostError, Transport
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.frames import encode_frame, read_frame
from sbon_protocol.messages import Frame, Hello, Refused, Role, Welcome
from sbon_protocol.version import CAPABILITIES, OLDEST_VERSION, VERSION

WRONG_NODE = "wrong-node"
"""Refusal of a Hello that expects another node."""


class Identity(NamedTuple):
    """A node's claimed identity; ``instance`` belongs to its data directory, so that namesakes differ."""

    cluster: str
    node: str
    instance: str


class Expected(NamedTuple):
    """The node that a caller wants to reach; an empty field matches any node, or any instance."""

    node: str = ""
    instance: str = ""

    def mismatch(self, node: str, instance: str) -> str:
        """Return who is there instead, empty for the expected node. An empty ``instance`` matches no expected one."""
        if self.node and node != self.node:
            return f"{node} is there, not {self.node}"
        if self.instance and instance != self.instance:
            return f"{node} is there with another data directory"
        return ""


ANYONE = Expected()


class FrameChannel:
    """Carries frames both ways. ``peer`` is the other side's handshake message, once received."""

    def __init__(self, connection: Connection, counters: Counters) -> None:
        self._connection, self._counters = connection, counters
        self._refused = False
        self._taken = 0
        self.peer: Hello | Welcome | None = None

    @property
    def address(self) -> Address:
        return self._connection.peer

    async def receive(self) -> Frame:
        """Receive one frame; raises :class:`ConnectionLostError`.

        For a frame that breaks the protocol it closes and raises :class:`ProtocolError`. One task at a time; after a
        cancellation the channel is unusable.
        """
        self._taken = 0
        try:
            frame = await read_frame(self._read)
        except ProtocolError as error:
            self.refuse(error)
            raise
        self._counters.traffic.frame("received", frame, self._taken)
        return frame

    async def _read(self, count: int) -> bytes:
        self._taken += count
        return await self._connection.read_exactly(count)

    async def send(self, frame: Frame) -> None:
        """Queue the frame whole, then wait until the queue is short.

        Raises :class:`ConnectionLostError`, and ``ValueError`` for a frame over the limit.
        """
        encoded = encode_frame(frame)
        self._connection.write(encoded)
        self._counters.traffic.frame("sent", frame, len(encoded))
        await self._connection.drain()

    def refuse(self, error: ProtocolError) -> None:
        """Count a breach of the protocol by the peer once, and close."""
        if not self._refused:
            self._refused = True
            self._counters.refuse("frame-malformed", peer=str(self.address), reason=str(error))
        self.close()

    def close(self) -> None:
        self._connection.close()


async def shake(
    transport: Transport,
    address: Address,
    role: Role,
    expected: Expected,
    *,
    identity: Identity,
    clock: Clock,
    counters: Counters,
    timeout_s: float,
) -> FrameChannel:
    """Connect and shake hands within ``timeout_s``; both sides check that the ``expected`` node is there.

    Raises :class:`ConnectionLostError` (also where another node is there), :class:`ProtocolError`, and :class:`SbonError` with
    the code of the peer's refusal.
    """
    channel: FrameChannel | None = None
    hello = Hello(
        version=VERSION,
        oldest_version=OLDEST_VERSION,
        cluster=identity.cluster,
        node=identity.node,
        role=role,
        capabilities=CAPABILITIES,
        instance=identity.instance,
        expected_node=expected.node,
        expected_instance=expected.instance,
    )
    try:
        async with clock.timeout(timeout_s):
            channel = FrameChannel(await transport.connect(address, timeout_s=timeout_s), counters)
            await channel.send(hello)
            answer = await channel.receive()
        if isinstance(answer, Refused):
            if answer.code == WRONG_NODE:
                raise _wrong_node(counters, address, answer.reason)
            raise SbonError(answer.code, answer.reason, where=str(address))
        if not isinstance(answer, Welcome) or not OLDEST_VERSION <= answer.version <= VERSION:
            error = ProtocolError("unexpected", f"{type(answer).__name__} in answer to a hello")
            channel.refuse(error)
            raise error
        if mismatch := expected.mismatch(answer.node, answer.instance):
            raise _wrong_node(counters, address, mismatch)
    except BaseException as error:
        if channel is not None:
            channel.close()
        if isinstance(error, TimeoutError):
            raise ConnectionLostError(f"{address} does not answer within {timeout_s:g} s") from error
        raise
    channel.peer = answer
    return channel


def _wrong_node(counters: Counters, address: Address, reason: str) -> ConnectionLostError:
    """Return the error of a connection that has reached another node than the expected one."""
    counters.refuse(WRONG_NODE, peer=str(address), reason=reason)
    return ConnectionLostError(f"{address}: {reason}")
