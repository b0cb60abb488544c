"""Source ``file``: CSV, NDJSON or Parquet, at full speed or paced by event time."""

import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Meta

from sbon_node.connectors.access.roots import check_within
from sbon_node.connectors.formats import text_format as texts
from sbon_node.connectors.formats.blocks import Block, BlockReader
from sbon_node.connectors.formats.parquet import ParquetRows
from sbon_node.connectors.formats.text_file import TextRows
from sbon_node.connectors.formats.text_format import Delimiter, Header, Null, TimestampFormat
from sbon_node.connectors.formats.times import check_timestamp_format
from sbon_node.connectors.interface import Chunk
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.context import SourceContext
from sbon_node.connectors.sources.event_time import FIRST_MS, milliseconds
from sbon_protocol.errors import SbonError

Format = Literal["csv", "ndjson", "parquet"]

SUFFIXES: dict[str, Format] = {**texts.TEXT_SUFFIXES, ".parquet": "parquet"}


class FileOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the connector ``file``."""

    path: Annotated[str, Meta(min_length=1)]
    """the file, at the source's node"""
    format: Literal["", "csv", "ndjson", "parquet"] = ""
    """by default what the file's name ends with"""
    replay: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    """0 reads as fast as it goes, 1 at the pace of event time, 60 a minute of it each second"""
    header: Header = True
    delimiter: Delimiter = ""
    null: Null = ""
    timestamp_format: TimestampFormat = ""


class FileSource:
    """See :class:`sbon_node.connectors.interface.Source`."""

    finite = True
    waits = True

    def __init__(self, context: SourceContext, options: FileOptions) -> None:
        check_within(options.path, context.settings.data_roots)
        self._replay = options.replay
        self._event_time, self._linger_s = context.stream.event_time, context.settings.linger_s
        check_timestamp_format(options.timestamp_format)
        self._reader = _reader(options, context.schema, context.settings)
        self._block: Block | None = None
        self._done = 0
        self._before: float | None = None
        self._due_s: Any = None
        self._reached_s = -np.inf

    @property
    def share(self) -> float | None:
        """Return the share of the file read, without rows not due yet."""
        start, end = self._before, self._reader.share
        if start is None or end is None or self._block is None:
            return end
        return start + (end - start) * self._done / max(1, len(self._block.rows))

    def check(self) -> None:
        self._reader.check()

    async def open(self, position: bytes | None) -> None:
        self._block, self._done, self._reached_s = None, 0, -np.inf
        self._reader.open(position)

    async def read(self) -> Chunk | None:
        # It reads and parses a block at a time; between blocks other tasks run.
        await asyncio.sleep(0)
        if self._block is None:
            self._before = self._reader.share
            self._block, self._done = self._reader.read(), 0
            if self._block is None:
                return None
            if self._replay:
                self._due_s = self._due(self._block)
        block, first = self._block, self._done
        last = block.rows.num_rows
        due_s = None
        if self._replay and first < last:
            last = int(np.searchsorted(self._due_s, self._due_s[first] + self._linger_s, side="right"))
            due_s = float(self._due_s[last - 1]) if np.isfinite(self._due_s[last - 1]) else None
        self._done = last
        if last == block.rows.num_rows:
            self._block = None
        rows = block.rows.slice(first, last - first)
        bad = block.bad if first == 0 else ()
        return Chunk(rows, block.position(last), lambda i: block.origin(first + i), bad=bad, due_s=due_s)

    async def close(self) -> None:
        self._reader.close()

    def _due(self, block: Block) -> Any:
        """Return when each row is due, in seconds of the replay.

        No row is due before its predecessor. Rows before the first usable time are due at minus infinity.
        """
        times, null = milliseconds(block.rows.column(self._event_time))
        due_s = np.where(null | (times < FIRST_MS), -np.inf, times / 1000.0 / self._replay)
        due_s = np.maximum(np.maximum.accumulate(due_s), self._reached_s) if len(due_s) else due_s
        if len(due_s):
            self._reached_s = float(due_s[-1])
        return due_s


def _reader(options: FileOptions, schema: pa.Schema, settings: ConnectorSettings) -> BlockReader:
    path = Path(options.path).expanduser()
    kind = options.format or SUFFIXES.get(path.suffix.lower())
    if kind is None and path.is_dir():
        raise SbonError("bad-option", f"{path} is a folder", where="options.path", hint="name a file in it")
    if kind is None:
        raise texts.format_unknown(path)
    if kind == "parquet":
        return ParquetRows(path, schema, settings)
    rows = texts.text_format(
        kind,
        schema,
        header=options.header,
        delimiter=options.delimiter or texts.default_delimiter(path),
        null=options.null,
        timestamp_format=options.timestamp_format,
    )
    return TextRows(path, rows, settings)
