"""Rows of a query beside the right ones: how many are wrong, lost or doubled. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sbon_lab.suite.reference import Row, differences, plain

DIGITS = 6
"""Significant digits by which rows that differ are counted."""


class Verdict(NamedTuple):
    """``doubled`` rows are right and have come too often; ``wrong`` ones are none of the expected."""

    wrong: int = 0
    lost: int = 0
    doubled: int = 0


def judged(rows: Sequence[Row], expected: Sequence[Row]) -> Verdict:
    """Compare two multisets of rows; numbers may differ by a billionth of their value."""
    if not differences(rows, expected, most=1):
        return Verdict()
    got, due = _counted(rows), _counted(expected)
    more, lost = got - due, sum((due - got).values())
    doubled = sum(count for row, count in more.items() if row in due)
    wrong = sum(more.values()) - doubled
    return Verdict(wrong if wrong or lost or doubled else 1, lost, doubled)


def _counted(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(f"{value:.{DIGITS}g}" if isinstance(value, float) else value for value in plain(row)) for row in rows)
