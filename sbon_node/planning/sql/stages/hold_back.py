"""Limits on how far an input may run ahead of its siblings (docs/design.md, section 7).

The limit is at least the siblings' inherent delay: the delays of their sources, the windows and join widths on their path, and
the lags of their event times. A lower limit would hold back rows for which a sibling with the same origin waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sbon_node.planning.sql.relations.logical import Aggregate, Join, Relation, Select, Union
from sbon_node.planning.sql.rewrite.event_time import bounds


@dataclass(frozen=True, slots=True)
class Path:
    """Streams on the path of a stream, itself included, and its delay.

    The delay is how far its event time may be behind its sources' newest event time, in milliseconds.
    """

    streams: frozenset[str]
    behind_ms: int

    @staticmethod
    def of_source(stream: str, delay_ms: int) -> Path:
        return Path(frozenset({stream}), delay_ms)

    @staticmethod
    def through(operator: str, inputs: Sequence[Path], relation: Relation) -> Path:
        """Return the path of the output of an operator that computes ``relation`` of its inputs."""
        behind_ms = max(path.behind_ms for path in inputs) + width_ms(relation)
        return Path(frozenset({operator}).union(*(path.streams for path in inputs)), behind_ms)

    def less(self, lag_ms: int) -> Path:
        """Return the path for a column that follows with that lag."""
        return replace(self, behind_ms=self.behind_ms + lag_ms)


def ahead_ms(inputs: Sequence[Path], number: int, slack_ms: int) -> int | None:
    """Return how far an input may be ahead of the operator's other inputs; None without others."""
    siblings = [path.behind_ms for position, path in enumerate(inputs) if position != number]
    return max(siblings) + slack_ms if siblings else None


def shares(inputs: Sequence[Path], number: int) -> bool:
    """Return whether another input shares a stream with this input. Holding this input back may then starve the other."""
    own = inputs[number].streams
    return any(own & path.streams for position, path in enumerate(inputs) if position != number)


def width_ms(relation: Relation) -> int:
    """Return how long a row may stay in an operator's state. It is the sum over its nested windows and join bounds."""
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
