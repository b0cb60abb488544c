"""How a file sink's rows become bytes: CSV and NDJSON grow by appending, Parquet by whole part files."""

from __future__ import annotations

from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from sbon_node.connectors.columns import supports_text
from sbon_node.errors import SbonError
from sbon_node.query.schema import type_of

SinkFormat = Literal["csv", "ndjson", "parquet"]

_JSON = msgspec.json.Encoder(decimal_format="number")


def check_schema(kind: SinkFormat, schema: pa.Schema) -> None:
    """Raises ``bad-option`` where the format cannot hold a column."""
    for field in schema:
        if kind == "csv" and not supports_text(field.type):
            raise SbonError(
                "bad-option",
                f"CSV cannot hold the column {field.name} of type {type_of(field.type)}",
                where="options.format",
                hint="write parquet or ndjson",
            )


def beginning(kind: SinkFormat, schema: pa.Schema) -> bytes:
    """What stands before the first row."""
    return _csv(schema.empty_table(), header=True) if kind == "csv" else b""


def text(kind: SinkFormat, rows: pa.Table) -> bytes:
    """Rows to append. Times are ISO 8601 in UTC; NULL is ``null`` in NDJSON, and nothing at all, unquoted, in CSV."""
    if kind == "csv":
        return _csv(rows, header=False)
    return _JSON.encode_lines(rows.to_pylist())


def part(rows: pa.Table) -> bytes:
    """A whole Parquet file."""
    out = pa.BufferOutputStream()
    pq.write_table(rows, out, compression="zstd")
    content: bytes = out.getvalue().to_pybytes()
    return content


def _csv(rows: pa.Table, *, header: bool) -> bytes:
    out = pa.BufferOutputStream()
    arrow_csv.write_csv(rows, out, arrow_csv.WriteOptions(include_header=header))
    content: bytes = out.getvalue().to_pybytes()
    return content
