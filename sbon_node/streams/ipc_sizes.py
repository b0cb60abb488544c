"""Size that an Arrow IPC stream declares for its unpacked buffers, read from its metadata.

Arrow allocates the declared size of a compressed buffer before it unpacks it: a few kilobytes may declare gigabytes. This
module sums the lengths first. Pure: needs pyarrow and nothing of the node. The layout is that of Arrow's ``Message.fbs``
(format 1.0 and later).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

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
