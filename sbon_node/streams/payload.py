"""The payload of a frame: an Arrow IPC stream of one record batch, compressed (protocol/SPEC.md).

Of few rows the stream is mostly its schema and the places of its buffers, so it is compressed as a whole; of many, buffer by
buffer, which needs no second copy. Pure: needs pyarrow and nothing of the node.
"""

from __future__ import annotations

import pyarrow as pa

WHOLE_BYTES = 32 * 1024
"""A stream of so many bytes, uncompressed, is compressed as a whole."""
MAX_UNPACKED_BYTES = 64 * 1024 * 1024
_LZ4 = pa.Codec("lz4")
_WHOLE = b"\x28\xb5\x2f\xfd"
"""What a zstd frame begins with, and no Arrow stream."""


def pack(rows: pa.RecordBatch, codec: pa.Codec = _LZ4) -> bytes:
    """Rows as a payload, ``codec`` being for the buffers of many."""
    if rows.nbytes <= WHOLE_BYTES:
        stream = _stream(rows, None)
        if stream.size <= WHOLE_BYTES:
            packed: bytes = pa.compress(stream, "zstd", asbytes=True)
            return packed
    by_buffer: bytes = _stream(rows, codec).to_pybytes()
    return by_buffer


def unpack(payload: bytes) -> pa.RecordBatch:
    """The rows, checked in full: Spark believes what Arrow's offsets and lengths say, and the bytes may come from other nodes.

    Raises ``ValueError``, ``OSError`` or ``pa.ArrowException``.
    """
    stream: pa.Buffer = pa.py_buffer(payload)
    if payload.startswith(_WHOLE):
        with pa.input_stream(stream, compression="zstd") as unpacking:
            stream = unpacking.read_buffer(WHOLE_BYTES + 1)
        if stream.size > WHOLE_BYTES:
            raise ValueError(f"more than {WHOLE_BYTES:,} bytes compressed as a whole")
    with pa.ipc.open_stream(stream) as reader:
        rows = next(iter(reader), None)
        if rows is None:
            raise ValueError("no record batch")
        if rows.nbytes > MAX_UNPACKED_BYTES:
            raise ValueError(f"{rows.nbytes:,} bytes unpacked are over the limit of {MAX_UNPACKED_BYTES:,}")
        rows.validate(full=True)
        if next(iter(reader), None) is not None:
            raise ValueError("a frame is one record batch, this one has more")
    return rows


def _stream(rows: pa.RecordBatch, codec: pa.Codec | None) -> pa.Buffer:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(rows)
    return out.getvalue()
