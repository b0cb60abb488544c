"""Texts in blocks of complete records, of files and of what grows; where blocks end does not affect the result."""

import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from sbon_node.connectors.access.roots import open_within
from sbon_node.connectors.formats.blocks import Block, Parsed, TextFormat
from sbon_node.connectors.interface import BadRow
from sbon_node.connectors.settings import ConnectorSettings
from sbon_protocol.errors import SbonError


@dataclass(frozen=True, slots=True)
class ParsedText:
    """Some records and their ``text``, from the end of the record before them."""

    parsed: Parsed
    text: bytes


class GrowingText:
    """Holds the incomplete record at the end of a text.

    It holds slightly more than ``max_record_bytes`` at most, if each call adds at most a block. ``line`` is the line of the next
    record. ``skipping`` means that the next bytes are the rest of a record that was too long.
    """

    def __init__(self, text: TextFormat, settings: ConnectorSettings, *, line: int = 1, skipping: bool = False) -> None:
        self.line, self.skipping = line, skipping
        self.buffered = b""
        self._format = text
        self._limit = max(settings.block_bytes, settings.max_record_bytes)
        self._max_shown = settings.dead_letter_text_bytes

    def add(self, text: bytes) -> None:
        self.buffered += text

    def take_records(self, *, ended: bool = False) -> ParsedText | None:
        """Return the held records known to be complete. ``ended`` means that no more text follows."""
        if self.skipping:
            return self._skip()
        end = _end_of_records(self._format, self.buffered, ended=ended)
        if end:
            text = self._cut(end)
            parsed = self._format.parse(text if text.endswith(b"\n") else text + b"\n", self.line)
            self.line += text.count(b"\n")
            return ParsedText(parsed, text)
        if self.buffered and (ended or len(self.buffered) >= self._limit):
            return self._endless()
        return None

    def _endless(self) -> ParsedText:
        """Give up the first line of a record that does not end."""
        line_end = self.buffered.find(b"\n") + 1
        quoted = line_end or len(self.buffered) < self._limit
        text = self._cut(line_end or len(self.buffered))
        self.skipping = not quoted
        shown = text[: self._max_shown].decode("utf-8", "replace").rstrip("\r\n")
        reason = "a quote is opened and not closed" if quoted else f"a line longer than {self._limit:,} bytes"
        parsed = _without_rows(self._format, self.line, BadRow(self.line, shown, reason))
        self.line += 1 if line_end else 0
        return ParsedText(parsed, text)

    def _skip(self) -> ParsedText | None:
        line_end = self.buffered.find(b"\n") + 1
        if not self.buffered:
            return None
        text = self._cut(line_end or len(self.buffered))
        if line_end:
            self.skipping = False
            self.line += 1
        return ParsedText(_without_rows(self._format, self.line), text)

    def _cut(self, size: int) -> bytes:
        text, self.buffered = self.buffered[:size], self.buffered[size:]
        return text


HEAD_BYTES = 4096
TAIL_BYTES = 256
HOLE_BYTES = 65_536
"""NUL bytes per read that are not a hole of the file system."""


class TextPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Position in a text file.

    The next record is at byte ``offset`` in line ``line``. ``skip`` good rows from there are done, and bad rows up to line
    ``told`` have been reported. ``head`` and ``tail`` are hashes of the file's beginning and of the bytes before ``offset``.
    """

    offset: int
    line: int
    skip: int = 0
    told: int = 0
    head: bytes = b""
    tail: bytes = b""


class TextRows:
    """See :class:`sbon_node.connectors.formats.blocks.BlockReader`."""

    def __init__(self, path: Path, text: TextFormat, settings: ConnectorSettings) -> None:
        self._path, self._format, self._settings = path, text, settings
        self._limit = max(settings.block_bytes, settings.max_record_bytes)
        self._file: BinaryIO | None = None
        self._buffer = b""
        self._at_end = False
        self._next = TextPosition(offset=0, line=1)
        self._tail = b""

    def check(self) -> None:
        with open_file(self._path, self._settings.data_roots) as file:
            self._read_beginning(file)

    def open(self, position: bytes | None) -> None:
        self.close()
        self._buffer, self._at_end = b"", False
        file = self._file = open_file(self._path, self._settings.data_roots)
        if position is not None:
            # Before the header is read: a changed file raises ``source-changed``, whatever its columns are.
            self._next = msgspec.msgpack.decode(position, type=TextPosition)
            self._recognise(file)
        began = self._read_beginning(file)
        if position is None:
            self._next = began
        self._tail = _before(file, self._next.offset)
        file.seek(0)
        self._head = file.read(HEAD_BYTES)
        file.seek(self._next.offset)

    @property
    def share(self) -> float | None:
        """Return the share of bytes before the next record; 0 before opening, None if unreadable."""
        try:
            size = self._path.stat().st_size
        except OSError:
            return None
        return min(1.0, self._next.offset / size) if size else 1.0

    def read(self) -> Block | None:
        """Return the next block; it may have no rows. Raises ``source-changed`` if the file shrank meanwhile."""
        start = self._next
        end = self._fill()
        if end:
            text, self._buffer = self._buffer[:end], self._buffer[end:]
            parsed = self._format.parse(text if text.endswith(b"\n") else text + b"\n", start.line)
            following = TextPosition(offset=start.offset + end, line=start.line + text.count(b"\n"))
            return self._block(start, following, parsed, text)
        if not self._buffer:
            return None
        text, size, reason = self._endless()
        shown = text[: self._settings.dead_letter_text_bytes].decode("utf-8", "replace").rstrip("\r\n")
        parsed = _without_rows(self._format, start.line, BadRow(start.line, shown, reason))
        return self._block(start, TextPosition(offset=start.offset + size, line=start.line + 1), parsed, text)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read_beginning(self, file: BinaryIO) -> TextPosition:
        """Read the beginning of the text, which may follow a hole; return the position of the first record."""
        start = text_start(file.fileno()) or 0
        file.seek(start)
        head = file.read(max(HEAD_BYTES, self._settings.max_record_bytes))
        began = self._format.begin(head)
        return TextPosition(offset=start + began, line=1 + head[:began].count(b"\n"))

    def _block(self, start: TextPosition, following: TextPosition, parsed: Parsed, text: bytes) -> Block:
        skip = min(start.skip, parsed.rows.num_rows)
        rows = parsed.rows.slice(skip)
        bad = tuple(row for row in parsed.bad if row.line > start.told)
        reported = max(start.told, following.line - 1)
        tail, self._tail = self._tail, (self._tail + text)[-TAIL_BYTES:]
        # A position taken with smaller blocks may lie in a later block.
        rest, rest_told = start.skip - skip, start.told if start.told >= following.line else 0
        following = msgspec.structs.replace(following, skip=rest, told=rest_told)
        self._next = following
        next_tail = self._tail

        def position(done: int) -> bytes:
            if done == rows.num_rows:
                return self._signed(following, next_tail)
            return self._signed(msgspec.structs.replace(start, skip=skip + done, told=reported), tail)

        return Block(rows, bad, lambda i: parsed.origin(skip + i), position)

    def _fill(self) -> int:
        """Read until a record is complete, the limit is reached or the file ends. Returns the end of the records."""
        if self._file is None:
            raise SbonError("source-closed", "the file is not open", where=str(self._path))
        size = self._settings.block_bytes
        while True:
            missing = size - len(self._buffer)
            if missing > 0 and not self._at_end:
                data = self._file.read(missing)
                self._at_end = len(data) < missing
                self._buffer += data
                if self._at_end and os.fstat(self._file.fileno()).st_size < self._next.offset + len(self._buffer):
                    raise changed(self._path, "the file became shorter while it was read")
            end = _end_of_records(self._format, self._buffer, ended=self._at_end)
            if end or self._at_end or len(self._buffer) >= self._limit:
                return end
            size = min(size + self._settings.block_bytes, self._limit)

    def _endless(self) -> tuple[bytes, int, str]:
        """Take the first line of a record that does not end. Returns its kept part, its length in bytes, and why it is bad."""
        line_end = self._buffer.find(b"\n") + 1
        if line_end or self._at_end:
            size = line_end or len(self._buffer)
            text, self._buffer = self._buffer[:size], self._buffer[size:]
            return text, size, "a quote is opened and not closed"
        assert self._file is not None
        text, size, self._buffer = self._buffer, len(self._buffer), b""
        while not self._at_end and not line_end:
            data = self._file.read(self._settings.block_bytes)
            self._at_end = len(data) < self._settings.block_bytes
            line_end = data.find(b"\n") + 1
            size += line_end or len(data)
            # A line of any length is kept only as far as the dead letter and the file's hashes need.
            text = text[: self._limit] + (data[:line_end] if line_end else data)[-TAIL_BYTES:]
            self._buffer = data[line_end:] if line_end else b""
        return text, size, f"a line longer than {self._limit:,} bytes"

    def _signed(self, position: TextPosition, tail: bytes) -> bytes:
        head = self._head[: position.offset]
        return msgspec.msgpack.encode(msgspec.structs.replace(position, head=short_hash(head), tail=short_hash(tail)))

    def _recognise(self, file: BinaryIO) -> None:
        known, size = self._next, os.fstat(file.fileno()).st_size
        if size < known.offset:
            raise changed(self._path, f"the file has {size:,} bytes, and {known.offset:,} were read before")
        file.seek(0)
        head = file.read(min(HEAD_BYTES, known.offset))
        if known.head != short_hash(head) or known.tail != short_hash(_before(file, known.offset)):
            raise changed(self._path, "the file is not the one that was read before")


def open_file(path: Path, roots: Sequence[str]) -> BinaryIO:
    """Open the file. Raises :class:`SbonError` ``file-not-found``, ``file-unreadable``, ``outside-roots``."""
    with named_file(path):
        if path.is_dir():
            raise IsADirectoryError(21, "it is a directory")
        return open(open_within(path, roots, os.O_RDONLY), "rb")


@contextmanager
def named_file(path: Path) -> Iterator[None]:
    """Turn the system's errors into :class:`SbonError` ``file-not-found`` and ``file-unreadable``."""
    try:
        yield
    except FileNotFoundError as error:
        hint = "it has to lie on the source's node"
        raise SbonError("file-not-found", f"there is no file {path}", where="options.path", hint=hint) from error
    except OSError as error:
        raise SbonError("file-unreadable", f"{path} cannot be read: {error.strerror}", where="options.path") from error


