"""Adaptation of running queries: how a query wishes it, its operators' past moves, and decisions to move or to stay."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from sbon_protocol.api.bounded import MAX_REASON, Counted, PerSecond, WallMs
from sbon_protocol.api.shown import Shown

Adapt = Literal["off", "local", "ants", "full"]
"""Adaptation of a running query: none, by the hosts of its operators, by ants, or by these hosts and by placing it again."""

OFF: Final = "off"
LOCAL: Final = "local"
ANTS: Final = "ants"
FULL: Final = "full"
BY_HOSTS: Final = frozenset({LOCAL, FULL})
"""Kinds in which the hosts of operators decide about their moves."""

Verdict = Literal["moves", "stays"]
MOVES: Final = "moves"
STAYS: Final = "stays"

MAX_PAST_MOVES = 16
"""Most moves of an operator that its hosts remember."""


def adapted(adapt: Adapt, strategy: str) -> Adapt:
    """Return how a query that the strategy has placed is adapted: ants seek least latency, and hosts would seek least usage."""
    return ANTS if adapt == FULL and strategy == ANTS else adapt


class PastMove(Shown, frozen=True, kw_only=True):
    """A move that an operator has made: the host ``node`` that it left, when by that node's clock, and why."""

    node: Annotated[str, Meta(min_length=1, max_length=63)]
    at_ms: WallMs
    reason: Annotated[str, Meta(max_length=MAX_REASON)] = ""


class MoveDecision(Shown, frozen=True, kw_only=True):
    """A decision about an operator's place; equal ones in a row are one decision, made ``times`` times.

    Its host ``node`` has made it if ``leader`` is empty, or else the node that leads its query.

    Usage is in bytes in transit (rate x one-way latency): ``usage`` of the operator's links as they are, ``usage_there`` with the
    operator at ``target``. ``cost`` is that of moving, in bytes in transit x seconds. ``virtual_moved_ms`` is how far its virtual
    place has moved since the last look for a better node. ``probes`` counts nodes asked and pairs measured. ``outcome`` is the
    step that a move has reached, with the reason if it was given up.
    """

    operator: str
    node: str
    at_ms: WallMs
    verdict: Verdict
    code: str
    reason: Annotated[str, Meta(max_length=MAX_REASON)]
    target: str = ""
    usage: PerSecond | None = None
    usage_there: PerSecond | None = None
    cost: PerSecond | None = None
    virtual_moved_ms: Annotated[float, Meta(ge=0)] | None = None
    probes: Counted = 0
    times: Annotated[int, Meta(ge=1, le=2**62)] = 1
    outcome: Annotated[str, Meta(max_length=MAX_REASON)] = ""
    leader: Annotated[str, Meta(max_length=63)] = ""

    @property
    def saving(self) -> float | None:
        """Return the usage that the move saves; None if no better node was looked for."""
        return None if self.usage is None or self.usage_there is None else self.usage - self.usage_there
