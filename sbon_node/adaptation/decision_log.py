"""The newest decisions about the place of an operator, as its host and the leader of its query remember them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from sbon_node.base.events import MoveDecided
from sbon_protocol.api.adaptation import STAYS, MoveDecision
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.states import move_states


class DecisionLog:
    """At most ``most`` decisions about an operator, the oldest first."""

    def __init__(self, most: int) -> None:
        self._kept: deque[MoveDecision] = deque(maxlen=most)

    def all(self) -> tuple[MoveDecision, ...]:
        return tuple(self._kept)

    def enter(self, made: MoveDecision) -> bool:
        """Remember a decision; return whether it is new: equal ones in a row are one."""
        last = self._kept[-1] if self._kept else None
        if last is not None and (last.verdict, last.code, last.target) == (STAYS, made.code, made.target):
            self._kept[-1] = replace(made, times=last.times + 1)
            return False
        self._kept.append(made)
        return True

    def failed(self, error: Exception) -> None:
        """Keep with the newest decision why its move was given up."""
        outcome = f"{move_states.GIVEN_UP}: {error}"[:MAX_REASON]
        self._kept[-1] = replace(self._kept[-1], outcome=outcome)


def event_of(query: str, made: MoveDecision) -> Callable[..., MoveDecided]:
    """Return what makes the event of a decision; ``query`` is the name of its query."""
    return partial(
        MoveDecided,
        query=query,
        operator=made.operator,
        verdict=made.verdict,
        code=made.code,
        reason=made.reason,
        target=made.target,
        usage=made.usage,
        usage_there=made.usage_there,
        cost=made.cost,
        probes=made.probes,
    )
