"""How far an input may run ahead of its siblings before it is held back (docs/design.md, section 7).

At least by what the siblings are behind for reasons of their own: the delays of their sources, the windows and the widths of
joins they have passed, the lags of their event times. Less would hold back what a sibling of the same origin waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sbon_node.query.event_time import bounds
from sbon_node.query.logical import Aggregate, Join, Relation, Select, Union


@dataclass(frozen=True, slots=True)
class Path:
    """What a stream has come through: all streams it is made of, its own included, and how far behind the newest event time of
    its sources its own may be, in milliseconds."""

    streams: frozenset[str]
    behind_ms: int

    @staticmethod
    def of_source(stream: str, delay_ms: int) -> Path:
        return Path(frozenset({stream}), delay_ms)

    @staticmethod
    def through(operator: str, inputs: Sequence[Path], relation: Relation) -> Path:
        """The output of an operator that computes ``relation`` of its inputs."""
        behind_ms = max(one.behind_ms for one in inputs) + width_ms(relation)
        return Path(frozenset({operator}).union(*(one.streams for one in inputs)), behind_ms)

    def less(self, lag_ms: int) -> Path:
        """As seen by a column that follows with that lag."""
        return replace(self, behind_ms=self.behind_ms + lag_ms)


def ahead_ms(inputs: Sequence[Path], number: int, slack_ms: int) -> int | None:
    """How far one input of an operator may be ahead of the others; None where there are none."""
    siblings = [one.behind_ms for position, one in enumerate(inputs) if position != number]
    return max(siblings) + slack_ms if siblings else None


def shares(inputs: Sequence[Path], number: int) -> bool:
    """Whether the others come of some stream that this one comes of: to hold it back may then starve them."""
    own = inputs[number].streams
    return any(own & one.streams for position, one in enumerate(inputs) if position != number)


def width_ms(relation: Relation) -> int:
    """How long a row may stay in the state of an operator: its windows and the bounds of its joins, one above the other."""
    match relation:
        case Select(child):
            return width_ms(child)
        case Aggregate(child, window):
            return width_ms(child) + (window.size_ms if window is not None else 0)
        case Join(_, left, right):
            closed = [bound for bound in bounds(relation) if bound.closed]
            own = min((max(bound.left_lag_ms, bound.right_lag_ms) for bound in closed), default=0)
            return max(width_ms(left), width_ms(right)) + own
        case Union(children):
            return max(width_ms(child) for child in children)
        case _:
            return 0
