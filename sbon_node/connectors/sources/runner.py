"""Runs a source: reads, drops late rows, stores frames and position in one transaction (docs/design.md, section 8)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa
import structlog

from sbon_node.base.backoff import Backoff
from sbon_node.base.clock import Clock
from sbon_node.connectors.formats import frames
from sbon_node.connectors.interface import MAY_BE_MENDED, BadRow, Chunk, Confirmed, Measured, Receipt, Source
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.dead_letters import DeadLetters
from sbon_node.connectors.sources.event_time import EventTime
from sbon_node.connectors.sources.sample import RowSample
from sbon_node.model.frames import END_WATERMARK_MS, MAX_ROW_BYTES, FrameDraft
from sbon_node.streams.mean_rate import MeanRate
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.watermark import shown_watermark
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.durability import BackupInfo
from sbon_protocol.api.states import source_states
from sbon_protocol.api.states.source_states import SourceState
from sbon_protocol.api.streams import SourceInfo
from sbon_protocol.errors import SbonError

Waits = Callable[[str], None]
"""Called with the reason for which the source has to wait."""


class RowsBackup(Protocol):
    """Another node, which stores rows before their source shows or confirms them.

    Both calls last as long as it takes. They raise ``fenced`` if another node hosts the source.
    """

    async def begin(self, waits: Waits) -> int:
        """Return the epoch in which this node hosts the source."""
        ...

    async def store(self, drafts: Sequence[FrameDraft], position: bytes, waits: Waits) -> None:
        """Store the next frames of the source's stream, and the position after them."""
        ...

    def info(self) -> BackupInfo: ...


log = structlog.get_logger()

OnState = Callable[[SourceState, str], None]

BEHIND = "its subscribers have not received what there is"
"""Reason of a waiting source's healthy pause."""


class SourceCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the source was attached, restarts included; ``bytes`` count payload."""

    rows: int = 0
    bytes: int = 0
    late: int = 0
    bad: int = 0
    too_large: int = 0


class SourcePosition(msgspec.Struct, frozen=True, kw_only=True):
    """State stored with the frames, from which the source resumes without loss or repetition."""

    connector: bytes | None = None
    greatest_ms: int | None = None
    ended: bool = False
    dead_letters: int = 0
    counts: SourceCounts = SourceCounts()


@dataclass(slots=True)
class _Pending:
    """Rows read and not yet written."""

    since: float = 0.0
    born_ms: int = 0
    size: int = 0
    rows: list[pa.RecordBatch] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    counts: SourceCounts = field(default_factory=SourceCounts)
    position: bytes | None = None

    def __bool__(self) -> bool:
        return self.position is not None


class SourceRunner:
    """Runs a source of this node. A source that waits begins after ``wanted``; by default, after its first subscription."""

    def __init__(
        self,
        declaration: SourceDeclaration,
        stream: StreamDeclaration,
        source: Source,
        *,
        outbox: Outbox,
        clock: Clock,
        settings: ConnectorSettings,
        dead_letters: Path,
        wanted: Callable[[], Awaitable[None]] | None = None,
        on_state: OnState | None = None,
        backup: RowsBackup | None = None,
    ) -> None:
        self.declaration = declaration
        self.state: SourceState = source_states.IDLE
        self.reason = ""
        self.sample = RowSample(settings.sample_rows)
        """A sample of the rows that have passed since this runner started."""
        self._trouble = ""
        self._source, self._outbox, self._clock, self._settings = source, outbox, clock, settings
        self._wanted, self._on_state, self._backup = wanted, on_state, backup
        self._time = EventTime(stream.event_time, stream.delay_ms)
        self._letters = DeadLetters(
            dead_letters, declaration.id, max_bytes=settings.dead_letter_max_bytes, max_text=settings.dead_letter_text_bytes
        )
        self._stored = SourcePosition()
        self._pending = _Pending()
        self._anchor: float | None = None
        self._pace = MeanRate()
        self._paced = not source.finite
        self._advanced_ms: int | None = None

    @property
    def source(self) -> Source:
        return self._source

    @property
    def counts(self) -> SourceCounts:
        """Return the counts of all written rows."""
        return self._stored.counts

    @property
    def position(self) -> bytes | None:
        """Return the connector's position after all written rows."""
        return self._stored.connector

    @property
    def observed_rows_s(self) -> float | None:
        """Return the rows a second while it had rows to read, as a plan expects them; None before the first measurement."""
        return self._pace.rows_s

    def describe(self) -> SourceInfo:
        state = f"{self.state}: {self.reason}" if self.reason else self.state
        letters = str(self._letters.path) if self.counts.bad or self.counts.too_large else ""
        name = self.declaration.id
        rate = self._pace.at_present(self._clock.now())
        return SourceInfo(
            source=self.declaration,
            state=state,
            trouble=self._trouble,
            dropped=self._outbox.link_counts(name).dropped if name in self._outbox.streams() else 0,
            dead_letters=letters,
            rows_s=rate.rows_s,
            bytes_s=rate.bytes_s,
            paced=self._paced,
            watermark_ms=shown_watermark(self._time.watermark_of(self._stored.greatest_ms)),
            advanced_ms=self._advanced_ms,
            finite=self._source.finite,
            read_share=self._read_share(),
            backup=self._backup.info() if self._backup is not None else None,
            **msgspec.structs.asdict(self.counts),
        )

    def _read_share(self) -> float | None:
        if self.state == source_states.ENDED:
            return 1.0
        if not self._source.finite:
            return None
        return self._source.share if isinstance(self._source, Measured) else None

    async def run(self) -> None:
        """Run until the source has ended or failed. Cancel it to stop; another runner can resume."""
        try:
            await self._run()
        except SbonError as error:
            log.warning("source_failed", source=self.declaration.id, code=error.code, reason=str(error))
            self._enter(source_states.FAILED, str(error), _plain(error))

    async def _run(self) -> None:
        name, epoch = self.declaration.id, self.declaration.epoch
        if self._backup is not None:
            epoch = max(epoch, await self._backup.begin(self._wait_for_backup))
        self._outbox.open_stream(name, "source", finite=self._source.finite, epoch=epoch)
        stored = self._outbox.position(name)
        if stored is not None:
            self._stored = msgspec.msgpack.decode(stored, type=SourcePosition)
        if self._backup is not None:
            await self._store([], msgspec.msgpack.encode(self._stored))
        if self._stored.ended:
            self._enter(source_states.ENDED)
            return
        self._time.greatest_ms = self._stored.greatest_ms
        if self._source.waits:
            await (self._wanted() if self._wanted else self._outbox.wait_subscribed(name))
        self._letters.open(self._stored.dead_letters)
        await self._read_on()

    async def _read_on(self) -> None:
        """Read to the end of the source, through any absences and read errors of its input."""
        backoff = Backoff(self._settings.retry_s, self._settings.retry_max_s)
        while True:
            before = self._stored
            try:
                await self._source.open(self._stored.connector)
                self._enter(source_states.RUNNING)
                self._advanced_ms = self._clock.wall_ms() if self._advanced_ms is None else self._advanced_ms
                await self._pump()
                return
            except SbonError as error:
                if error.code not in MAY_BE_MENDED:
                    raise
                reason, trouble = str(error), _plain(error)
                if self._pending:
                    await self._write()
            finally:
                await self._source.close()
            self._enter(source_states.PAUSED, reason, trouble)
            self._pace.pause()
            if self._stored is not before:
                backoff.reset()
            await self._clock.sleep(backoff.next_s())

    async def _pump(self) -> None:
        reading: asyncio.Task[Chunk | None] | None = None
        try:
            while True:
                reading = reading or asyncio.get_running_loop().create_task(self._next(), name=f"read {self.declaration.id}")
                left_s = self._pending.since + self._settings.linger_s - self._clock.now() if self._pending else None
                await asyncio.wait([reading], timeout=left_s)
                if not reading.done():
                    await self._write()
                    continue
                chunk, reading = reading.result(), None
                if chunk is None:
                    break
                self._take_chunk(chunk)
                lingered = self._clock.now() >= self._pending.since + self._settings.linger_s
                if lingered or self._pending.size >= frames.AIM_BYTES:
                    await self._write()
            await self._write(ended=True)
            self._enter(source_states.ENDED)
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])

    async def _next(self) -> Chunk | None:
        """Return the next chunk when it is due; the first is due at once."""
        chunk = await self._source.read()
        if chunk is not None and chunk.due_s is not None:
            self._paced = True
            if self._anchor is None:
                self._anchor = self._clock.now() - chunk.due_s
            wait_s = self._anchor + chunk.due_s - self._clock.now()
            if wait_s > 0:
                await self._clock.sleep(wait_s)
        return chunk

    def _take_chunk(self, chunk: Chunk) -> None:
        pending = self._pending
        if not pending:
            pending.since, pending.born_ms, pending.counts = self._clock.now(), self._clock.wall_ms(), self._stored.counts
        watermark_ms = chunk.watermark_ms
        in_time = self._time.sort(chunk.rows) if watermark_ms is None else self._time.trusted(chunk.rows, watermark_ms)
        self._time.advance(in_time)
        rows = chunk.rows if len(in_time.kept) == chunk.rows.num_rows else chunk.rows.take(pa.array(in_time.kept))
        large = frames.oversized(rows)
        bad = [*chunk.bad, *(BadRow(*chunk.origin(i), reason) for i, reason in in_time.refused)]
        reason = f"larger than {MAX_ROW_BYTES:,} bytes"
        bad += [BadRow(*chunk.origin(int(in_time.kept[i])), reason) for i in large]
        if large:
            rows = rows.take(pa.array(np.delete(np.arange(rows.num_rows), large)))
        self.sample.add(rows)
        pending.position = chunk.position
        pending.rows.append(rows)
        pending.size += rows.nbytes
        bad.sort(key=lambda row: row.line)
        pending.bad += bad
        pending.receipts.append(Receipt(chunk.position, rows.num_rows, in_time.late, tuple(bad)))
        pending.counts = msgspec.structs.replace(
            pending.counts,
            rows=pending.counts.rows + rows.num_rows,
            late=pending.counts.late + in_time.late,
            bad=pending.counts.bad + len(bad) - len(large),
            too_large=pending.counts.too_large + len(large),
        )

    async def _write(self, *, ended: bool = False) -> None:
        """Write dead letters, then frames and position in one transaction; wait while the disk is full."""
        name, pending = self.declaration.id, self._pending
        if not pending:
            pending.born_ms, pending.counts = self._clock.wall_ms(), self._stored.counts
        drafts = self._drafts(pending, ended=ended)
        if drafts and self._source.waits and self._outbox.pressure(name):
            self._enter(source_states.PAUSED, BEHIND)
            await self._outbox.wait_room(name)
            self._enter(source_states.RUNNING)
            self._pace.pause()
        counts = msgspec.structs.replace(pending.counts, bytes=pending.counts.bytes + sum(len(draft.payload) for draft in drafts))
        await self._persist(lambda: self._letters.write(pending.bad))
        position = SourcePosition(
            connector=pending.position or self._stored.connector,
            greatest_ms=self._time.greatest_ms,
            ended=ended,
            dead_letters=self._letters.length,
            counts=counts,
        )
        await self._store(drafts, msgspec.msgpack.encode(position))
        if position.greatest_ms != self._stored.greatest_ms:
            self._advanced_ms = self._clock.wall_ms()
        self._pace.observe(self._clock.now(), counts.rows - self._stored.counts.rows, counts.bytes - self._stored.counts.bytes)
        self._stored, self._pending = position, _Pending()
        if isinstance(self._source, Confirmed):
            self._source.stored(pending.receipts)

    async def _store(self, drafts: Sequence[FrameDraft], position: bytes) -> None:
        """Write frames and position here, after the backup of a replicated source has stored them."""
        if self._backup is not None:
            await self._backup.store(drafts, position, self._wait_for_backup)
        # Nothing may come between, unless the disk is full: see SourceBackup.check.
        await self._persist(lambda: self._outbox.write_source(self.declaration.id, drafts, position))

    def _wait_for_backup(self, reason: str) -> None:
        self._enter(source_states.PAUSED, reason, reason)

    def _drafts(self, pending: _Pending, *, ended: bool) -> list[FrameDraft]:
        # The watermark before this write: rows in any of its frames may be as early as that.
        before = self._time.watermark_of(self._stored.greatest_ms)
        cuts = list(frames.cut(pa.concat_batches(pending.rows))) if pending.rows else []
        drafts = [
            FrameDraft(payload=frame.payload, rows=frame.rows, watermark_ms=before, born_ms=pending.born_ms) for frame in cuts
        ]
        if not drafts and (ended or self._time.watermark_ms > before):
            drafts = [FrameDraft(payload=b"", rows=0, born_ms=pending.born_ms)]
        if drafts:
            watermark_ms = END_WATERMARK_MS if ended else self._time.watermark_ms
            drafts[-1] = msgspec.structs.replace(drafts[-1], watermark_ms=watermark_ms, ended=ended)
        return drafts

    async def _persist(self, step: Callable[[], None]) -> None:
        backoff = Backoff(self._settings.retry_s, self._settings.retry_max_s)
        while True:
            try:
                step()
            except SbonError as error:
                if error.code != "disk-full":
                    raise
                self._enter(source_states.PAUSED, str(error), _plain(error))
            else:
                if self.state == source_states.PAUSED:
                    self._enter(source_states.RUNNING)
                return
            await self._clock.sleep(backoff.next_s())

    def _enter(self, state: SourceState, reason: str = "", trouble: str = "") -> None:
        self._trouble = trouble
        if (state, reason) == (self.state, self.reason):
            return
        source_states.LIFECYCLE.check_transition(self.state, state, self.declaration.id)
        if state != self.state:
            log.info("source_state", source=self.declaration.id, state=state, reason=reason)
        self.state, self.reason = state, reason
        if self._on_state is not None:
            self._on_state(state, reason)


def _plain(error: SbonError) -> str:
    """Return the error's text for other users, without the source's options and hints."""
    prefix = f"{error.where}: " if error.where and not error.where.startswith("options.") else ""
    return f"{prefix}{error.message}"
