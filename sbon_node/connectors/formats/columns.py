"""Conversion of texts and Python values to typed columns, with misfits separated.

A value converts the same whatever its neighbours are.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sbon_node.connectors.formats.numbers import cast_json_numbers, cast_numbers, is_number, json_number
from sbon_node.connectors.formats.times import EPOCHS, time_reader
from sbon_node.model.schema import type_of

Convert = Callable[[Any], Any]
"""Converts an array to an array of equal length.

Raises one of :data:`MISFIT` if any value does not fit.
"""

MISFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)


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


def fitting_rows(
    schema: pa.Schema, converters: Sequence[Convert], columns: Sequence[Any], rows: int, shown: Callable[[Any], str]
) -> tuple[list[Any], npt.NDArray[np.int64], dict[int, str]]:
    """Convert the columns of so many ``rows``. Returns their arrays, the numbers of the rows that fit, and why others do not.

    ``columns`` are arrays or lists; ``shown`` writes a value that does not fit.
    """
    arrays: list[Any] = []
    kept, bad = np.arange(rows), dict[int, str]()
    for field, convert, values in zip(schema, converters, columns, strict=True):
        if len(kept) < rows:
            values = [values[i] for i in kept] if isinstance(values, list) else values.take(pa.array(kept))
        array, misfits = fitting(values, convert)
        if misfits:
            bad |= {int(kept[i]): f"{field.name} is no {type_of(field.type)}: {shown(values[i])}" for i in misfits}
            rest = np.delete(np.arange(len(kept)), misfits)
            kept, arrays = kept[rest], [earlier.take(pa.array(rest)) for earlier in arrays]
        arrays.append(array)
    return arrays, kept, bad


def supports_text(kind: pa.DataType) -> bool:
    """Return whether a text format can hold such a column."""
    types = pa.types
    scalar = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    return bool(scalar or types.is_temporal(kind) or types.is_string(kind) or types.is_binary(kind))


def text_converter(kind: pa.DataType, timestamp_format: str) -> Convert:
    """Return a converter from arrays of bytes. Only in text and binary columns do empty values and outer spaces count."""
    if pa.types.is_binary(kind):
        return lambda texts: texts.cast(kind)
    if pa.types.is_string(kind):
        return lambda texts: texts.cast(pa.string()).cast(kind)
    typed: Convert = lambda texts: texts.cast(kind)  # noqa: E731
    if pa.types.is_timestamp(kind):
        read = time_reader(timestamp_format)
        typed = lambda texts: read(texts).cast(kind)  # noqa: E731
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


def _text(value: Any, timestamp_format: str) -> bytes | None:
    if timestamp_format in EPOCHS and (number := json_number(value)) is not None:
        return number.encode()
    if value is not None and not isinstance(value, str):
        raise TypeError("not a text")
    return None if value is None else value.encode()
