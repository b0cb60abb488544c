"""Texts of numbers, as in CSV, and numbers of JSON, which keep their text until the column's type is known.

A number is an optional sign, decimal digits with at most one point, and for other types than integers an optional exponent. It is
refused if the column's type cannot hold it, as an integer beyond the range or a decimal without place for all its digits. Only a
float may differ from the text: it is the nearest one (IEEE 754, 4.3.1), which is an infinity beyond its range.
"""

from __future__ import annotations

import decimal
from typing import Any

import msgspec
import pyarrow as pa

from sbon_node.connectors.formats.json_values import NOT_FINITE

_MAX_DIGITS = 40
"""Digits before the point of a number that is turned into an integer; no type has more."""


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def cast_numbers(texts: Any, kind: pa.DataType) -> Any:
    """Convert an array of texts. Raises ``pa.ArrowInvalid`` if any is no number of the type."""
    return texts.cast(kind)


def cast_json_numbers(values: list[Any], kind: pa.DataType) -> Any:
    """Convert values that were decoded with ``float_hook=msgspec.Raw``; other numbers than integers are their texts.

    A decimal may also be a string of its digits, and a float one of the strings that stand for numbers JSON lacks; this node
    writes such strings. Raises ``pa.ArrowException``, ``ValueError`` or ``TypeError``.
    """
    if pa.types.is_integer(kind):
        return pa.array([None if v is None else _whole(v) for v in values], kind)
    strings = None if pa.types.is_decimal(kind) else NOT_FINITE
    return cast_numbers(pa.array([None if v is None else _digits(v, strings) for v in values], pa.string()), kind)


def json_number(value: Any) -> str | None:
    """Return the text of a decoded number, None for other values."""
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _digits(value: Any, strings: Any) -> str:
    text = json_number(value)
    if text is None and isinstance(value, str) and (strings is None or value in strings):
        return value
    if text is None:
        raise TypeError("not a number")
    return text


def _whole(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = json_number(value)
    if text is None:
        raise TypeError("not a number")
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation as error:  # an exponent that no number has
        raise ValueError("not a number") from error
    # Bounded before it is written out: 1e999999 has a million digits.
    if number.adjusted() > _MAX_DIGITS or number != number.to_integral_value():
        raise ValueError("not a whole number")
    return int(number)
