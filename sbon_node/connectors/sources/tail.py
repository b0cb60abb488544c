"""Source ``tail``: a growing file, followed through renames.

While the source reads a file, the file may be renamed and another created under its name (rotation), or copied and truncated
(copytruncate). The source first reads the open file to its end: the file has ended once another bears its name and nothing was
written to it for a while. After a restart the source looks for the position's file under its name and under rotated names: the
name, ``.`` or ``-``, and more. It reads a line once it has its newline.
"""

import asyncio
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import structlog
from msgspec import Meta

from sbon_node.connectors.access.roots import check_within, open_within
from sbon_node.connectors.formats import text_format as texts
from sbon_node.connectors.formats.blocks import TextFormat
from sbon_node.connectors.formats.text_file import (
    HEAD_BYTES,
    TAIL_BYTES,
    GrowingText,
    ParsedText,
    named_file,
    short_hash,
    text_start,
)
from sbon_node.connectors.formats.text_format import Delimiter, Header, Null, Pattern, Stamp, TimestampFormat
from sbon_node.connectors.interface import BadRow, Chunk
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.context import SourceContext
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

# -- A growing file, read by complete records and recognised by content despite renames -------------------------------


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
        if at_end and self.read_beginning():
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
            head=short_hash(self._head[: self._offset]),
            tail=short_hash(self._tail),
            skipping=self._text.skipping,
        )

    def close(self) -> None:
        os.close(self._fd)

    def read_beginning(self, *, ended: bool = False) -> bool:
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

    def take_records(self, *, ended: bool = False) -> ParsedText | None:
        """Return the next complete records; None if there are none yet.

        With ``ended``, no more will be written, and the rest is a record. Raises :class:`FileCut`.
        """
        if self.sight.size < self._offset + self._hole + len(self._text.buffered):
            raise FileCut
        if not self.read_beginning(ended=ended):
            return None
        parsed_text = self._text.take_records()
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
            return self._text.take_records(ended=True) if ended else None
        hole = at - self._offset - len(buffered)
        # Checked after the read, so that no truncation in between goes unnoticed.
        before = (self._tail + bytes(min(hole, TAIL_BYTES)) + buffered)[-TAIL_BYTES:]
        if self._before(at, len(before)) != before:
            raise FileCut
        self._hole = hole
        # A hole after a line is passed over by the next call.
        self._text.add(data[: data.find(b"\n\0") + 1] or data)
        return self._text.take_records()

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
    """Open a regular file without blocking. Raises ``file-not-found``, ``file-unreadable``, ``outside-roots``."""
    with named_file(path):
        descriptor = open_within(path, roots, os.O_RDONLY | os.O_NONBLOCK)
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
        return (short_hash(head), short_hash(tail)) == (position.head, position.tail)
    finally:
        os.close(descriptor)


def _sight(status: os.stat_result) -> Sight:
    return Sight(status.st_ino, status.st_size, status.st_mtime_ns)


# ---------------------------------------------------------------------------------------------------------------------

SETTLE_S = 2.0
"""Seconds without writes after which a replaced file counts as ended, and without a file after which it is missing."""
NOT_YET = TailPosition(inode=0, offset=0, line=1)
"""Position before a file that did not exist when the source began: all of it is read, also after a restart."""
PACKED = (".gz", ".bz2", ".xz", ".zst", ".lz4")


class TailOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the connector ``tail``."""

    path: Annotated[str, Meta(min_length=1)]
    """the file, at the source's node"""
    from_: Literal["end", "beginning"] = msgspec.field(default="end", name="from")
    """where it begins to read"""
    format: Literal["", "csv", "ndjson", "text"] = ""
    """by default what the file's name ends with, else text"""
    pattern: Pattern = ""
    header: Header = True
    delimiter: Delimiter = ""
    null: Null = ""
    timestamp_format: TimestampFormat = ""
    stamp: Stamp = False
    poll_s: Annotated[float, Meta(ge=0.01, le=3600)] = 0.25
    """seconds between two looks at the file"""


