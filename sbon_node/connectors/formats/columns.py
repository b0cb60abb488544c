"""Conversion of texts and Python values to typed columns, with misfits separated.

A value converts the same whatever its neighbours are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sbon_node.connectors.formats.numbers import cast_json_numbers, cast_numbers, is_number, json_number
from sbon_node.errors import SbonError

Convert = Callable[[Any], Any]
"""Converts an array to an array of equal length.

Raises one of :data:`MISFIT` if any value does not fit.
"""

MISFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)

_ZONED = r"[T ]\d.*(?:[Zz]|[+-]\d{2}(?::?\d{2})?)$"
_MICROS = pa.timestamp("us", "UTC")


def fitting(values: Any, convert: Convert) -> tuple[Any, list[int]]:
    """Convert all fitting values; return them and the indices of the misfits. Misfits are isolated by halving."""
    chunks: list[Any] = []
    misfits: list[int] = []
    spans = [(0, len(values))]
    while spans:
        start, count = spans.pop()
        try:
            chunks.append(convert(values[start : start + count]))
        except MISFIT:
            if count == 1:
                misfits.append(start)
                continue
            half = count // 2
            spans += [(start + half, count - half), (start, half)]
    if not chunks:
        return convert(values[0:0]), misfits
    return (chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)), misfits


def supports_text(kind: pa.DataType) -> bool:
    """Return whether a text format can hold such a column."""
    types = pa.types
    scalar = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    return bool(scalar or types.is_temporal(kind) or types.is_string(kind) or types.is_binary(kind))


def text_converter(kind: pa.DataType, timestamp_format: str) -> Convert:
    """Return a converter from arrays of bytes.

    An empty value is NULL except in text and binary columns. Space around values counts only there.
    """
    if pa.types.is_binary(kind):
        return lambda texts: texts.cast(kind)
    if pa.types.is_string(kind):
        return lambda texts: texts.cast(pa.string()).cast(kind)
    typed: Convert = lambda texts: texts.cast(kind)  # noqa: E731
    if pa.types.is_timestamp(kind):
        typed = _times(kind, timestamp_format)
    elif is_number(kind):
        typed = lambda texts: cast_numbers(texts, kind)  # noqa: E731

    def convert(raw: Any) -> Any:
        texts = raw.cast(pa.string())
        try:
            return typed(texts)
        except MISFIT:
            trimmed = pc.utf8_trim_whitespace(texts)
            return typed(pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed))

    return convert


def value_converter(kind: pa.DataType, timestamp_format: str) -> Convert:
    """Return a converter from lists of JSON values, decoded with ``float_hook=msgspec.Raw``."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        convert = text_converter(kind, timestamp_format)
        return lambda values: convert(pa.array([_text(v, timestamp_format) for v in values], pa.binary()))
    if is_number(kind):
        return lambda values: cast_json_numbers(values, kind)
    return lambda values: pa.array(values, kind)


def check_timestamp_format(timestamp_format: str) -> None:
    """Raise ``bad-option`` for a pattern that cannot parse any time."""
    if timestamp_format and not timestamp_format.startswith("epoch_") and "%" not in timestamp_format:
        raise SbonError(
            "bad-option",
            "neither a pattern as of strptime nor epoch_s or epoch_ms",
            where="options.timestamp_format",
            hint="for instance %d/%m/%Y %H:%M",
        )
    if timestamp_format.startswith("epoch_") and timestamp_format not in ("epoch_s", "epoch_ms"):
        raise SbonError("bad-option", "only epoch_s and epoch_ms are known", where="options.timestamp_format")


def _text(value: Any, timestamp_format: str) -> bytes | None:
    if timestamp_format.startswith("epoch_") and (number := json_number(value)) is not None:
        return number.encode()
    if value is not None and not isinstance(value, str):
        raise TypeError("not a text")
    return None if value is None else value.encode()


def _times(kind: pa.DataType, timestamp_format: str) -> Convert:
    """Return a converter to timestamps in UTC. Times without a zone count as UTC."""
    read = _iso
    if timestamp_format in ("epoch_s", "epoch_ms"):
        factor = 1_000_000 if timestamp_format == "epoch_s" else 1_000
        read = lambda texts: pc.round(pc.multiply(texts.cast(pa.float64()), factor)).cast(pa.int64()).cast(_MICROS)  # noqa: E731
    elif "%f" in timestamp_format or "%z" in timestamp_format:
        read = lambda texts: _by_pattern(texts, timestamp_format)  # noqa: E731
    elif timestamp_format:
        read = lambda texts: pc.strptime(texts, timestamp_format, "us", error_is_null=False).cast(_MICROS)  # noqa: E731
    return lambda texts: read(texts).cast(kind)


def _iso(texts: Any) -> Any:
    plain = pa.timestamp("us")
    try:
        return texts.cast(plain).cast(_MICROS)
    except pa.ArrowException:
        return _zoned_or_plain(texts)


def _zoned_or_plain(texts: Any) -> Any:
    zoned = pc.fill_null(pc.match_substring_regex(texts, _ZONED), False)
    count = zoned.true_count
    if count == len(texts):
        return texts.cast(_MICROS)
    plain = pa.timestamp("us")
    if count == 0:
        return texts.cast(plain).cast(_MICROS)
    missing = pa.scalar(None, pa.string())
    return pc.coalesce(
        pc.if_else(zoned, texts, missing).cast(_MICROS), pc.if_else(zoned, missing, texts).cast(plain).cast(_MICROS)
    )


def _by_pattern(texts: Any, pattern: str) -> Any:
    """Parse times with Python, since Arrow supports neither %f nor %z."""
    times: Sequence[datetime | None] = [None if t is None else datetime.strptime(t, pattern) for t in texts.to_pylist()]
    return pa.array([None if t is None else t if t.tzinfo else t.replace(tzinfo=UTC) for t in times], _MICROS)
