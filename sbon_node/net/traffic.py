"""Messages and bytes sent and received since the process started, by the protocol's own kinds."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from sbon_protocol import datagram
from sbon_protocol.ants import Ant
from sbon_protocol.messages import Frame, Gossip, Shared

Carrier = Literal["datagram", "frame"]
Direction = Literal["sent", "received"]

RUMOURS = "rumours"
"""The kind of a datagram that carries rumours and no message."""
FOREIGN = "foreign"
"""The kind of a foreign datagram."""
_KNOWN = frozenset({RUMOURS, *(str(kind.__struct_config__.tag) for kind in (*get_args(Gossip), *get_args(Ant)))})


class Flow(NamedTuple):
    """Traffic of one kind in one direction; ``bytes`` count whole datagrams, and frames with their length."""

    messages: int
    bytes: int


class Traffic:
    """A node's traffic. Kinds are the protocol's, so that peers cannot create new ones; a shared frame has its message's."""

    def __init__(self) -> None:
        self._flows: dict[tuple[Carrier, Direction, str], list[int]] = {}

    def datagram(self, direction: Direction, payload: bytes) -> None:
        kind = datagram.kind_of(payload)
        self._count("datagram", direction, kind if kind in _KNOWN else FOREIGN, len(payload))

    def frame(self, direction: Direction, frame: Frame, size: int) -> None:
        inner = frame.message if isinstance(frame, Shared) else frame
        self._count("frame", direction, str(inner.__struct_config__.tag), size)

    def snapshot(self) -> dict[tuple[Carrier, Direction, str], Flow]:
        return {key: Flow(*flow) for key, flow in sorted(self._flows.items())}

    def _count(self, carrier: Carrier, direction: Direction, kind: str, size: int) -> None:
        flow = self._flows.get((carrier, direction, kind))
        if flow is None:
            flow = self._flows[carrier, direction, kind] = [0, 0]
        flow[0] += 1
        flow[1] += size
