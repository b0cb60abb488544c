"""Send times of measuring pings until their answers come; bounded."""

from __future__ import annotations

import msgspec

from sbon_node.overlay.membership.detector.instructions import Send
from sbon_protocol.messages import Ack, Gossip, Ping

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