def text_start(descriptor: int, offset: int = 0) -> int | None:
    """Return where the text begins from ``offset`` on, after bytes of NUL; None if nothing else follows.

    A program that writes on at its place in a file that was truncated leaves a hole before it, which reads as NUL bytes.
    """
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        while True:
            offset = os.lseek(descriptor, offset, os.SEEK_DATA)
            block = os.pread(descriptor, HOLE_BYTES, offset)
            text = block.lstrip(b"\0")
            if text or not block:
                return offset + len(block) - len(text) if text else None
            offset += len(block)
    except OSError as error:
        if error.errno == errno.ENXIO:  # there are no data from the offset on
            return None
        raise
    finally:
        os.lseek(descriptor, place, os.SEEK_SET)


def changed(path: Path, reason: str) -> SbonError:
    return SbonError("source-changed", reason, where=str(path), hint="attach the new file as a source of its own")


def _before(file: BinaryIO, offset: int) -> bytes:
    start = max(0, offset - TAIL_BYTES)
    file.seek(start)
    return file.read(offset - start)


def short_hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=8).digest()


def _end_of_records(text_format: TextFormat, text: bytes, *, ended: bool) -> int:
    """Return the bytes of ``text`` up to the end of its last complete record; ``ended`` means that no more text follows."""
    end = text_format.split(text) if text else 0
    if ended and end < len(text) and not text.endswith(b"\n"):
        # The last line needs no newline. If the record is still incomplete, a quote was left open.
        end = len(text) if text_format.split(text + b"\n") > len(text) else end
    return end


def _without_rows(text_format: TextFormat, line: int, *bad: BadRow) -> Parsed:
    empty = text_format.parse(b"", line)
    return Parsed(empty.rows, bad, empty.origin)
