"""Rows to frames and back, cut to size and checked against a schema (docs/design.md, section 8).

Pure: needs pyarrow and nothing of the node, so that the engine's host may use it as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sbon_node.streams.payload import pack, unpack

AIM_BYTES = 256 * 1024
MAX_BYTES = 4 * 1024 * 1024
MAX_ROW_BYTES = 1024 * 1024


class BadPayloadError(ValueError):
    """These bytes are not the payload of a frame of that schema."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One frame's worth: rows [``start``, ``start + rows``) of what was cut. No payload: that one row is too large."""

    payload: bytes
    start: int
    rows: int


def encode(rows: pa.RecordBatch) -> bytes:
    """The payload of a frame; empty where there are no rows."""
    return pack(rows) if rows.num_rows else b""


def oversized(rows: pa.RecordBatch, max_row_bytes: int = MAX_ROW_BYTES) -> list[int]:
    """Numbers (from 0) of the rows that alone are larger than ``max_row_bytes``, in order."""
    found, spans = [], [(0, rows.num_rows)]
    while spans:
        start, count = spans.pop()
        if not count or rows.slice(start, count).nbytes <= max_row_bytes:
            continue
        if count == 1:
            found.append(start)
        else:
            half = count // 2
            spans += [(start + half, count - half), (start, half)]
    return found


def cut(rows: pa.RecordBatch, *, aim_bytes: int = AIM_BYTES, max_row_bytes: int = MAX_ROW_BYTES) -> Iterator[Cut]:
    """Cuts into payloads of about ``aim_bytes`` of unpacked rows, in order and without gaps.

    A row of more than ``max_row_bytes`` comes alone and without payload: it is refused.
    """
    spans = [(0, rows.num_rows)] if rows.num_rows else []
    while spans:
        start, count = spans.pop()
        part = rows.slice(start, count)
        size = part.nbytes
        if count == 1 and size > max_row_bytes:
            yield Cut(b"", start, 1)
        elif count > 1 and size > min(2 * aim_bytes, max_row_bytes):
            half = count // 2
            spans += [(start + half, count - half), (start, half)]
        else:
            yield Cut(encode(part), start, count)


def decode(payload: bytes, schema: pa.Schema | None = None) -> pa.Table:
    """The rows of a payload, checked in full; with ``schema`` they must be of its names and types.

    Raises :class:`BadPayloadError` for whatever else a peer may send. An empty payload needs ``schema``.
    """
    if not payload:
        if schema is None:
            raise BadPayloadError("an empty payload says nothing of its columns")
        return schema.empty_table()
    if len(payload) > MAX_BYTES:
        raise BadPayloadError(f"{len(payload):,} bytes are over the limit of {MAX_BYTES:,}")
    try:
        batch = unpack(payload)
        names = batch.schema.names  # which may be no text
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadPayloadError(f"not an Arrow stream of rows: {error}") from error
    found = batch.schema
    if schema is not None and not found.equals(schema):
        if names != schema.names or found.types != schema.types:
            raise BadPayloadError(f"columns are {_columns(found)}, not {_columns(schema)}")
        batch = batch.cast(schema)
    return pa.Table.from_batches([batch])


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