class TailSource:
    """Tail source; see :class:`sbon_node.connectors.interface.Source`."""

    finite = False
    waits = True

    def __init__(self, context: SourceContext, options: TailOptions) -> None:
        self._options, self._settings, self._clock = options, context.settings, context.clock
        self._path, self._roots = Path(options.path).expanduser(), context.settings.data_roots
        self._schema, self._event_time = context.schema, context.stream.event_time
        self._arrival = texts.Arrival(context.clock.wall_ms)
        self._format()
        self._file: TailFile | None = None
        self._position: TailPosition | None = None
        """Position of the last chunk returned."""
        self._at_end = False
        self._ends_at: float | None = None
        self._missing_since: float | None = None

    def check(self) -> None:
        """Refuse a file that cannot be read; one that does not exist yet is awaited if its folder exists."""
        check_within(str(self._path), self._roots)
        try:
            file = TailFile(self._path, self._format(), self._settings)
        except SbonError as error:
            if error.code == "file-not-found" and self._path.parent.is_dir():
                return
            raise
        try:
            file.read_beginning()
        finally:
            file.close()

    async def open(self, position: bytes | None) -> None:
        self._let_go()
        self._position = msgspec.msgpack.decode(position, type=TailPosition) if position else None
        self._at_end = self._options.from_ == "end"
        if self._missing_since is not None and look(self._path) is None:
            raise self._missing()

    async def read(self) -> Chunk | None:
        # Between blocks other tasks run.
        await asyncio.sleep(0)
        while (chunk := self._step()) is None:
            await self._clock.sleep(self._options.poll_s)
        return chunk

    async def close(self) -> None:
        self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._ends_at = None

    def _step(self) -> Chunk | None:
        """Return the next chunk that is available without waiting."""
        if self._file is None:
            return self._open_file()
        try:
            parsed_text = self._file.take_records()
            if parsed_text is not None:
                self._ends_at = None
                return self._chunk(parsed_text)
            if not self._has_ended():
                return None
            parsed_text = self._file.take_records(ended=True)
            if parsed_text is not None:
                return self._chunk(parsed_text)
            self._follow(self._successor(self._file))
        except FileCut:
            log.info("tail-truncated", path=str(self._path))
            return self._take_up("was truncated, and no copy of it is here")
        return None

    def _take_up(self, fate: str) -> Chunk | None:
        """Go on in the file that holds what was read until now, or in the one that has the name now.

        In the latter case lines may be lost, which is a bad row that names the ``fate`` of the file.
        """
        position = self._position
        if position is None:
            self._follow(self._path)
            return None
        # A copy may have the last writes before the file was truncated.
        path = next((path for path in (self._path, *self._siblings()) if _is_at(path, position, self._roots)), None)
        self._follow(path or self._path, position if path else None)
        if self._file is None:
            self._wait()
            return None
        if path is not None or position == NOT_YET:
            return None
        reason = f"the file that was read up to line {position.line - 1:,} {fate}: lines written to it since may be lost"
        return self._chunk(None, BadRow(position.line, "", reason))

    def _open_file(self) -> Chunk | None:
        """Open the file, once it exists, at the position or at the configured beginning."""
        if self._position is not None:
            return self._take_up("is gone")
        if look(self._path) is None:
            return self._chunk(None, position=NOT_YET)
        self._follow(self._path, at_end=self._at_end)
        # Returned at once, so that "the end" is the same after a restart.
        return self._chunk(None) if self._file is not None else None

    def _follow(self, path: Path, position: TailPosition | None = None, *, at_end: bool = False) -> None:
        """Switch to another file, or to none if it is missing now."""
        self._let_go()
        check_within(str(path), self._roots)
        try:
            self._file = TailFile(path, self._format(), self._settings, position, at_end=at_end)
            self._missing_since = None
        except SbonError as error:
            if error.code != "file-not-found":
                raise

    def _wait(self) -> None:
        """Raise ``file-not-found`` once no file has had the name for longer than a rotation takes."""
        if self._missing_since is None:
            self._missing_since = self._clock.now()
        elif self._clock.now() >= self._missing_since + SETTLE_S:
            raise self._missing()

    def _missing(self) -> SbonError:
        hint = "it is read once it is there"
        return SbonError("file-not-found", f"there is no file {self._path}", where="options.path", hint=hint)

    def _has_ended(self) -> bool:
        """Return whether another file has the name and this file was not written recently."""
        assert self._file is not None
        sight = look(self._path)
        if sight is None or sight.inode == self._file.sight.inode:
            self._ends_at = None
            return False
        if self._ends_at is None:
            self._ends_at = self._clock.now() + SETTLE_S
        return self._clock.now() >= self._ends_at

    def _successor(self, file: TailFile) -> Path:
        """Return the file that was begun next: of several, by the order of their last changes."""
        own, position = file.sight, file.position
        for path, sight in self._siblings().items():
            later = sight.inode != own.inode and sight.changed_ns > own.changed_ns
            if later and not (position.offset > 0 and holds(path, position, self._roots)):
                return path
        return self._path

    def _siblings(self) -> dict[Path, Sight]:
        """Return the files with rotated names, in the order of their last changes."""
        begins = (f"{self._path.name}.", f"{self._path.name}-")
        try:
            with os.scandir(self._path.parent) as entries:
                names = [entry.name for entry in entries if entry.name.startswith(begins) and not entry.name.endswith(PACKED)]
        except OSError:
            return {}
        sights = {path: sight for name in names if (sight := look(path := self._path.parent / name, follow=False)) is not None}
        return dict(sorted(sights.items(), key=lambda item: (item[1].changed_ns, item[0])))

    def _chunk(self, parsed_text: ParsedText | None, *bad: BadRow, position: TailPosition | None = None) -> Chunk:
        """Return a chunk that ends at the file's position, or at the given one."""
        if parsed_text is None:
            parsed_text = ParsedText(self._format().parse(b"", 1), b"")
        if position is None:
            assert self._file is not None
            position = self._file.position
        self._position = position
        rows = parsed_text.parsed.rows
        return Chunk(rows, msgspec.msgpack.encode(position), parsed_text.parsed.origin, bad=(*bad, *parsed_text.parsed.bad))

    def _format(self) -> TextFormat:
        """Return a new format for each file, since its columns may be in another order."""
        options = self._options
        added = {self._event_time: self._arrival}
        # Plain lines without a time column get the time of reading.
        stamped = options.stamp or (self._kind == "text" and f"(?P<{self._event_time}>" not in options.pattern)
        return texts.text_format(
            self._kind,
            self._schema,
            header=options.header,
            delimiter=options.delimiter or texts.default_delimiter(self._path),
            null=options.null,
            timestamp_format=options.timestamp_format,
            pattern=options.pattern,
            added=added if stamped else None,
        )

    @property
    def _kind(self) -> Literal["csv", "ndjson", "text"]:
        if self._options.format != "":
            return self._options.format
        return texts.TEXT_SUFFIXES.get(self._path.suffix.lower(), "text")


def _is_at(path: Path, position: TailPosition, roots: Sequence[str]) -> bool:
    """Return whether the path leads to the position's file. A file without any row read is recognised by its inode alone."""
    sight = look(path)
    same = sight is not None and sight.inode == position.inode
    return (same or position.offset > 0) and holds(path, position, roots)
