"""Counters of messages: accepted ones with their bytes; refused, dropped or broken ones, with log lines of a limited rate."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import structlog

from sbon_protocol import datagram
from sbon_protocol.messages import Frame, Gossip, Shared
from sbon_protocol.papers.ants import Ant

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
        flow = self._flows.setdefault((carrier, direction, kind), [0, 0])
        flow[0] += 1
        flow[1] += size


log = structlog.get_logger()

MAX_KINDS = 256
WARNINGS_IN_A_PERIOD, PERIOD_S = 5, 10.0
_MAX_FACT_CHARACTERS = 300


class Counters:
    """A node's counters; ``now`` returns monotonic seconds. ``traffic`` counts accepted messages."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.traffic = Traffic()
        self._counts: dict[str, int] = {}
        self._warned: dict[str, tuple[float, int]] = {}

    def count(self, kind: str, by: int = 1) -> None:
        """Count; kinds beyond the bound are counted together as ``other``."""
        if kind not in self._counts and len(self._counts) >= MAX_KINDS:
            kind = "other"
        self._counts[kind] = self._counts.get(kind, 0) + by

    def refuse(self, kind: str, **facts: Any) -> None:
        """Count, and log a warning within the kind's limit for the period. Facts from a peer are cut short."""
        if self.may_log(kind):
            log.warning(kind, total=self._counts[kind], **_cut(facts))

    def note(self, kind: str, **facts: Any) -> None:
        """Count an ordinary event, and log it at level info within the kind's limit for the period."""
        if self.may_log(kind):
            log.info(kind, total=self._counts[kind], **_cut(facts))

    def may_log(self, kind: str) -> bool:
        """Count; return whether this kind has lines left in this period."""
        self.count(kind)
        if kind not in self._counts:
            return False
        now = self._now()
        since, lines = self._warned.get(kind, (now, 0))
        if now - since > PERIOD_S:
            since, lines = now, 0
        self._warned[kind] = (since, lines + 1)
        return lines < WARNINGS_IN_A_PERIOD

    def snapshot(self) -> dict[str, int]:
        return dict(sorted(self._counts.items()))


def _cut(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: fact[:_MAX_FACT_CHARACTERS] if isinstance(fact, str) else fact for name, fact in facts.items()}
