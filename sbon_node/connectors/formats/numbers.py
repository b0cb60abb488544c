"""Texts of numbers, as in CSV, and numbers of JSON, which keep their text until the column's type is known.

A number is an optional sign, decimal digits with at most one point, and an optional exponent, for a column of any type; for a
float also ``nan``, ``inf`` and ``infinity`` in any case, with a sign or without. A number is refused if the column's type cannot
hold it: an integer is whole and within the range, a decimal has place for all digits. Only a float may differ from the text: it
is the nearest one (IEEE 754, 4.3.1), which is an infinity beyond its range.
"""

import decimal
import re
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sbon_node.connectors.formats.json_values import NOT_FINITE

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MAX_DIGITS = 40
"""Digits before the point of a number, and zeros after it; no type has more."""
_MAX_TEXT = 400
"""Characters of a number."""


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def cast_numbers(texts: Any, kind: pa.DataType) -> Any:
    """Convert an array of texts. Raises ``pa.ArrowInvalid``, ``ValueError`` or ``OverflowError`` if any does not fit."""
    if pa.types.is_integer(kind):
        return _integers(texts, kind)
    if pa.types.is_decimal(kind):
        return _decimals(texts, kind)
    numbers = texts.cast(kind)
    if pa.types.is_floating(kind) and (missing := pc.is_nan(numbers)).true_count:
        words = pc.match_substring_regex(texts.filter(missing), r"(?i)^[+-]?nan$")
        if words.false_count:  # Arrow reads nan(1) too
            raise ValueError("not a number")
    return numbers


def _integers(texts: Any, kind: pa.DataType) -> Any:
    try:
        numbers = texts.cast(kind)
    except pa.ArrowException:
        return pa.array([None if t is None else whole_number(t) for t in texts.to_pylist()], kind)
    zeros = texts.filter(pc.starts_with(texts, "0"))
    if len(zeros) and pc.any(pc.match_substring(zeros, "x", ignore_case=True)).as_py():
        raise ValueError("not a decimal number")  # Arrow reads 0x1F as 31, for integers alone
    return numbers


def _decimals(texts: Any, kind: pa.DataType) -> Any:
    """Arrow computes with 128 bits and does not notice when they are too few, and refuses zeros with a large exponent: numbers
    that may be longer are made plain before."""
    unusual = pc.or_(pc.greater(pc.utf8_length(texts), 38 - kind.scale), pc.match_substring(texts, "e", ignore_case=True))
    if pc.any(unusual).as_py():
        written = zip(texts.to_pylist(), unusual.to_pylist(), strict=True)
        texts = pa.array([_plain(text, kind) if is_unusual else text for text, is_unusual in written], pa.string())
    return texts.cast(kind)


def _plain(text: str, kind: pa.DataType) -> str:
    """Return a number without exponent or zeros at its end. Raises ``ValueError`` if the type has too few digits for it."""
    exact = decimal.Context(prec=_MAX_TEXT)
    number = exact_number(text).normalize(exact)
    if -int(number.as_tuple().exponent) > kind.scale or number.scaleb(kind.scale, exact).copy_abs() >= 10**kind.precision:
        raise ValueError("a number of too many digits")
    return f"{number:f}"


def cast_decimals(values: Any, kind: pa.DataType) -> Any:
    """Convert decimals to those of another precision or scale. Raises ``pa.ArrowInvalid`` if one does not fit.

    Arrow's own cast multiplies in 128 bits, and gives another number where these are too few.
    """
    fitting = min(76, max(1, values.type.scale + kind.precision - kind.scale))
    return values.cast(pa.decimal256(fitting, values.type.scale)).cast(pa.decimal256(76, kind.scale)).cast(kind)


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
    return whole_number(text)


def whole_number(text: str) -> int:
    """Return the integer that the text of a number stands for; raise ``ValueError`` if it is no number, or not whole."""
    number = exact_number(text)
    if number != number.to_integral_value():
        raise ValueError("not a whole number")
    return int(number)


def exact_number(text: str) -> decimal.Decimal:
    """Return the exact value of a number's text; raise ``ValueError`` if it is none, or has more digits than any column."""
    if _NUMBER.fullmatch(text) is None or len(text) > _MAX_TEXT:
        raise ValueError("not a number")
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation as error:  # an exponent that no number has
        raise ValueError("not a number") from error
    if not number:
        return decimal.Decimal(0)
    # Bounded before it is written out: 1e999999 has a million digits.
    if abs(number.adjusted()) > _MAX_DIGITS:
        raise ValueError("a number of too many digits")
    return number
