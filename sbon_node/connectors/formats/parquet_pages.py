"""Memory bounds of a Parquet row group, computed from its page headers.

The footer states only totals of whole column chunks, and may lie. Readers allocate the sizes in each page's header, page by page;
so this module reads the headers first, without unpacking anything. The format: https://github.com/apache/parquet-format, README
and parquet.thrift, in Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from sbon_node.errors import SbonError

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
    """Memory of a column.

    The reader holds ``page_bytes`` while it reads the column. A row takes ``row_bytes`` in its pages and at most ``most_bytes``
    unpacked.
    """

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
    """Parse a Thrift structure; return its numbers and structures by field, and its end.

    Raises ``IndexError`` if the text ends before it.
    """
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
