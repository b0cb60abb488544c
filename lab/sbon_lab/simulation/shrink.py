"""Shrink a failing schedule to the fewest faults that still fail.

Faults are left out in ever smaller groups (delta debugging: Zeller and Hildebrandt 2002), until each of the others is needed.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

MOST_RUNS = 200


def shrink(parts: Sequence[T], fails: Callable[[Sequence[T]], bool], *, most_runs: int = MOST_RUNS) -> tuple[T, ...]:
    """Return the fewest of ``parts`` with which ``fails`` still holds, after at most so many calls of it."""
    left, size, runs = tuple(parts), len(parts), 0
    while size:
        at = 0
        while at < len(left) and runs < most_runs:
            fewer = left[:at] + left[at + size :]
            runs += 1
            if fails(fewer):
                left = fewer
            else:
                at += size
        size = min(size // 2, len(left)) if size > 1 else 0
    return left
