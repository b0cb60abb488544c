"""The payload of a frame: an Arrow IPC stream of one record batch, compressed (protocol/SPEC.md).

With few rows the stream is mostly schema and buffer offsets, so it is compressed as a whole; with many rows it is compressed
buffer by buffer, which needs no second copy. Pure: needs pyarrow and nothing of the node.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from struct import Struct

import pyarrow as pa

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


# -- Size that an Arrow IPC stream declares for its unpacked buffers, read from its metadata --------------------------

# Arrow allocates the declared size of a compressed buffer before it unpacks it: a few kilobytes may declare gigabytes. This
# module sums the lengths first. Pure: needs pyarrow and nothing of the node. The layout is that of Arrow's ``Message.fbs``
# (format 1.0 and later).

MAX_SCHEMA_BYTES = 512 * 1024
"""Limit on a schema's metadata: some thousand columns."""
MAX_VALUES = 16 * 1024 * 1024
"""Limit over all columns and their nested values, nulls and bits included."""
_HEADER, _DATA_LENGTH, _DATA_NODES, _DATA_BUFFERS, _DATA_COMPRESSION = 2, 0, 1, 2, 3
_NOT_COMPRESSED = -1


def unpacked_bytes(stream: pa.Buffer) -> int:
    """Return the bytes of all buffers of the stream's only record batch, once unpacked.

    Raises ``ValueError`` for content that no frame may hold: dictionaries, more than one batch, too many values, too large a
    schema, impossible lengths. Passes on Arrow's own errors where the buffer is no stream.
    """
    reader = pa.ipc.MessageReader.open_stream(stream)
    total, batches = 0, 0
    for number, message in enumerate(_messages(reader)):
        if number == 0 and message.type == "schema":
            if message.metadata.size > MAX_SCHEMA_BYTES:
                raise ValueError(f"a schema of {message.metadata.size:,} bytes")
        elif message.type == "record batch" and not batches:
            batches += 1
            total = _of_batch(_Table.root(message.metadata).table(_HEADER), message.body)
        else:
            raise ValueError(f"a frame is a schema and one record batch, this one has a {message.type} besides")
    return total


def _messages(reader: pa.ipc.MessageReader) -> Iterator[pa.ipc.Message]:
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _of_batch(batch: _Table, body: pa.Buffer | None) -> int:
    values = batch.int64(_DATA_LENGTH) + sum(length for length, _ in batch.pairs(_DATA_NODES))
    if not 0 <= values <= MAX_VALUES:
        raise ValueError(f"{values:,} values")
    content = memoryview(body if body is not None else b"")
    compressed = batch.has(_DATA_COMPRESSION)
    total = 0
    for offset, length in batch.pairs(_DATA_BUFFERS):
        if offset < 0 or length < 0 or offset + length > len(content):
            raise ValueError("a buffer lies outside of its batch")
        if compressed and length:
            if length < 8:
                raise ValueError("a buffer without its length")
            (declared,) = struct.unpack_from("<q", content, offset)
            if declared < _NOT_COMPRESSED:
                raise ValueError(f"a buffer of {declared} bytes")
            length = length - 8 if declared == _NOT_COMPRESSED else declared
        total += length
    return total


class _Table:
    """A FlatBuffers table, whose fields are read in place by number."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._read("<i", at)
        self._size = self._read("<H", self._fields)

    @classmethod
    def root(cls, metadata: pa.Buffer) -> _Table:
        data = memoryview(metadata)
        if len(data) < 8:
            raise ValueError("no metadata")
        (at,) = struct.unpack_from("<I", data, 0)
        return cls(data, at)

    def has(self, field: int) -> bool:
        return self._place(field) != 0

    def int64(self, field: int) -> int:
        offset = self._place(field)
        return self._read("<q", self._at + offset) if offset else 0

    def table(self, field: int) -> _Table:
        offset = self._place(field)
        if not offset:
            raise ValueError("a message without its header")
        at = self._at + offset
        return _Table(self._data, at + self._read("<I", at))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return a vector of structs of two 64-bit integers."""
        offset = self._place(field)
        if not offset:
            return []
        start = self._at + offset
        start += self._read("<I", start)
        count = self._read("<I", start)
        end = start + 4 + 16 * count
        if end > len(self._data):
            raise ValueError("a vector that is longer than its message")
        return list(struct.iter_unpack("<qq", self._data[start + 4 : end]))

    def _place(self, field: int) -> int:
        slot = 4 + 2 * field
        return self._read("<H", self._fields + slot) if slot + 2 <= self._size else 0

    def _read(self, form: str, at: int) -> int:
        if at < 0 or at + struct.calcsize(form) > len(self._data):
            raise ValueError("metadata that points beyond its end")
        value: int = struct.unpack_from(form, self._data, at)[0]
        return value
