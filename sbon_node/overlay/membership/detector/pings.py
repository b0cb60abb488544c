"""Awaited pings: they measure the latency to a member; the failure detector ignores them."""

import asyncio
from collections.abc import Callable

import msgspec

from sbon_node.base.clock import Clock
from sbon_node.overlay.membership.detector.instructions import Send
from sbon_node.overlay.membership.detector.swim import Swim
from sbon_protocol.messages import Ack, Gossip, Ping


class Pinged(msgspec.Struct, frozen=True, order=True):
    """A ping's answer; ``lagged`` if this process's timers were late meanwhile. The least round-trip time is most credible."""

    lagged: bool
    rtt_ms: float


class Pings:
    """Pings under way; ``send`` sends and stamps them, and the reader of datagrams calls :meth:`answered`."""

    def __init__(self, swim: Swim, clock: Clock, send: Callable[[Send], None]) -> None:
        self._swim, self._clock, self._send = swim, clock, send
        self._waiting: dict[int, asyncio.Future[Pinged]] = {}

    async def ping(self, name: str, timeout_s: float) -> Pinged | None:
        """Ping a member; None where no answer comes in time, or ``name`` is unknown."""
        begun = self._swim.measure(name)
        if begun is None:
            return None
        sequence, ping = begun
        answer: asyncio.Future[Pinged] = asyncio.get_running_loop().create_future()
        self._waiting[sequence] = answer
        try:
            self._send(ping)
            async with self._clock.timeout(timeout_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._waiting[sequence]
            self._swim.measured(sequence)

    def answered(self, sequence: int, pinged: Pinged) -> bool:
        """Return whether a caller waited for this ping."""
        waiting = self._waiting.get(sequence)
        if waiting is None:
            return False
        if not waiting.done():
            waiting.set_result(pinged)
        return True


MAX_STAMPS = 1024


def with_wall_clock(message: Gossip | None, own_name: str, wall_us: int) -> Gossip | None:
    """Return the message; a node's own answer to a ping states its wall clock."""
    if isinstance(message, Ack) and message.source == own_name:
        return msgspec.structs.replace(message, wall_us=wall_us)
    return message


class Stamps:
    """One node's send times by the pings' sequences."""

    def __init__(self) -> None:
        self._sent: dict[int, float] = {}

    def put(self, send: Send, stamp: float) -> None:
        """Record the send time."""
        if send.timed and isinstance(send.message, Ping):
            self._sent[send.message.sequence] = stamp
            while len(self._sent) > MAX_STAMPS:
                del self._sent[next(iter(self._sent))]

    def take(self, sequence: int) -> float | None:
        """Remove and return the send time of that ping."""
        return self._sent.pop(sequence, None)
