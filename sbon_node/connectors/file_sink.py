"""Sink ``file``: each row exactly once, whatever dies when (docs/design.md, section 8).

A position file beside the result says up to which frame of each stream, and up to which byte (of CSV and NDJSON) or part (of
Parquet), the result holds: it is replaced in one step, after the rows are synced. What is beyond it is cut off, or removed,
before anything else is written, and comes again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pyarrow as pa
from msgspec import Meta

from sbon_node.blocking import Blocking
from sbon_node.connectors import sink_files
from sbon_node.connectors.held import Held
from sbon_node.connectors.sink_files import SinkFormat
from sbon_node.connectors.sink_position import FilePosition, check_free, lost, make_claim, part_path, position_path, take_up
from sbon_node.connectors.sink_position import withdraw as withdraw_result
from sbon_node.disk import named_errors, replace, sync_folder
from sbon_node.errors import SbonError
from sbon_node.steps import Steps, unobserved
from sbon_node.streams.frame import Frame

SUFFIXES: dict[str, SinkFormat] = {
    ".csv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".parquet": "parquet",
}

TEXT_FLUSH_S = 0.05
MAX_HELD_BYTES = 8 * 1024 * 1024


class FileSinkOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the sink ``file``."""

    path: Annotated[str, Meta(min_length=1, description="the file, or for Parquet the folder of parts, at the consumer's node")]
    format: Annotated[Literal["", "csv", "ndjson", "parquet"], Meta(description="by default what the name ends with")] = ""
    part_rows: Annotated[int, Meta(ge=1, le=10**8, description="Parquet: rows after which a part is complete")] = 1_000_000
    part_s: Annotated[float, Meta(gt=0, le=86_400, description="Parquet: seconds after which a part is complete")] = 5.0


class FileSink:
    """See :class:`sbon_node.connectors.interface.Sink`.

    ``fresh`` makes ``claim`` at a path where nothing is, else ``sink-exists``; otherwise the sink goes on where an earlier one
    with that claim was, else ``sink-lost``. Making one blocks until the disk has it; later writes are ``blocking``'s.
    """

    refused = 0
    dead_letters = ""

    def __init__(
        self,
        options: FileSinkOptions,
        schema: pa.Schema,
        blocking: Blocking,
        steps: Steps = unobserved,
        *,
        claim: str,
        fresh: bool,
    ) -> None:
        self.path, self._format = _place(options)
        sink_files.check_schema(self._format, schema)
        self._options, self._schema, self._blocking, self._steps = options, schema, blocking, steps
        self._stated = position_path(self.path, self._format)
        columns = tuple(f"{field.name} {field.type}" for field in schema)
        with named_errors(self.path):
            self._position = (make_claim if fresh else take_up)(self.path, self._format, columns, claim)
            if not fresh:
                self._clean()
        self._held = Held(schema, self._position.streams, self._position.ended)

    @property
    def rows(self) -> int:
        """Rows durably delivered."""
        return self._position.rows

    def positions(self) -> dict[str, int]:
        return dict(self._position.streams)

    @property
    def ended(self) -> frozenset[str]:
        return frozenset(self._position.ended)

    def take(self, frame: Frame) -> None:
        self._held.take(frame)

    @property
    def wants_flush(self) -> bool:
        return self._held.bytes >= MAX_HELD_BYTES or (self._format == "parquet" and self._held.rows >= self._options.part_rows)

    @property
    def flush_after_s(self) -> float:
        return self._options.part_s if self._format == "parquet" else TEXT_FLUSH_S

    async def flush(self) -> dict[str, int]:
        if self._held.taken != self._position.streams:
            await self._blocking(lambda: self._store(finished=False))
        return self.positions()

    async def finish(self) -> None:
        """A result without rows still has its columns."""
        if not self._position.finished:
            await self._blocking(lambda: self._store(finished=True))

    async def close(self) -> None:
        self._held.reset(self._position.streams, self._position.ended)

    def _store(self, *, finished: bool) -> None:
        """Rows, synced, then the position that counts them: nothing else touches the sink meanwhile."""
        position = msgspec.structs.replace(
            self._position,
            streams=dict(sorted(self._held.taken.items())),
            ended=tuple(sorted(self._held.ended)),
            rows=self._position.rows + self._held.rows,
            finished=finished,
        )
        with named_errors(self.path):
            position = self._write_part(position) if self._format == "parquet" else self._append(position)
            self._steps("sink-write")
            replace(self._stated, msgspec.json.encode(position))
        self._position = position
        self._held.clear()
        self._steps("position-write")

    def _append(self, position: FilePosition) -> FilePosition:
        content = b"" if position.length else sink_files.beginning(self._format, self._schema)
        content += b"".join(sink_files.text(self._format, one.rows) for one in self._held.frames)
        if not content:
            return position
        with open(self.path, "r+b") as file:
            # An earlier try may have left a part of this.
            file.truncate(self._position.length)
            file.seek(self._position.length)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return msgspec.structs.replace(position, length=position.length + len(content))

    def _write_part(self, position: FilePosition) -> FilePosition:
        if not self._held.frames and (position.parts or not position.finished):
            return position
        held = [one.rows for one in self._held.frames]
        rows = pa.concat_tables(held) if held else self._schema.empty_table()
        with open(part_path(self.path, position.parts + 1), "wb") as file:
            file.write(sink_files.part(rows))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.path)
        return msgspec.structs.replace(position, parts=position.parts + 1)

    def _clean(self) -> None:
        """Removes what an earlier run wrote and did not get to state."""
        self._stated.with_name(self._stated.name + ".new").unlink(missing_ok=True)
        if self._format == "parquet":
            if not self.path.is_dir():
                raise lost(self.path, "the folder is gone")
            named = {part_path(self.path, number).name for number in range(1, self._position.parts + 1)}
            for found in sorted(self.path.glob("part-*.parquet")):
                if found.name not in named:
                    found.unlink()
            missing = sorted(name for name in named if not (self.path / name).is_file())
            if missing:
                raise lost(self.path, f"{missing[0]} is gone")
            return
        size = self.path.stat().st_size if self.path.exists() else 0
        if size < self._position.length:
            raise lost(self.path, f"it has {size:,} bytes, and {self._position.length:,} were written")
        with open(self.path, "ab") as file:
            file.truncate(self._position.length)
            os.fsync(file.fileno())
        sync_folder(self.path.parent)


def check_options(options: FileSinkOptions) -> None:
    """Raises what :class:`FileSink` would for a fresh one, and touches nothing."""
    check_free(*_place(options))


def withdraw(options: FileSinkOptions, claim: str, *, delivered: bool) -> None:
    """See :func:`sbon_node.connectors.sink_position.withdraw`."""
    withdraw_result(*_place(options), claim, delivered=delivered)


def _place(options: FileSinkOptions) -> tuple[Path, SinkFormat]:
    path = Path(options.path).expanduser()
    kind = options.format or SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise SbonError(
            "bad-option",
            f"the name {path.name} does not tell the format",
            where="options.format",
            hint="set format to csv, ndjson or parquet",
        )
    return path, kind
