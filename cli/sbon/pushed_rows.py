"""Rows of a program as NDJSON: mappings, or a table that hands out Arrow data (pandas, Polars, PyArrow, DuckDB)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import PurePath
from typing import Any, Protocol

import msgspec

from sbon_protocol.errors import SbonError

_ARROW = ("__arrow_c_stream__", "__arrow_c_array__")
"""Methods of tables and of single batches of rows in Arrow's protocol for Python (the PyCapsule interface)."""
_INDEX = re.compile(r"__index_level_\d+__\Z")
"""Columns that pandas makes of an index without a name."""
HINT = "give a list of dicts, a pandas or Polars DataFrame, or an Arrow table"


class Tabular(Protocol):
    """A table that hands out Arrow data, as those of pandas, Polars, PyArrow and DuckDB do."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def ndjson(rows: Any) -> bytes:
    """Return the rows as NDJSON. Raises ``bad-request`` for what is no table and no iterable of mappings, and names the row."""
    return b"".join(_lines(_mappings(rows)))


def table_of(rows: Any) -> Any | None:
    """Return the Arrow table of a table of any library, without the columns of an unnamed index; None for other rows."""
    if not any(hasattr(rows, method) for method in _ARROW):
        return None
    import pyarrow as pa

    try:
        table = pa.table(rows)
    except (pa.ArrowException, TypeError) as error:
        raise SbonError("bad-request", f"rows are no table: {error}", where="rows", hint=HINT) from error
    return table.drop_columns([name for name in table.column_names if _INDEX.match(name)])


def _mappings(rows: Any) -> Iterable[object]:
    if (table := table_of(rows)) is not None:
        return _of_arrow(table)
    is_one = isinstance(rows, Mapping | str | bytes | bytearray)
    if is_one or not isinstance(rows, Iterable):
        raise SbonError("bad-request", f"rows are no {type(rows).__name__}", where="rows", hint=HINT)
    return rows


def _of_arrow(table: Any) -> Iterable[dict[str, Any]]:
    """Return the rows of a table. Times of nanoseconds are cut to the microsecond before: streams have microseconds."""
    import pyarrow as pa

    columns = {name: _in_microseconds(table[name]) for name in table.column_names}
    mappings: list[dict[str, Any]] = pa.table(columns).to_pylist()
    for name in [field.name for field in table.schema if pa.types.is_floating(field.type)]:
        for row in mappings:
            if row[name] is not None and math.isnan(row[name]):
                row[name] = "NaN"  # NULL is another value in Arrow
    return mappings


def _in_microseconds(column: Any) -> Any:
    """Return a column of times of nanoseconds in microseconds. Arrow's cast would cut towards 1970, and times before be later."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_time64(column.type):
        return column.cast(pa.time64("us"), safe=False)
    if not pa.types.is_timestamp(column.type) or column.type.unit != "ns":
        return column
    nanoseconds = column.cast(pa.int64())
    towards_1970 = pc.divide(nanoseconds, 1000)
    later = pc.greater(pc.multiply(towards_1970, 1000), nanoseconds)
    return pc.subtract(towards_1970, later.cast(pa.int64())).cast(pa.timestamp("us", column.type.tz))


def _lines(rows: Iterable[object]) -> Iterator[bytes]:
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise SbonError("bad-request", f"a row is no {type(row).__name__}", where=f"row {number}", hint=HINT)
        plain = {name: _said(value) if isinstance(value, float) else value for name, value in row.items()}
        yield json_of(plain, f"row {number}") + b"\n"


def json_of(value: object, where: str = "") -> bytes:
    """Return a value as JSON, scalars of NumPy and paths included; raise ``bad-request`` with the key of a wrong value."""
    try:
        return msgspec.json.encode(value, enc_hook=_scalar)
    except (TypeError, ValueError) as error:
        hint = "give numbers, texts, booleans, dates, times, decimals and paths"
        place = ", ".join(filter(None, (where, _wrong_key(value)))) or "request"
        raise SbonError("bad-request", f"no JSON: {error}", where=place, hint=hint) from error


def _wrong_key(value: object) -> str:
    """Return the innermost key of a mapping or structure whose value is no JSON; empty if there is none."""
    items = msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
    for key, item in items.items() if isinstance(items, Mapping) else ():
        try:
            msgspec.json.encode(item, enc_hook=_scalar)
        except (TypeError, ValueError):
            return _wrong_key(item) or str(key)
    return ""


def _said(value: float) -> float | str:
    """Return an infinite number as the text that a node reads: JSON has none. NaN, as of pandas' missing values, is NULL."""
    return value if not math.isinf(value) else "Infinity" if value > 0 else "-Infinity"


def _scalar(value: Any) -> object:
    """Return what JSON has for a path, a scalar of NumPy or a time of pandas, cut to microseconds; raise :class:`TypeError`."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, datetime):
        is_missing = value != value  # pandas' NaT
        return None if is_missing else datetime(*value.timetuple()[:6], value.microsecond, value.tzinfo)
    if not hasattr(value, "item"):
        raise TypeError(f"{type(value).__name__} is no type of it")
    return value.astype("datetime64[us]").item() if value.dtype.kind == "M" else value.item()
