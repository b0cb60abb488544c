"""Encoding of rows into frames, limited in size and checked against a schema (docs/design.md, section 8).

Pure: depends on pyarrow and not on the node, so that the engine's host can use it too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

import sbon_node.base.arrow_without_pandas  # noqa: F401 - before Arrow converts a value
from sbon_node.base.executors import Executor
from sbon_node.model.frames import MAX_FRAME_BYTES, MAX_ROW_BYTES
from sbon_node.streams.payload import is_large, pack, unpack

AIM_BYTES = 256 * 1024


class BadPayloadError(ValueError):
    """The bytes are not the payload of a frame with that schema."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A frame's rows [``start``, ``start + rows``) of the input. A cut without payload is a single row that is too large."""

    payload: bytes
    start: int
    rows: int


def encode(rows: pa.RecordBatch) -> bytes:
    """Return the payload of a frame; empty if there are no rows."""
    return pack(rows) if rows.num_rows else b""


def oversized(rows: pa.RecordBatch, max_row_bytes: int = MAX_ROW_BYTES) -> list[int]:
    """Return the indices, in order, of the rows larger than ``max_row_bytes``."""
    starts, spans = [], [(0, rows.num_rows)]
    while spans:
        start, count = spans.pop()
        if not count or rows.slice(start, count).nbytes <= max_row_bytes:
            continue
        if count == 1:
            starts.append(start)
        else:
            half = count // 2
            spans += [(start + half, count - half), (start, half)]
    return starts


def cut(rows: pa.RecordBatch, *, aim_bytes: int = AIM_BYTES, max_row_bytes: int = MAX_ROW_BYTES) -> Iterator[Cut]:
    """Cut rows into payloads of about ``aim_bytes`` unpacked, in order and without gaps.

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


async def unpacked(payload: bytes, executor: Executor) -> pa.Table | None:
    """Unpack a payload that is too large for the event loop; return None for any other. Raises the errors of :func:`decode`."""
    return await executor(partial(decode, payload)) if is_large(payload) else None


def decode(payload: bytes, schema: pa.Schema | None = None, rows: pa.Table | None = None) -> pa.Table:
    """Return the rows of a payload after a full check.

    With ``schema``, the rows must have its names and types. ``rows`` are the rows if the payload has been unpacked already. An
    empty payload needs ``schema``.

    Raises :class:`BadPayloadError` for any other bytes that a peer may send.
    """
    if not payload:
        if schema is None:
            raise BadPayloadError("an empty payload says nothing of its columns")
        return schema.empty_table()
    if len(payload) > MAX_FRAME_BYTES:
        raise BadPayloadError(f"{len(payload):,} bytes are over the limit of {MAX_FRAME_BYTES:,}")
    try:
        table = pa.Table.from_batches([unpack(payload)]) if rows is None else rows
        names = table.schema.names  # names that are not valid UTF-8 raise here
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadPayloadError(f"not an Arrow stream of rows: {error}") from error
    table_schema = table.schema
    if schema is not None and not table_schema.equals(schema):
        if names != schema.names or table_schema.types != schema.types:
            raise BadPayloadError(f"columns are {_columns(table_schema)}, not {_columns(schema)}")
        table = table.cast(schema)
    return table


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
