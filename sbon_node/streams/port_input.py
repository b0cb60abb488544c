"""The inputs of an operator's port, and the role of a port that follows another host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sbon_node.streams.links.link import Expect, Locate, OwnTime, Search, anyone
from sbon_node.streams.outbox.ledger import Tail


class PortInput(msgspec.Struct, frozen=True, kw_only=True):
    """One input of an operator; ``start_after`` applies while no batch of the operator is visible.

    The input's watermark, less ``lag_ms``, may be at most ``ahead_ms`` beyond the least of the other inputs; without
    ``ahead_ms`` there is no limit. A ``whole`` input begins with frame 1, or fails. Frames held back are spilled to ``spill_to``,
    where given, and otherwise stay in the link's credit. ``columns`` are names for the columns of its frames, in their order.
    """

    stream: str
    locate: Locate
    expect: Expect = anyone
    search: Search | None = None
    own_time: OwnTime = int
    start_after: int = 0
    epoch: int = 0
    lineage: int = 0
    learn: Callable[[int], None] | None = None
    lag_ms: int = 0
    ahead_ms: int | None = None
    whole: bool = False
    spill_to: Path | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Following:
    """The role of a port whose operator runs at another host: it reads under a ``name`` of its own, and its output is discarded.

    ``base`` is the state of the host's stream after the batch whose checkpoint was copied. Until :meth:`NodePort.limit` says
    more, nothing beyond that batch is offered.
    """

    name: str
    base: Tail
