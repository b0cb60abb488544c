"""Parquet: a block is part of a row group; the position is the group and row."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sbon_node.connectors.formats.blocks import Block
from sbon_node.connectors.formats.columns import fitting_rows, text_converter
from sbon_node.connectors.formats.numbers import cast_decimals
from sbon_node.connectors.formats.text_file import changed, open_file, short_hash
from sbon_node.connectors.interface import BadRow
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.model.schema import type_of
from sbon_protocol.errors import SbonError

MAX_BLOCK_ROWS = 8192
FOOTER_BYTES = 65_536
BUFFER_BYTES = 65_536
"""Bytes of a column chunk, as stored in the file, per read."""


class ParquetPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The next row is ``row`` of ``group``; bad rows up to row number ``told`` have been reported."""

    group: int
    row: int
    told: int = 0
    file: bytes = b""


class ParquetRows:
    """See :class:`sbon_node.connectors.formats.blocks.BlockReader`."""

    def __init__(self, path: Path, schema: pa.Schema, settings: ConnectorSettings) -> None:
        self._path, self._schema, self._settings = path, schema, settings
        self._file: BinaryIO | None = None
        self._reader: Any = None
        self._batches: Iterator[Any] | None = None
        self._next = ParquetPosition(group=0, row=0)

    def check(self) -> None:
        try:
            self._load()
            self._check_columns()
            if self._reader.metadata.num_row_groups:
                self._batch_rows(0)
        finally:
            self.close()

    def open(self, position: bytes | None) -> None:
        self._load()
        identity = self._identity()
        self._next = ParquetPosition(group=0, row=0, file=identity)
        if position is not None:
            self._next = msgspec.msgpack.decode(position, type=ParquetPosition)
            if self._next.file != identity:
                raise changed(self._path, "the file is not the one that was read before")
        self._check_columns()

    @property
    def share(self) -> float | None:
        """Return the share of the file's rows before the next row."""
        if self._reader is None:
            return None
        metadata = self._reader.metadata
        before = sum(metadata.row_group(group).num_rows for group in range(self._next.group))
        return min(1.0, (before + self._next.row) / metadata.num_rows) if metadata.num_rows else 1.0

    def read(self) -> Block | None:
        metadata = self._reader.metadata
        while self._next.group < metadata.num_row_groups:
            batch = self._batch()
            if batch is not None:
                return self._block(batch)
            self._batches = None
            self._next = msgspec.structs.replace(self._next, group=self._next.group + 1, row=0)
        return None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._reader = self._batches = None

    def _load(self) -> None:
        self.close()
        self._file = open_file(self._path, self._settings.data_roots)
        try:
            self._reader = pq.ParquetFile(
                self._file,
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                # Nanoseconds, the default, hold the years 1677 to 2262 only; other times would wrap around.
                coerce_int96_timestamp_unit="us",
            )
        except (pa.ArrowException, OSError) as error:
            raise SbonError("file-unreadable", f"not a Parquet file: {error}", where="options.path") from error

    def _identity(self) -> bytes:
        """Return size and footer; the footer holds the place of every column chunk."""
        assert self._file is not None
        size = self._file.seek(0, 2)
        self._file.seek(max(0, size - FOOTER_BYTES))
        return short_hash(b"%d:" % size + self._file.read())

    def _check_columns(self) -> None:
        file_schema = self._reader.schema_arrow
        missing = [name for name in self._schema.names if name not in file_schema.names]
        if missing:
            message, hint = f"the file has no column {', '.join(missing)}", f"its columns: {', '.join(file_schema.names)[:500]}"
            raise SbonError("missing-columns", message, where="options.path", hint=hint)
        for field in self._schema:
            file_type = file_schema.field(field.name).type
            try:
                pa.nulls(0, file_type).cast(field.type)
            except pa.ArrowException as error:
                message = f"{field.name} is {type_of(file_type)} in the file and {type_of(field.type)} in the stream"
                raise SbonError("type-mismatch", message, where="options.path") from error

    def _batch(self) -> Any:
        """Return the next batch of this group from the row on, or ``None`` at its end."""
        try:
            if self._batches is None:
                self._batches = self._reader.iter_batches(
                    batch_size=self._batch_rows(self._next.group),
                    row_groups=[self._next.group],
                    columns=self._schema.names,
                    use_threads=False,
                )
                skip = self._next.row
                for batch in self._batches:
                    if batch.num_rows > skip:
                        return batch.slice(skip)
                    skip -= batch.num_rows
                return None
            return next(self._batches, None)
        except (pa.ArrowException, OSError) as error:
            raise SbonError("file-unreadable", f"row group {self._next.group}: {error}", where=str(self._path)) from error

    def _batch_rows(self, group: int) -> int:
        """Return the rows per read of a row group.

        So many rows form a block in the file and stay within the memory bound when unpacked.

        Raises :class:`SbonError` ``file-too-large`` if the group's pages alone exceed the bound.
        """
        bounds = self._bounds(group)
        needed, most = sum(bound.page_bytes for bound in bounds), self._settings.parquet_bytes
        if needed > most:
            largest = max(bounds, key=lambda bound: bound.page_bytes)
            pages = f"pages of row group {group} unpack to {needed:,} bytes"
            message = f"{pages}, {largest.page_bytes:,} of them of the column {largest.name}; at most {most:,} are allowed"
            hint = "raise connectors.parquet_bytes on the source's node, or write the file again with smaller pages"
            raise SbonError("file-too-large", message, where=str(self._path), hint=hint)
        packed = sum(bound.row_bytes for bound in bounds)
        unpacked = sum(bound.most_bytes for bound in bounds)
        return max(1, min(MAX_BLOCK_ROWS, self._settings.block_bytes // max(1, packed), most // max(1, unpacked)))

    def _bounds(self, group: int) -> list[ColumnBounds]:
        assert self._file is not None
        row_group = self._reader.metadata.row_group(group)
        kinds = {field.name: field.type for field in self._reader.schema_arrow if field.name in self._schema.names}
        bounds = []
        for chunk in (row_group.column(i) for i in range(row_group.num_columns)):
            for name, kind in kinds.items():
                if chunk.path_in_schema == name or chunk.path_in_schema.startswith(name + "."):
                    bounds.append(column_bounds(self._file, chunk, gathers=pa.types.is_dictionary(kind)))
                    break
        return bounds

    def _block(self, batch: Any) -> Block:
        start = self._next
        first = sum(self._reader.metadata.row_group(g).num_rows for g in range(start.group)) + start.row + 1
        converters = [partial(_cast, kind=field.type) for field in self._schema]
        columns = [batch.column(batch.schema.get_field_index(name)) for name in self._schema.names]
        arrays, good, bad = fitting_rows(self._schema, converters, columns, batch.num_rows, lambda value: _text(value)[:80])
        following = msgspec.structs.replace(start, row=start.row + batch.num_rows)
        self._next = following
        reported = max(start.told, first + batch.num_rows - 1)
        letters = tuple(BadRow(first + i, _shown(batch, i), bad[i]) for i in sorted(bad) if first + i > start.told)

        def position(done: int) -> bytes:
            row = start.row + int(good[done]) if done < len(good) else following.row
            return msgspec.msgpack.encode(msgspec.structs.replace(start, row=row, told=reported))

        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return Block(rows, letters, lambda i: (first + int(good[i]), _shown(batch, int(good[i]))), position)


def _cast(values: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns" and pa.types.is_timestamp(kind):
        return _microseconds(values).cast(kind)
    if pa.types.is_decimal(values.type) and pa.types.is_decimal(kind) and values.type != kind:
        return cast_decimals(values, kind)
    of = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    is_text = pa.types.is_string(of) or pa.types.is_large_string(of)
    return text_converter(kind, "")(values) if is_text else values.cast(kind)


def _microseconds(values: Any) -> Any:
    """Cut times in nanoseconds to the microsecond before, as the reader does with INT96, and as sources do with event times.

    Arrow's cast cuts towards 1970, which makes times before 1970 later.
    """
    counts = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(counts // 1000, mask=missing).cast(pa.timestamp("us", values.type.tz))


def _shown(batch: Any, row: int) -> str:
    return ", ".join(f"{name}={_text(batch.column(i)[row])}" for i, name in enumerate(batch.schema.names))


def _text(value: Any) -> str:
    try:
        return str(value.as_py())
    except (ValueError, OverflowError):  # a time that Python cannot represent
        return f"{value.type} {value.cast(pa.int64()).as_py()}"


# -- Memory bounds of a Parquet row group, computed from its page headers ---------------------------------------------

# The footer states only totals of whole column chunks, and may lie. Readers allocate the sizes in each page's header, page by
# page; so the headers are read first, without unpacking anything. The format: https://github.com/apache/parquet-format,
# README and parquet.thrift, in Thrift's compact protocol.

HEADER_BYTES = 1024
MAX_HEADER_BYTES = 1024 * 1024
"""Limit of a page header, which may hold the page's least and greatest value."""
MAX_SCANNED = 100_000
"""Dictionary entries whose lengths are read, on the event loop; longer dictionaries count by size alone."""
MAX_NESTING = 16
MAX_PAGES = 50_000
"""Limit of a column chunk's pages, whose headers are read on the event loop."""

_DATA, _INDEX, _DICTIONARY, _DATA_V2 = 0, 1, 2, 3
_PLAIN_DICTIONARY, _DELTA_BYTE_ARRAY, _RLE_DICTIONARY = 2, 7, 8
_DELTAS = frozenset({5, 6, 7})
_CODECS = {"SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd", "LZ4": "lz4_raw", "LZ4_RAW": "lz4_raw"}


@dataclass(frozen=True, slots=True)
class Page:
    kind: int
    start: int
    stored: int
    unpacked: int
    values: int
    encoding: int

    @property
    def memory_bytes(self) -> int:
        """Return the reader's memory beside its output: the page, offsets of dictionary entries, lengths of deltas."""
        return self.unpacked + self.values * (16 if self.kind == _DICTIONARY else 8 if self.encoding in _DELTAS else 0)


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Memory of a column: ``page_bytes`` while it is read, a row's ``row_bytes`` in pages and ``most_bytes`` unpacked."""

    name: str
    page_bytes: int
    row_bytes: int
    most_bytes: int


def column_bounds(file: BinaryIO, chunk: Any, *, gathers: bool) -> ColumnBounds:
    """Return the bounds of a column chunk (``pq.ColumnChunkMetaData``).

    ``gathers`` means that the reader makes a dictionary of all values.

    Raises :class:`SbonError` ``file-unreadable`` if the chunk does not hold pages.
    """
    page_bytes = row_bytes = most = packed = total = 0
    try:
        for page in _pages(file, chunk):
            if page.kind == _DICTIONARY:
                packed = max(packed, page.memory_bytes)
                most = max(most, _longest(file, page, chunk))
                continue
            page_bytes = max(page_bytes, page.memory_bytes)
            total += page.memory_bytes
            row_bytes = max(row_bytes, -(-page.unpacked // max(1, page.values)))
            if page.encoding == _DELTA_BYTE_ARRAY:
                most = max(most, page.unpacked)
            elif page.encoding not in (_PLAIN_DICTIONARY, _RLE_DICTIONARY):
                most = max(most, row_bytes)
    except (ValueError, IndexError, struct.error, OSError) as error:
        raise SbonError("file-unreadable", f"no page header: {error}", where="options.path") from error
    return ColumnBounds(chunk.path_in_schema, packed + (total if gathers else page_bytes), row_bytes, most)


def _pages(file: BinaryIO, chunk: Any) -> Iterator[Page]:
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset and chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    # Arrow reads until it has the number of values in the footer; the footer's byte counts do not stop it.
    end, missing, pages = file.seek(0, 2), chunk.num_values, 0
    while missing > 0 and start < end:
        page = _header(file, start)
        if min(page.stored, page.unpacked, page.values) < 0:
            raise ValueError(f"a negative size at byte {start:,}")
        pages += 1
        if pages > MAX_PAGES:
            raise ValueError(f"more than {MAX_PAGES:,} pages in a column chunk")
        yield page
        if page.kind in (_DATA, _DATA_V2):
            missing -= page.values
        start = page.start + page.stored


def _header(file: BinaryIO, start: int) -> Page:
    size = HEADER_BYTES
    while True:
        file.seek(start)
        text = file.read(size)
        try:
            fields, end = _struct(text, 0)
            break
        except IndexError:
            if len(text) < size or size >= MAX_HEADER_BYTES:
                raise ValueError(f"nothing that ends at byte {start:,}") from None
            size *= 4
    kind = _number(fields, 1)
    detail = fields.get({_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}.get(kind, 6), {})
    if not isinstance(detail, dict):
        raise ValueError(f"fields of other types at byte {start:,}")
    values, encoding = (0, 0) if kind == _INDEX else (_number(detail, 1), _number(detail, 4 if kind == _DATA_V2 else 2))
    return Page(kind, start + end, _number(fields, 3), _number(fields, 2), values, encoding)


def _longest(file: BinaryIO, page: Page, chunk: Any) -> int:
    """Return the longest dictionary entry in bytes; the page size if entries are not read."""
    if chunk.physical_type != "BYTE_ARRAY":
        return -(-page.unpacked // max(1, page.values))
    if page.values > MAX_SCANNED:
        return page.unpacked
    file.seek(page.start)
    text = file.read(page.stored)
    codec = _CODECS.get(chunk.compression)
    try:
        text = pa.decompress(text, page.unpacked, codec, asbytes=True) if codec else text
        at = longest = 0
        for _ in range(page.values):
            (length,) = struct.unpack_from("<I", text, at)
            longest, at = max(longest, length), at + 4 + length
    except (pa.ArrowException, OSError, struct.error):
        return page.unpacked
    return min(longest, page.unpacked)


def _number(fields: dict[int, Any], key: int) -> int:
    number = fields.get(key)
    if not isinstance(number, int):
        raise ValueError(f"field {key} of a page is missing")
    return number


def _struct(text: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return a Thrift structure's numbers and structures by field, and its end. Raises ``IndexError`` if the text ends early."""
    fields: dict[int, Any] = {}
    key = 0
    while True:
        first = text[at]
        at += 1
        if first == 0:
            return fields, at
        if first >> 4:
            key += first >> 4
        else:
            key, at = _zigzag(text, at)
        fields[key], at = _value(text, at, first & 15, depth + 1)


def _value(text: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if depth > MAX_NESTING:
        raise ValueError("structures in structures")
    if kind in (1, 2):
        return None, at
    if kind == 3:
        return None, _within(text, at + 1)
    if kind in (4, 5, 6):
        return _zigzag(text, at)
    if kind == 7:
        return None, _within(text, at + 8)
    if kind == 8:
        length, at = _varint(text, at)
        return None, _within(text, at + length)
    if kind == 12:
        return _struct(text, at, depth)
    raise ValueError(f"a value of type {kind}")


def _within(text: bytes, at: int) -> int:
    if at > len(text):
        raise IndexError(at)
    return at


def _varint(text: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = text[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number of too many bytes")


def _zigzag(text: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(text, at)
    return (value >> 1) ^ -(value & 1), at
