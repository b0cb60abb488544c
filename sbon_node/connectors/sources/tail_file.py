"""A growing file, read by complete records and recognised by content despite renames."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sbon_node.connectors.access.roots import open_within
from sbon_node.connectors.formats.blocks import TextFormat
from sbon_node.connectors.formats.growing_text import GrowingText, ParsedText
from sbon_node.connectors.formats.text_file import text_start
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.errors import SbonError

HEAD_BYTES = 4096
TAIL_BYTES = 256


class TailPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Position in a growing file.

    The next record is at byte ``offset`` of the file ``inode``, in line ``line``. ``skipping`` means that the next bytes are the
    rest of a line that was too long. ``head`` and ``tail`` are hashes of the file's beginning and of the bytes before ``offset``.
    """

    inode: int
    offset: int
    line: int
    head: bytes = b""
    tail: bytes = b""
    skipping: bool = False


@dataclass(frozen=True, slots=True)
class Sight:
    """Inode, size and time of change of the file under a name."""

    inode: int
    size: int
    changed_ns: int


class FileCut(Exception):
    """Signals that the file was truncated below the position, and perhaps written to since."""


class TailFile:
    """A file open from ``position`` on, from the beginning, or with ``at_end`` from the end. Raises :class:`SbonError`."""

    def __init__(
        self,
        path: Path,
        text: TextFormat,
        settings: ConnectorSettings,
        position: TailPosition | None = None,
        *,
        at_end: bool = False,
    ) -> None:
        self._format, self._settings = text, settings
        self._fd = open_regular(path, settings.data_roots)
        at = position or TailPosition(inode=self.sight.inode, offset=0, line=1)
        self._offset, self._tail, self._head = at.offset, self._before(at.offset), b""
        self._hole = 0
        """NUL bytes between the offset and the buffered text. The position stays before them until a record is taken."""
        self._begun = False
        self._text = GrowingText(text, settings, line=at.line, skipping=at.skipping)
        if at_end and self.begin():
            self._go_to_end()

    @property
    def sight(self) -> Sight:
        return _sight(os.fstat(self._fd))

    @property
    def position(self) -> TailPosition:
        if len(self._head) < HEAD_BYTES:
            self._head = os.pread(self._fd, HEAD_BYTES, 0)
        return TailPosition(
            inode=self.sight.inode,
            offset=self._offset,
            line=self._text.line,
            head=_hash(self._head[: self._offset]),
            tail=_hash(self._tail),
            skipping=self._text.skipping,
        )

    def close(self) -> None:
        os.close(self._fd)

    def begin(self, *, ended: bool = False) -> bool:
        """Read the beginning, which names the columns of CSV, once it is complete. Returns whether it has been read."""
        if self._begun:
            return True
        limit = max(HEAD_BYTES, self._settings.max_record_bytes)
        start, head = self._text_at(0, limit)
        if not head or (b"\n" not in head and len(head) < limit and not ended):
            return False
        began = self._format.begin(head)
        if began and self._offset < start + began:
            self._offset, self._text.line = start + began, 1 + head[:began].count(b"\n")
        self._tail, self._begun = self._before(self._offset), True
        return True

    def take(self, *, ended: bool = False) -> ParsedText | None:
        """Return the next complete records; None if there are none yet.

        With ``ended``, no more will be written, and the rest is a record. Raises :class:`FileCut`.
        """
        if self.sight.size < self._offset + self._hole + len(self._text.buffered):
            raise FileCut
        if not self.begin(ended=ended):
            return None
        parsed_text = self._text.take()
        if parsed_text is None:
            parsed_text = self._read_on(ended)
        if parsed_text is not None:
            self._offset += self._hole + len(parsed_text.text)
            self._tail = (self._tail + bytes(min(self._hole, TAIL_BYTES)) + parsed_text.text)[-TAIL_BYTES:]
            self._hole = 0
        return parsed_text

    def _read_on(self, ended: bool) -> ParsedText | None:
        buffered, size = self._text.buffered, self._settings.block_bytes
        at = self._offset + self._hole + len(buffered)
        if buffered or self._text.skipping:
            data = os.pread(self._fd, size, at)
        else:
            at, data = self._text_at(at, size)
        if not data:
            return self._text.take(ended=True) if ended else None
        hole = at - self._offset - len(buffered)
        # Checked after the read, so that no truncation in between goes unnoticed.
        before = (self._tail + bytes(min(hole, TAIL_BYTES)) + buffered)[-TAIL_BYTES:]
        if self._before(at, len(before)) != before:
            raise FileCut
        self._hole = hole
        # A hole after a line is passed over by the next call.
        self._text.add(data[: data.find(b"\n\0") + 1] or data)
        return self._text.take()

    def _text_at(self, offset: int, size: int) -> tuple[int, bytes]:
        """Return the text from the offset on, and where it begins: it may follow a hole."""
        data = os.pread(self._fd, size, offset)
        if not data.startswith(b"\0"):
            return offset, data
        start = text_start(self._fd, offset)
        return (offset, b"") if start is None else (start, os.pread(self._fd, size, start))

    def _go_to_end(self) -> None:
        """Go to the end, or to the beginning of an incomplete last line. Lines are counted from there."""
        size, began = self.sight.size, self._offset
        start = max(began, size - self._settings.max_record_bytes)
        end = os.pread(self._fd, size - start, start)
        line_end = max(end.rfind(b"\n"), end.rfind(b"\0")) + 1
        if line_end or start == began:
            self._offset = start + line_end
        else:
            self._offset, self._text.skipping = size, True
        self._text.line, self._tail = 1, self._before(self._offset)

    def _before(self, offset: int, size: int = TAIL_BYTES) -> bytes:
        start = max(0, offset - size)
        return os.pread(self._fd, offset - start, start)


def open_regular(path: Path, roots: Sequence[str]) -> int:
    """Open a regular file without blocking; return the descriptor.

    Raises ``file-not-found``, ``file-unreadable``, ``outside-roots``.
    """
    try:
        descriptor = open_within(path, roots, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError as error:
        hint = "it has to lie on the source's node"
        raise SbonError("file-not-found", f"there is no file {path}", where="options.path", hint=hint) from error
    except OSError as error:
        raise SbonError("file-unreadable", f"{path} cannot be read: {error.strerror}", where="options.path") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SbonError("file-unreadable", f"{path} is no file", where="options.path")
    return descriptor


def look(path: Path, *, follow: bool = True) -> Sight | None:
    """Return the file under the name; None if there is none."""
    try:
        status = os.stat(path, follow_symlinks=follow)
    except OSError:
        return None
    return _sight(status) if stat.S_ISREG(status.st_mode) else None


def holds(path: Path, position: TailPosition, roots: Sequence[str]) -> bool:
    """Return whether this file, under any name, holds the content read up to the position."""
    try:
        descriptor = open_regular(path, roots)
    except SbonError:
        return False
    try:
        if os.fstat(descriptor).st_size < position.offset:
            return False
        head = os.pread(descriptor, min(HEAD_BYTES, position.offset), 0)
        start = max(0, position.offset - TAIL_BYTES)
        tail = os.pread(descriptor, position.offset - start, start)
        return (_hash(head), _hash(tail)) == (position.head, position.tail)
    finally:
        os.close(descriptor)


def _sight(status: os.stat_result) -> Sight:
    return Sight(status.st_ino, status.st_size, status.st_mtime_ns)


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=8).digest()
