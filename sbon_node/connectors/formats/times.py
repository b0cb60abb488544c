"""Texts of times: ISO 8601, patterns of strptime, and seconds or milliseconds since 1970. Times without a zone are in UTC.

- ISO 8601: ``2026-03-02``, or with a time of day after ``T``, ``t`` or a space: ``09``, ``09:00``, ``09:00:00`` or
  ``09:00:00.5`` with any number of digits, and after that a zone or none: ``Z``, ``z``, ``+01``, ``+0100`` or ``+01:00``. All
  times of RFC 3339, section 5.6, are among them, except leap seconds.
- A pattern reads what Python's ``datetime.strptime`` reads. ``%T``, ``%R``, ``%F``, ``%D``, ``%e``, ``%h``, ``%n`` and ``%t`` are
  short for Python's directives, as in C.
- ``epoch_s`` and ``epoch_ms``: a number as in :mod:`sbon_node.connectors.formats.numbers`.

Digits after the microsecond are cut, so that a time is never later than its text. Dates that are not in the calendar are refused.
"""

import decimal
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sbon_node.connectors.formats.numbers import exact_number
from sbon_protocol.errors import SbonError

EPOCHS = {"epoch_s": 6, "epoch_ms": 3}
"""Decimal places of these numbers that are whole microseconds."""
_MICROS = pa.timestamp("us", "UTC")
_ZONED = r"[Tt ]\d.*(?:[Zz]|[+-]\d{2}(?::?\d{2})?)$"
_LONG_SECOND = r"^([^.]{19}\.\d{6})\d+"
_SHORT = {"T": "%H:%M:%S", "R": "%H:%M", "F": "%Y-%m-%d", "D": "%m/%d/%y", "e": "%d", "h": "%b", "n": " ", "t": " ", "%": "%%"}
_DIRECTIVES = frozenset("aAwdbBmyYHIpMSfzjUWcxXGuV%")
"""Those of Python's strptime without %Z, which reads the zone's name and ignores it."""
_FIELDS = {directive: rf"(?P<{directive}>\d{{2}})" for directive in "mdHMS"}
_FIELDS |= {"Y": r"(?P<Y>[1-9]\d{3})", "f": r"(?P<f>\d{1,6})", "z": r"(?P<z>[+-]\d{4}|Z)"}
"""Directives in the form in which they are written; strptime reads other forms of them as well."""
_SAMPLE = datetime(2024, 3, 1, 13, 14, 15, 123456, UTC)

Read = Callable[[Any], Any]
"""Converts an array of texts to timestamps in UTC; raises as a :data:`sbon_node.connectors.formats.columns.Convert`."""


def time_reader(timestamp_format: str) -> Read:
    """Return the reader of a format that :func:`check_timestamp_format` accepts."""
    if timestamp_format in EPOCHS:
        return lambda texts: _epoch(texts, EPOCHS[timestamp_format])
    return _by_pattern(in_python(timestamp_format)) if timestamp_format else _iso


def check_timestamp_format(timestamp_format: str) -> None:
    """Raise ``bad-option`` for a pattern that cannot parse any time."""
    if not timestamp_format or timestamp_format in EPOCHS:
        return
    where = "options.timestamp_format"
    if timestamp_format.startswith("epoch_"):
        raise SbonError("bad-option", "only epoch_s and epoch_ms are known", where=where)
    if "%" not in timestamp_format:
        message, hint = "neither a pattern as of strptime nor epoch_s or epoch_ms", "for instance %d/%m/%Y %H:%M"
        raise SbonError("bad-option", message, where=where, hint=hint)
    pattern = in_python(timestamp_format)
    unknown = [directive for directive in re.findall(r"%(.?)", pattern, re.DOTALL) if directive not in _DIRECTIVES]
    if unknown:
        message = f"strptime has no directive %{unknown[0]}" if unknown[0] != "Z" else "%Z would ignore the zone that it reads"
        hints = {"Z": "write %z for +0100 or Z, and a zone's name as it is if it means UTC", "s": "write epoch_s"}
        hint = hints.get(unknown[0], "docs.python.org/3/library/datetime.html#format-codes lists them")
        raise SbonError("bad-option", message, where=where, hint=hint)
    try:
        datetime.strptime(_SAMPLE.strftime(pattern), pattern)
    except (ValueError, re.error) as error:
        message = f"{timestamp_format} does not read the times that it writes: {error}"
        raise SbonError("bad-option", message, where=where) from error


