"""Values of sampled columns, and their conversions for comparisons.

Timestamps and intervals are microseconds, dates are days since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sbon_node.model.samples import Value

Kind = Literal["number", "text", "boolean", "timestamp", "date", "interval", "null"]

DAY_US = 86_400_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: dict[str, Kind] = {"boolean": "boolean", "string": "text", "date": "date", "timestamp": "timestamp"}
_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})


@dataclass(frozen=True, slots=True)
class Values:
    """A column of sampled rows; None is NULL."""

    kind: Kind
    values: Sequence[Value]

    def chosen(self, rows: Sequence[int]) -> Values:
        return Values(self.kind, [self.values[row] for row in rows])


def kind_of(type_: str) -> Kind | None:
    """Return the kind of a column's type; None for types without sampled values."""
    bare = type_.partition("(")[0]
    return "number" if bare in _NUMBERS else _KINDS.get(bare)


def each(function: Callable[..., Any], *columns: Values) -> list[Any]:
    """Return the function of each row; NULL if a value is NULL, or if the function fails for it."""
    results: list[Any] = []
    for row in zip(*(column.values for column in columns), strict=True):
        if None in row:
            results.append(None)
            continue
        try:
            results.append(function(*row))
        except (ValueError, ArithmeticError, TypeError):
            results.append(None)
    return results


def converted(column: Values, kind: Kind) -> Values | None:
    """Return the column as another kind, values that cannot be converted as NULL; None if Spark has no such conversion here."""
    if column.kind == kind:
        return column
    if column.kind == "null":
        return Values(kind, column.values)
    conversion = _CONVERSIONS.get((column.kind, kind))
    return Values(kind, each(conversion, column)) if conversion is not None else None


def alike(left: Values, right: Values) -> tuple[Values, Values] | None:
    """Return two columns as one kind in which they compare; None if they do not."""
    if left.kind == right.kind:
        return left, right
    for kind in ("timestamp", "date", "number", "text"):
        if kind in (left.kind, right.kind):
            one, two = converted(left, kind), converted(right, kind)
            return (one, two) if one is not None and two is not None else None
    return None


def as_datetime(value: int) -> datetime:
    """Return a timestamp as a datetime, for its parts. Raises ``OverflowError`` beyond the years that Python knows."""
    return datetime.fromtimestamp(value // 1_000_000, UTC).replace(microsecond=value % 1_000_000)


def _timestamp_of(text: str) -> int:
    read = datetime.fromisoformat(text.strip())
    since = (read if read.tzinfo else read.replace(tzinfo=UTC)) - EPOCH
    return since.days * DAY_US + since.seconds * 1_000_000 + since.microseconds


_CONVERSIONS: dict[tuple[Kind, Kind], Callable[..., Any]] = {
    ("text", "timestamp"): _timestamp_of,
    ("text", "date"): lambda text: _timestamp_of(text) // DAY_US,
    ("text", "number"): float,
    ("number", "text"): str,
    ("date", "timestamp"): lambda days: days * DAY_US,
    ("timestamp", "date"): lambda micros: micros // DAY_US,
    ("boolean", "number"): int,
    ("number", "boolean"): bool,
}
