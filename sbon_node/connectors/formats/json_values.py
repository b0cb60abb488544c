"""JSON values of frames, including NaN and times outside the years 1 to 9999. Python or JSON cannot represent those."""

import math
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Maps the strings that stand for numbers JSON lacks to those numbers."""

_LONG_YEAR = re.compile(r"\d{5,}-")


def values_of(column: Any) -> list[Any]:
    """Return a column's values.

    A time outside the years 1 to 9999 becomes a text in ISO 8601, in the form of all printed times: ``+10000-01-01T00:00:00Z``.
    """
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        values = [_value(value) for value in column]
    return values


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        text = str(scalar.cast(pa.string()).as_py()).replace(" ", "T").replace(".000000Z", "Z")
        return f"+{text}" if _LONG_YEAR.match(text) else text


def speakable(value: Any) -> Any:
    """Replace floats that JSON lacks by strings, at any depth."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list | tuple):
        return [speakable(v) for v in value]
    if isinstance(value, dict):
        return {str(k): speakable(v) for k, v in value.items()}
    return value


def objects_of(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield each row as a JSON object."""
    columns = [values_of(column) for column in rows.columns]
    for row in zip(*columns, strict=True):
        yield dict(zip(rows.column_names, map(speakable, row), strict=True))
