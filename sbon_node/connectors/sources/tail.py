"""Source ``tail``: a growing file, followed through renames.

While the source reads a file, the file may be renamed and another created under its name (rotation), or copied and truncated
(copytruncate). The source first reads the open file to its end: the file has ended once another bears its name and nothing was
written to it for a while. After a restart the source looks for the position's file under its name and under rotated names: the
name, ``.`` or ``-``, and more. It reads a line once it has its newline.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pyarrow as pa
import structlog
from msgspec import Meta

from sbon_node.clock import Clock
from sbon_node.connectors.formats.blocks import TextFormat
from sbon_node.connectors.formats.growing_text import ParsedText
from sbon_node.connectors.formats.text_format import (
    TEXT_SUFFIXES,
    Arrival,
    Delimiter,
    Header,
    Null,
    Pattern,
    Stamp,
    TimestampFormat,
    text_format,
)
from sbon_node.connectors.interface import BadRow, Chunk
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.tail_file import FileCut, Sight, TailFile, TailPosition, holds, look
from sbon_node.errors import SbonError

log = structlog.get_logger()

SETTLE_S = 2.0
"""Seconds without writes after which a replaced file counts as ended, and without a file after which it is missing."""
NOT_YET = TailPosition(inode=0, offset=0, line=1)
"""Position before a file that did not exist when the source began: all of it is read, also after a restart."""
PACKED = (".gz", ".bz2", ".xz", ".zst", ".lz4")


class TailOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the connector ``tail``."""

    path: Annotated[str, Meta(min_length=1, description="the file, at the source's node")]
    from_: Annotated[Literal["end", "beginning"], Meta(description="where it begins to read")] = msgspec.field(
        default="end", name="from"
    )
    format: Annotated[
        Literal["", "csv", "ndjson", "text"], Meta(description="by default what the file's name ends with, else text")
    ] = ""
    pattern: Pattern = ""
    header: Header = True
    delimiter: Delimiter = ""
    null: Null = ""
    timestamp_format: TimestampFormat = ""
    stamp: Stamp = False
    poll_s: Annotated[float, Meta(ge=0.01, le=3600, description="seconds between two looks at the file")] = 0.25


class TailSource:
    """Tail source; see :class:`sbon_node.connectors.interface.Source`. ``permitted`` raises for a path that may not be read."""

    finite = False
    waits = True

    def __init__(
        self,
        options: TailOptions,
        schema: pa.Schema,
        event_time: str,
        settings: ConnectorSettings,
        clock: Clock,
        permitted: Callable[[str], None],
    ) -> None:
        self._options, self._settings, self._clock, self._permitted = options, settings, clock, permitted
        self._path, self._roots = Path(options.path).expanduser(), settings.data_roots
        self._schema, self._event_time = schema, event_time
        self._arrival = Arrival(clock.wall_ms)
        self._format()
        self._file: TailFile | None = None
        self._position: TailPosition | None = None
        """Position of the last chunk returned."""
        self._at_end = False
        self._ends_at: float | None = None
        self._missing_since: float | None = None

    def check(self) -> None:
        """Refuse a file that cannot be read; one that does not exist yet is awaited if its folder exists."""
        self._permitted(str(self._path))
        try:
            file = TailFile(self._path, self._format(), self._settings)
        except SbonError as error:
            if error.code == "file-not-found" and self._path.parent.is_dir():
                return
            raise
        try:
            file.begin()
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
        self._file, self._ends_at = None, None

    def _step(self) -> Chunk | None:
        """Return the next chunk that is available without waiting."""
        if self._file is None:
            return self._begin()
        try:
            parsed_text = self._file.take()
            if parsed_text is not None:
                self._ends_at = None
                return self._chunk(parsed_text)
            if not self._has_ended():
                return None
            parsed_text = self._file.take(ended=True)
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

    def _begin(self) -> Chunk | None:
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
        self._permitted(str(path))
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
        """Return the file that was begun next.

        Several files begun while the source was stopped come in the order of their last changes.
        """
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
        suffix = self._path.suffix.lower()
        added = {self._event_time: self._arrival}
        # Plain lines without a time column get the time of reading.
        stamped = options.stamp or (self._kind == "text" and f"(?P<{self._event_time}>" not in options.pattern)
        return text_format(
            self._kind,
            self._schema,
            header=options.header,
            delimiter=options.delimiter or ("\t" if suffix == ".tsv" else ","),
            null=options.null,
            timestamp_format=options.timestamp_format,
            pattern=options.pattern,
            added=added if stamped else None,
        )

    @property
    def _kind(self) -> Literal["csv", "ndjson", "text"]:
        if self._options.format != "":
            return self._options.format
        return TEXT_SUFFIXES.get(self._path.suffix.lower(), "text")


def _is_at(path: Path, position: TailPosition, roots: Sequence[str]) -> bool:
    """Return whether the path leads to the position's file. A file without any row read is recognised by its inode alone."""
    sight = look(path)
    same = sight is not None and sight.inode == position.inode
    return (same or position.offset > 0) and holds(path, position, roots)
