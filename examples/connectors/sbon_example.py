"""A source and a sink for sbon, to begin one's own with (docs/connectors.md, "Writing a connector")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import pyarrow as pa
from msgspec import Meta

from sbon_node.base.disk import named_errors, replace
from sbon_node.connectors.access.roots import check_within
from sbon_node.connectors.interface import Chunk
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.buffer import Buffer
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.registry import SinkConnector
from sbon_node.connectors.sources.registry import Connector, SourceContext
from sbon_node.model.frames import Frame
from sbon_protocol.errors import SbonError


class TicksOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user's options; they are read and checked by these types."""

    interval_s: Annotated[float, Meta(gt=0, le=86_400, description="seconds between two rows")] = 1.0


class Ticks:
    """A row every ``interval_s``, with its number ``n`` and the event time. Its position is the number of the last row."""

    finite = False
    waits = False

    def __init__(self, context: SourceContext, options: TicksOptions) -> None:
        self._options, self._clock, self._schema = options, context.clock, context.schema
        self._event_time = context.stream.event_time
        self._last = 0

    def check(self) -> None:
        unknown = sorted(set(self._schema.names) - {"n", self._event_time})
        if unknown:
            raise SbonError("bad-option", "a tick has only n and a time", where=f"columns.{unknown[0]}")

    async def open(self, position: bytes | None) -> None:
        self._last = int(position or b"0")

    async def read(self) -> Chunk | None:
        # Nothing changes before the wait is over, so a cancellation loses nothing.
        await self._clock.sleep(self._options.interval_s)
        self._last += 1
        number = self._last
        row = {"n": number, self._event_time: datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)}
        rows = pa.RecordBatch.from_pylist([row], self._schema)
        return Chunk(rows, b"%d" % number, lambda i: (number, str(number)))

    async def close(self) -> None:
        """Nothing is open."""


TICKS = Connector(TicksOptions, Ticks)


class TallyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``url`` is what stood after ``--to``."""

    url: Annotated[str, Meta(pattern="^tally:.+", description="tally:PATH, a file at the consumer's node")]
    group: Annotated[str, Meta(min_length=1, description="the column by whose values rows are counted")]


class Tallied(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of the file. Counts and position are replaced in one step, so each row is counted exactly once."""

    claim: str
    counts: dict[str, int] = {}
    streams: dict[str, int] = {}
    ended: tuple[str, ...] = ()


class Tally:
    """How many rows there were of each group, in a file of JSON."""

    wants_flush = False
    flush_after_s = 0.2
    refused = 0
    dead_letters = ""

    def __init__(self, context: SinkContext, options: TallyOptions, stored: Tallied) -> None:
        self._path, self._group, self._executor = path_of(options), options.group, context.executor
        self._stored = stored
        self._buffer = Buffer(context.schema, stored.streams, stored.ended)

    def positions(self) -> dict[str, int]:
        return dict(self._stored.streams)

    @property
    def ended(self) -> frozenset[str]:
        return frozenset(self._stored.ended)

    @property
    def rows(self) -> int:
        return sum(self._stored.counts.values())

    def take(self, frame: Frame, unpacked: pa.Table | None = None) -> None:
        self._buffer.take(frame, unpacked)

    async def flush(self) -> Mapping[str, int]:
        if self._buffer.taken != self._stored.streams:
            counts = Counter(self._stored.counts)
            for one in self._buffer.frames:
                counts.update(str(value) for value in one.rows.column(self._group).to_pylist())
            stored = Tallied(
                claim=self._stored.claim, counts=dict(counts), streams=dict(self._buffer.taken), ended=tuple(self._buffer.ended)
            )
            await self._executor(lambda: store(self._path, stored))
            self._stored = stored
            self._buffer.clear()
        return self.positions()

    async def finish(self) -> None:
        """All has been counted."""

    async def close(self) -> None:
        self._buffer.reset(self._stored.streams, self._stored.ended)


def check_tally(options: TallyOptions, settings: ConnectorSettings) -> None:
    """Refuses at submission; nothing is touched."""
    check_within(str(path_of(options)), settings.data_roots)
    if path_of(options).exists():
        raise SbonError("sink-exists", f"there is something at {path_of(options)} already", where="options.url")


async def open_tally(context: SinkContext, options: TallyOptions) -> Tally:
    """Create the file, or continue after an earlier run."""
    if options.group not in context.schema.names:
        raise SbonError("bad-option", f"the query has no column {options.group!r}", where="options.group")
    path = path_of(options)
    if context.fresh:
        check_tally(options, context.settings)
        stored = Tallied(claim=context.claim)
        await context.executor(lambda: store(path, stored))
    else:
        stored = await context.executor(lambda: load(path))
    return Tally(context, options, stored)


async def withdraw_tally(context: SinkContext, options: TallyOptions, delivered: bool) -> None:
    """Removes what was made for this claim, if nothing of it is to stay."""
    path = path_of(options)

    def remove() -> None:
        if path.exists() and (stored := load(path)).claim == context.claim and (delivered or not stored.streams):
            path.unlink()

    await context.executor(remove)


def path_of(options: TallyOptions) -> Path:
    return Path(options.url.partition(":")[2])


def store(path: Path, stored: Tallied) -> None:
    with named_errors(path):  # a full disk is waited out
        replace(path, msgspec.json.encode(stored))


def load(path: Path) -> Tallied:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Tallied)
    except (OSError, msgspec.DecodeError) as error:
        raise SbonError("sink-lost", f"the tally cannot be read: {error}", where=str(path)) from error


TALLY = SinkConnector(TallyOptions, check_tally, open_tally, withdraw_tally)