def in_python(pattern: str) -> str:
    """Replace what is short in C's strptime by Python's directives."""
    return re.sub(r"%(.)", lambda match: _SHORT.get(match[1], match[0]), pattern, flags=re.DOTALL)


def _iso(texts: Any) -> Any:
    try:
        return texts.cast(pa.timestamp("us")).cast(_MICROS)
    except pa.ArrowException:
        pass
    try:
        return _zoned_or_plain(texts)
    except pa.ArrowException:
        return _zoned_or_plain(pc.replace_substring_regex(pc.utf8_upper(texts), _LONG_SECOND, r"\1"))


def _zoned_or_plain(texts: Any) -> Any:
    zoned = pc.fill_null(pc.match_substring_regex(texts, _ZONED), False)
    count = zoned.true_count
    if count == len(texts):
        return texts.cast(_MICROS)
    plain = pa.timestamp("us")
    if count == 0:
        return texts.cast(plain).cast(_MICROS)
    missing = pa.scalar(None, pa.string())
    rest = pc.if_else(zoned, missing, texts).cast(plain).cast(_MICROS)
    return pc.coalesce(pc.if_else(zoned, texts, missing).cast(_MICROS), rest)


def _epoch(texts: Any, places: int) -> Any:
    try:
        numbers = texts.cast(pa.decimal128(19, places))
        micros = pc.multiply(numbers, pa.scalar(decimal.Decimal(10**places), pa.decimal128(places + 1, 0)))
        return micros.cast(pa.int64()).cast(_MICROS)
    except pa.ArrowException:  # a number with more places, or none
        exact = [None if text is None else Fraction(exact_number(text)) for text in texts.to_pylist()]
        floors = [None if number is None else math.floor(number * 10**places) for number in exact]
        return pa.array(floors, pa.int64()).cast(_MICROS)


def _by_pattern(pattern: str) -> Read:
    rewritten = _as_iso(pattern)

    def read(texts: Any) -> Any:
        if rewritten is not None and not pc.match_substring_regex(texts, rewritten[0]).false_count:
            try:
                return _zoned_or_plain(pc.replace_substring_regex(texts, *rewritten))
            except pa.ArrowException:
                pass  # some date is not in the calendar
        return _by_python(texts, pattern)

    return read


def _as_iso(pattern: str) -> tuple[str, str] | None:
    """Return an expression of RE2 and its replacement that turn times into ISO 8601; None if a directive is not numeric.

    Arrow reads these much faster than Python, and refuses the same. Its own strptime makes 3 March of 31 February.
    """
    parts = re.split(r"%(.)", pattern, flags=re.DOTALL)
    literals, directives = parts[::2], parts[1::2]
    if not {"Y", "m", "d"} <= set(directives) <= set(_FIELDS) or any(c.isspace() for c in "".join(literals).replace(" ", "")):
        return None
    rest = "".join(_FIELDS[d] + re.escape(after) for d, after in zip(directives, literals[1:], strict=True))
    at = {directive: rf"\{number}" for number, directive in enumerate(directives, start=1)}
    second = at.get("S", "00") + (f".{at['f']}" if "f" in at else "")
    time = f"{at.get('H', '00')}:{at.get('M', '00')}:{second}{at.get('z', '')}"
    return f"^{re.escape(literals[0])}{rest}$", f"{at['Y']}-{at['m']}-{at['d']}T{time}"


def _by_python(texts: Any, pattern: str) -> Any:
    times = [None if t is None else datetime.strptime(t, pattern) for t in texts.to_pylist()]
    return pa.array([None if t is None else t if t.tzinfo else t.replace(tzinfo=UTC) for t in times], _MICROS)
