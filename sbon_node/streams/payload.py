"""The payload of a frame: an Arrow IPC stream of one record batch, compressed (protocol/SPEC.md).

With few rows the stream is mostly schema and buffer offsets, so it is compressed as a whole; with many rows it is compressed
buffer by buffer, which needs no second copy. Pure: needs pyarrow and nothing of the node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from struct import Struct

import pyarrow as pa

from sbon_node.streams.ipc_sizes import unpacked_bytes

WHOLE_BYTES = 32 * 1024
"""A stream of at most so many bytes, uncompressed, is compressed as a whole."""
MAX_UNPACKED_BYTES = 16 * 1024 * 1024
"""Limit of unpacked bytes: twice the largest target of an engine (``engine.frame_bytes``), and the limit of a row."""
LARGE_BYTES = 1024 * 1024
"""Rows that unpack to more are not unpacked on the event loop."""
_LZ4 = pa.Codec("lz4")
_PREFIX = Struct("<Ii")
"""Before each message of an Arrow stream: a mark, and the bytes of its metadata. A schema has no more than these."""
_WHOLE = b"\x28\xb5\x2f\xfd"
"""The first bytes of a zstd frame, which no Arrow stream begins with."""


def pack(rows: pa.RecordBatch, codec: pa.Codec = _LZ4) -> bytes:
    """Return rows as a payload; ``codec`` compresses the buffers of large batches."""
    if rows.nbytes <= WHOLE_BYTES:
        stream = _stream(rows, None)
        if stream.size <= WHOLE_BYTES:
            packed: bytes = pa.compress(stream, "zstd", asbytes=True)
            return packed
    by_buffer: bytes = _stream(rows, codec).to_pybytes()
    return by_buffer


def unpack(payload: bytes, columns: Collection[str] | None = None) -> pa.RecordBatch:
    """Return the rows, with all columns or those of ``columns``.

    They are fully validated: Spark trusts Arrow's offsets and lengths, and the bytes may come from other nodes.

    Raises ``ValueError``, ``OSError`` or ``pa.ArrowException``.
    """
    stream, declared = _opened(payload)
    if declared > MAX_UNPACKED_BYTES:
        raise ValueError(f"{declared:,} bytes unpacked are over the limit of {MAX_UNPACKED_BYTES:,}")
    fields = None if columns is None else [at for at, name in enumerate(pa.ipc.read_schema(stream).names) if name in columns]
    with pa.ipc.open_stream(stream, options=pa.ipc.IpcReadOptions(included_fields=fields)) as reader:
        if (folded := next((field for field in reader.schema if _folds(field.type)), None)) is not None:
            raise ValueError(f"values of {folded.type} may unpack to many times their bytes")
        rows = next(iter(reader), None)
        if rows is None:
            raise ValueError("no record batch")
        rows.validate(full=True)
    return rows


def renamed(payload: bytes, columns: Sequence[str]) -> bytes:
    """Return the payload with other names of its columns, in their order.

    An empty payload, one that cannot be read, and one with another number of columns are returned as they are: whoever unpacks
    it refuses it. Only the schema, the first message of the stream, is written anew.
    """
    if not payload:
        return payload
    try:
        stream, _ = _opened(payload)
        schema = pa.ipc.read_schema(stream)
        if len(schema) != len(columns) or schema.names == list(columns):
            return payload
        after = _PREFIX.size + _PREFIX.unpack_from(stream)[1]
    except (pa.ArrowException, OSError, ValueError):
        return payload
    names = [field.with_name(name) for field, name in zip(schema, columns, strict=True)]
    changed: bytes = pa.schema(names, metadata=schema.metadata).serialize().to_pybytes() + stream.slice(after).to_pybytes()
    if payload.startswith(_WHOLE):
        whole: bytes = pa.compress(changed, "zstd", asbytes=True)
        return whole
    return changed


def is_large(payload: bytes) -> bool:
    """Return whether a thread should unpack it, because it is large; False if it cannot be read."""
    if len(payload) > LARGE_BYTES:
        return True
    try:
        return _opened(payload)[1] > LARGE_BYTES
    except (pa.ArrowException, OSError, ValueError):
        return False


def _opened(payload: bytes) -> tuple[pa.Buffer, int]:
    """Return the Arrow stream, its buffers compressed as received, and their declared size in all."""
    stream: pa.Buffer = pa.py_buffer(payload)
    if payload.startswith(_WHOLE):
        with pa.input_stream(stream, compression="zstd") as unpacking:
            stream = unpacking.read_buffer(WHOLE_BYTES + 1)
        if stream.size > WHOLE_BYTES:
            raise ValueError(f"more than {WHOLE_BYTES:,} bytes compressed as a whole")
    return stream, unpacked_bytes(stream)


def _folds(kind: pa.DataType) -> bool:
    """Return whether many rows may share a value of this type or a value nested in it."""
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind) or types.is_string_view(kind) or types.is_binary_view(kind):
        return True
    if types.is_list_view(kind) or types.is_large_list_view(kind) or types.is_union(kind):
        return True
    return any(_folds(kind.field(at).type) for at in range(kind.num_fields))


def _stream(rows: pa.RecordBatch, codec: pa.Codec | None) -> pa.Buffer:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(rows)
    return out.getvalue()
