"""Rows of frames as Arrow tables: the types behind the API's JSON. Pure."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from sbon_protocol.api.columns import arrow_type
from sbon_protocol.errors import SbonError

from .model import Column, Rows


class Tables:
    """Converter of a query's frames to tables; ``columns`` is the ``schema`` of its plan."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.schema: pa.Schema = pa.schema([pa.field(column.name, arrow_type(column)) for column in columns])
        self._converters = [_converter(field.type) for field in self.schema]

    def of(self, frame: Rows) -> pa.Table:
        """Return the frame's table; raise :class:`SbonError` ``bad-answer`` if the frame does not have the schema."""
        try:
            if frame.columns != tuple(self.schema.names):
                raise ValueError(f"columns {', '.join(frame.columns)}")
            columns: Sequence[Any] = list(zip(*frame.rows, strict=True)) or [()] * len(self._converters)
            arrays = [convert(list(values)) for convert, values in zip(self._converters, columns, strict=True)]
        except (pa.ArrowException, ArithmeticError, ValueError, TypeError) as error:
            raise SbonError("bad-answer", f"frame {frame.number} is not what was planned: {error}", where=frame.stream) from error
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def empty(self) -> pa.Table:
        return self.schema.empty_table()


def _converter(kind: pa.DataType) -> Callable[[list[Any]], Any]:
    """Return a function from lists of JSON values to an array; NULL stays NULL."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return lambda values: pa.array(values, pa.string()).cast(kind)
    converters: dict[bool, Callable[[Any], Any]] = {
        pa.types.is_floating(kind): float,
        pa.types.is_binary(kind): base64.b64decode,
        pa.types.is_decimal(kind): Decimal,
    }
    make = converters.get(True)
    if make is None:
        return lambda values: pa.array(values, kind)
    return lambda values: pa.array([None if value is None else make(value) for value in values], kind)
