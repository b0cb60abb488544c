"""Frames of a followed query as Arrow tables: what the API's JSON says, typed again."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sbon_node.connectors.columns import Convert, value_converter
from sbon_node.connectors.delivered import Rows
from sbon_node.errors import SbonError
from sbon_node.query.schema import to_arrow


class Tables:
    """Makes tables of a query's frames; ``columns`` is the ``schema`` of its plan."""

    def __init__(self, columns: Any) -> None:
        self.schema: pa.Schema = to_arrow(columns)
        self._converters = [_converter(field.type) for field in self.schema]

    def of(self, frame: Rows) -> pa.Table:
        """Raises :class:`SbonError` ``bad-answer`` where the frame is not of the schema."""
        try:
            if frame.columns != tuple(self.schema.names):
                raise ValueError(f"columns {', '.join(frame.columns)}")
            columns: Sequence[Any] = list(zip(*frame.rows, strict=True)) or [()] * len(self._converters)
            arrays = [convert(list(values)) for convert, values in zip(self._converters, columns, strict=True)]
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise SbonError("bad-answer", f"frame {frame.number} is not what was planned: {error}", where=frame.stream) from error
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def empty(self) -> pa.Table:
        return self.schema.empty_table()


def _converter(kind: pa.DataType) -> Convert:
    if pa.types.is_floating(kind):
        return lambda values: pa.array([None if value is None else float(value) for value in values], kind)
    if pa.types.is_binary(kind):
        return lambda values: pa.array([None if value is None else base64.b64decode(value) for value in values], kind)
    return value_converter(kind, "")
