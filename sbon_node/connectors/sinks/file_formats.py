"""Output formats of the file sink: CSV and NDJSON append, Parquet writes whole part files."""

from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from sbon_node.connectors.formats.columns import supports_text
from sbon_node.connectors.formats.json_values import objects_of
from sbon_node.model.schema import type_of
from sbon_protocol.errors import SbonError

SinkFormat = Literal["csv", "ndjson", "parquet"]

_JSON = msgspec.json.Encoder(decimal_format="number")


def check_schema(kind: SinkFormat, schema: pa.Schema) -> None:
    """Raise ``bad-option`` if the format cannot hold a column."""
    for field in schema:
        if kind == "csv" and not supports_text(field.type):
            message = f"CSV cannot hold the column {field.name} of type {type_of(field.type)}"
            raise SbonError("bad-option", message, where="options.format", hint="write parquet or ndjson")


def beginning(kind: SinkFormat, schema: pa.Schema) -> bytes:
    """Return the bytes before the first row."""
    return _csv(schema.empty_table(), header=True) if kind == "csv" else b""


def text(kind: SinkFormat, rows: pa.Table) -> bytes:
    """Return rows as text to append.

    Times are ISO 8601 in UTC. In NDJSON, NULL is ``null``, and NaN and infinities are texts; in CSV, NULL is empty and unquoted.
    """
    return _csv(rows, header=False) if kind == "csv" else _JSON.encode_lines(list(objects_of(rows)))


def part(rows: pa.Table) -> bytes:
    """Return the rows as a whole Parquet file.

    Only texts have dictionaries. Times and numbers rarely repeat, and the attempt takes half of the time of writing.
    """
    out = pa.BufferOutputStream()
    texts = [field.name for field in rows.schema if pa.types.is_string(field.type) or pa.types.is_binary(field.type)]
    pq.write_table(rows, out, compression="zstd", use_dictionary=texts)
    content: bytes = out.getvalue().to_pybytes()
    return content


def _csv(rows: pa.Table, *, header: bool) -> bytes:
    out = pa.BufferOutputStream()
    arrow_csv.write_csv(rows, out, arrow_csv.WriteOptions(include_header=header))
    content: bytes = out.getvalue().to_pybytes()
    return content
