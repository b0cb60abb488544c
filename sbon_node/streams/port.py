"""A running operator's access to its inputs' links and its place in the outbox (the engine's ``OperatorPort``)."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from sbon_node.base.clock import Clock
from sbon_node.base.failpoints import Failpoints, unobserved
from sbon_node.model.frames import Frame, FrameDraft, InputOffset
from sbon_node.streams.links.channel import StreamOpener
from sbon_node.streams.links.inbox import Spill
from sbon_node.streams.links.link import Expect, Link, Locate, OwnTime, Search, anyone
from sbon_node.streams.links.span import InputSpan, fill, fill_upto, have_ended, next_batch
from sbon_node.streams.measures.meter import OperatorMeter
from sbon_node.streams.outbox.ledger import NO_BATCH, Tail, batch_output
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.outbox.signals import Signal
from sbon_node.streams.settings import NO_LIMITS, BatchLimits, StreamSettings
from sbon_node.streams.skipped import Letters, SkippedRows
from sbon_protocol.api.measures import OperatorMeasures
from sbon_protocol.api.subscribers import follower_of, input_of
from sbon_protocol.api.usage import SpillCount
from sbon_protocol.errors import BrokenInvariantError, SbonError


class PortInput(msgspec.Struct, frozen=True, kw_only=True):
    """One input of an operator; ``start_after`` applies while no batch of the operator is visible.

    The input's watermark, less ``lag_ms``, may be at most ``ahead_ms`` beyond the least of the other inputs; without
    ``ahead_ms`` there is no limit. A ``whole`` input begins with frame 1, or fails. Frames held back are spilled to ``spill_to``,
    where given, and otherwise stay in the link's credit. ``columns`` are names for the columns of its frames, in their order.
    """

    stream: str
    locate: Locate
    expect: Expect = anyone
    search: Search | None = None
    own_time: OwnTime = int
    start_after: int = 0
    epoch: int = 0
    lineage: int = 0
    learn: Callable[[int], None] | None = None
    lag_ms: int = 0
    ahead_ms: int | None = None
    whole: bool = False
    spill_to: Path | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Following:
    """The role of a port whose operator runs at another host: it reads under a ``name`` of its own, and its output is discarded.

    ``base`` is the state of the host's stream after the batch whose checkpoint was copied. Until :meth:`NodePort.limit` says
    more, nothing beyond that batch is offered.
    """

    name: str
    base: Tail


class Backup(Protocol):
    """The place at another node for what an operator shows."""

    async def store(self, batch: int) -> None:
        """Return once everything up to the committed ``batch`` is stored there, its checkpoint included."""
        ...


class PortOutput(Protocol):
    """An operator's batches: written first, visible once committed and, with a backup, stored there."""

    def newest(self) -> int:
        """Return the newest batch written; -1 before the first."""
        ...

    def visible(self) -> int:
        """Return the newest visible batch; -1 before the first."""
        ...

    def offsets(self) -> tuple[InputOffset, ...]:
        """Return the input offsets of the newest visible batch; none before the first."""
        ...

    def has_batch(self, batch: int) -> bool: ...

    def write(self, batch: int, offsets: tuple[InputOffset, ...], drafts: Sequence[FrameDraft]) -> None: ...

    async def store(self, batch: int) -> None:
        """Wait until the committed ``batch`` may become visible."""
        ...

    def publish(self, batch: int) -> tuple[InputOffset, ...]:
        """Make everything up to ``batch`` visible; return :meth:`offsets`."""
        ...

    def is_full(self) -> bool: ...

    def is_awaited(self) -> bool:
        """Return whether a reader has received everything that is visible, and so waits for more."""
        ...

    async def wait_room(self) -> None: ...


class Published:
    """The operator's stream, which is open in the outbox."""

    def __init__(self, outbox: Outbox, operator: str, backup: Backup | None = None) -> None:
        self._outbox, self._operator, self._backup = outbox, operator, backup

    def newest(self) -> int:
        return self._outbox.newest(self._operator)

    def visible(self) -> int:
        return self._outbox.visible_batch(self._operator)

    def offsets(self) -> tuple[InputOffset, ...]:
        visible = self.visible()
        return () if visible < 0 else self._outbox.batch_offsets(self._operator, visible)

    def has_batch(self, batch: int) -> bool:
        return self._outbox.has_batch(self._operator, batch)

    def write(self, batch: int, offsets: tuple[InputOffset, ...], drafts: Sequence[FrameDraft]) -> None:
        self._outbox.write_batch(self._operator, batch, offsets, drafts)

    async def store(self, batch: int) -> None:
        if self._backup is not None and batch > self.visible():
            await self._backup.store(batch)

    def publish(self, batch: int) -> tuple[InputOffset, ...]:
        return self._outbox.publish(self._operator, batch)

    def is_full(self) -> bool:
        return self._outbox.pressure(self._operator)

    def is_awaited(self) -> bool:
        if self._operator not in self._outbox.streams():
            return False
        newest, readers = self._outbox.latest(self._operator), self._outbox.link_counts(self._operator).links.values()
        return any(not reader.failed and reader.received >= newest for reader in readers)

    async def wait_room(self) -> None:
        await self._outbox.wait_room(self._operator)


class Discarded:
    """The output of a follower, of which only the totals are kept: frames, rows and bytes, added to those of ``base``.

    ``base`` is the state of the host's stream after the batch whose checkpoint was copied. Nothing of it survives the process:
    a follower begins with another copy then.
    """

    def __init__(self, operator: str, base: Tail) -> None:
        self._operator = operator
        self.tail = base
        """The state after the newest committed batch."""
        self._pending: list[Tail] = []

    def newest(self) -> int:
        return self._pending[-1].batch if self._pending else self.tail.batch

    def visible(self) -> int:
        return self.tail.batch

    def offsets(self) -> tuple[InputOffset, ...]:
        return self.tail.offsets

    def has_batch(self, batch: int) -> bool:
        return 0 <= batch <= self.newest()

    def write(self, batch: int, offsets: tuple[InputOffset, ...], drafts: Sequence[FrameDraft]) -> None:
        if batch <= self.tail.batch:
            return
        self._pending = [tail for tail in self._pending if tail.batch < batch]
        before = self._pending[-1] if self._pending else self.tail
        self._pending.append(batch_output(self._operator, drafts, before, batch, offsets)[1])

    async def store(self, batch: int) -> None:
        """Return at once: nobody sees it."""

    def publish(self, batch: int) -> tuple[InputOffset, ...]:
        if batch > self.newest():
            raise BrokenInvariantError(f"batch {batch} of {self._operator} was committed and never written")
        for tail in self._pending:
            if tail.batch <= batch:
                self.tail = tail
        self._pending = [tail for tail in self._pending if tail.batch > batch]
        return self.tail.offsets

    def is_full(self) -> bool:
        return False

    def is_awaited(self) -> bool:
        return False

    async def wait_room(self) -> None:
        """Return at once: nothing is kept."""


FOLLOWER_WAIT_S = 1.0  # Least time for which a follower waits for its host to show more.
ROWS_OF_A_LARGE_GROUP = 20
"""Rows that an aggregate has read for each group that came out, from which on its batches hold few groups."""


class NodePort:
    """The streams of operator ``operator``, whose output stream has the same id and is open in the outbox.

    ``limits`` are those of its batches, ``epoch`` is the operator's own. With ``following`` it publishes nothing until
    :meth:`go_live`, and the outbox need not have the stream.

    Call :meth:`store` and :meth:`recover` before every start of its engine, the first and any later one.
    """

    def __init__(
        self,
        operator: str,
        inputs: Sequence[PortInput],
        *,
        outbox: Outbox,
        peers: StreamOpener,
        clock: Clock,
        settings: StreamSettings,
        rng: random.Random,
        failpoint: Failpoints = unobserved,
        limits: BatchLimits = NO_LIMITS,
        epoch: int = 0,
        letters: Letters | None = None,
        following: Following | None = None,
        meter: OperatorMeter | None = None,
        backup: Backup | None = None,
    ) -> None:
        self.operator = operator
        self.links: tuple[Link, ...] = ()
        self._inputs = tuple(inputs)
        self._outbox, self._peers, self._clock = outbox, peers, clock
        self._settings, self._rng, self._failpoint = settings, rng, failpoint
        self._letters = letters
        self.meter = meter or OperatorMeter([one.stream for one in inputs], half_life_s=settings.measures_half_life_s)
        self._following = following
        self._published = Published(outbox, operator, backup)
        self._output: PortOutput = Discarded(operator, following.base) if following else self._published
        self._upto: tuple[int, ...] | None = None if following is None else tuple(o.frame for o in following.base.offsets)
        """The last frame of each input that may be offered; None without limit."""
        self._offered: tuple[InputOffset, ...] = ()
        self._limits, self._epoch = limits, epoch
        self._rows_in = self._rows_out = 0
        self._news = Signal()
        self._incarnation = 0
        self._restarted = True
        self._held = [False] * len(self._inputs)
        self._rests = following is None
        """Whether it answers a poll without news in time, so that the engine may run a batch for its watermark alone."""
        self._batches, self._halts = tuple[tuple[int, ...], ...](), False
        """The batches of its host that a follower must repeat, by the last frames of inputs; whether they are the last ones."""
        self.planned: tuple[tuple[int, ...], tuple[int, ...]] | None = None
        """The last frame of each input before and after the newest batch with input; None before the first."""
        self._takes_more = False
        """Whether the newest offer has room for more input than there was, and more may come."""
        self._stuck_since_s: float | None = None

    # -- starting and stopping ----------------------------------------------------------------------------------------

    async def store(self, committed: int | None) -> None:
        await self._output.store(NO_BATCH if committed is None else committed)

    def recover(self, committed: int | None) -> None:
        """Make batches up to ``committed`` visible and start the links where those batches have read to.

        ``committed`` is the newest readable commit of the checkpoint from which the engine is about to start. Running links
        stay. Needs the running loop.

        Raises :class:`SbonError` ``checkpoint-mismatch`` where checkpoint and outbox cannot belong together.
        """
        newest = NO_BATCH if committed is None else committed
        visible = self._output.visible()
        if not visible <= newest <= self._output.newest():
            held = f"the outbox holds up to {self._output.newest()} and has shown {visible}"
            reason = f"the checkpoint has committed batch {newest}, {held}"
            hint = "restore checkpoint and outbox from the same moment, or stop the query"
            raise SbonError("checkpoint-mismatch", reason, where=self.operator, hint=hint)
        offsets = self._output.publish(newest)
        self._restarted = True
        self.meter.pause()
        if self.links:
            self._acknowledge(offsets)
        else:
            self._open(offsets)

    def has_batch(self, batch: int) -> bool:
        """Return whether the outbox holds, or held, the output of ``batch``, for the repair of a checkpoint."""
        return self._output.has_batch(batch)

    def visible_batch(self) -> int:
        return self._output.visible()

    def is_awaited(self) -> bool:
        return self._output.is_awaited()

    def _open(self, offsets: tuple[InputOffset, ...]) -> None:
        starts = [offset.frame for offset in offsets] if offsets else [source.start_after for source in self._inputs]
        if len(starts) != len(self._inputs):
            raise BrokenInvariantError(f"{self.operator} has {len(self._inputs)} inputs and stored offsets of {len(starts)}")
        self.links = tuple(
            Link(
                source.stream,
                self._subscriber(position),
                locate=source.locate,
                expect=source.expect,
                search=source.search,
                own_time=source.own_time,
                peers=self._peers,
                clock=self._clock,
                settings=self._settings,
                rng=self._rng,
                start_after=start,
                whole=source.whole,
                epoch=source.epoch,
                lineage=source.lineage,
                learn=source.learn,
                reader_epoch=self._epoch,
                failpoint=self._failpoint,
                news=self._news,
                spill=Spill(source.spill_to, self._settings.spill_max_bytes) if source.spill_to is not None else None,
                columns=source.columns,
            )
            for position, (source, start) in enumerate(zip(self._inputs, starts, strict=True))
        )
        for link in self.links:
            link.start()

    def _subscriber(self, position: int) -> str:
        """Return the name under which the operator reads an input; a follower has one of its own."""
        name = input_of(self.operator, position)
        return name if self._following is None else follower_of(name, self._following.name)

    async def close(self, *, unsubscribe: bool = False) -> None:
        """End the links; with ``unsubscribe`` the hosts of the inputs forget the operator."""
        for link in self.links:
            await link.close(unsubscribe=unsubscribe)

    @property
    def spilled(self) -> SpillCount:
        """Return the counts of spilled frames of all inputs since they were connected."""
        spills = [link.inbox.spill for link in self.links if link.inbox.spill is not None]
        frames, size = sum(spill.total_frames for spill in spills), sum(spill.total_bytes for spill in spills)
        return SpillCount(frames=frames, bytes=size, now_bytes=sum(spill.bytes for spill in spills))

    def measures(self) -> OperatorMeasures:
        """Return the operator's measures up to now."""
        return self.meter.measures(self._clock.now(), [link.inbox.waiting for link in self.links] or [(0, 0)] * len(self._inputs))

    @property
    def held(self) -> list[str]:
        """Return the streams whose next frame waits for other inputs."""
        return [source.stream for source, is_held in zip(self._inputs, self._held, strict=True) if is_held]

    # -- engine.interface.OperatorPort --------------------------------------------------------------------------------

    async def poll(self, after: tuple[InputOffset, ...], wait_s: float) -> tuple[InputOffset, ...]:
        """Return offsets up to which a batch may be planned; ``after`` itself without news within ``wait_s`` seconds.

        After each start every input that has had frames is offered again in a new incarnation. Raises an input's last error.
        """
        self._check_not_behind(after)
        self._offered = after
        if self._restarted:
            self._incarnation = 1 + max([self._incarnation, *(offset.incarnation for offset in after)])
            self._restarted = False
        self.meter.begin(self._clock.now())
        if not self._rests:
            wait_s = max(wait_s, FOLLOWER_WAIT_S)
        while True:
            try:
                async with self._clock.timeout(wait_s if have_ended(after) else max(wait_s, self._limits.linger_s)):
                    offered = await self._wait_news(after)
                break
            except TimeoutError:
                if not self._halts:
                    return after
        if self._limits.linger_s and self._following is None:
            offered = await self._linger(after, offered)
        self._offered = offered
        before, end = (tuple(offset.frame for offset in offsets) for offsets in (after, offered))
        self.planned = (before, end) if before != end else self.planned
        return offered

    async def fetch(self, position: int, after_frame: int, upto_frame: int) -> list[Frame]:
        """Return frames (after_frame, upto_frame] of an input; wait for those that a restart must resend."""
        link = self.links[position]
        visible = self._output.offsets()
        if visible and after_frame < visible[position].frame:
            raise SbonError("not-retained", "a batch that is visible already asks for its input again", where=self.operator)
        if upto_frame <= after_frame:
            return []
        await link.wait(upto_frame - 1)
        frames = link.inbox.frames(after_frame, upto_frame)
        rows = sum(frame.rows for frame in frames)
        self._rows_in += rows
        self.meter.fetched(self._clock.now(), position, rows, sum(len(frame.payload) for frame in frames))
        return frames

    def spent(self, cpu_s: float) -> None:
        self.meter.spent(cpu_s)

    async def write(
        self, batch: int, offsets: tuple[InputOffset, ...], drafts: list[FrameDraft], skipped: SkippedRows | None = None
    ) -> None:
        """Store a batch's skipped rows, then its output, as :meth:`sbon_node.streams.outbox.outbox.Outbox.write_batch`."""
        if len(offsets) != len(self._inputs):
            raise BrokenInvariantError(f"batch {batch} of {self.operator} has {len(offsets)} offsets, not {len(self._inputs)}")
        if batch > self._output.visible():
            self._check_not_behind(offsets)
            if skipped is not None and self._letters is not None and self._following is None:
                self._letters.write(batch, skipped)
        self._output.write(batch, offsets, drafts)
        self.meter.wrote(self._clock.now(), batch, sum(d.rows for d in drafts), sum(len(d.payload) for d in drafts))
        self._rows_out += sum(draft.rows for draft in drafts)

    async def committed(self, batch: int) -> None:
        """Make the committed ``batch`` visible and acknowledge exactly the input of visible batches."""
        await self._output.store(batch)
        self._acknowledge(self._output.publish(batch))

    # -- moving to another host ---------------------------------------------------------------------------------------

    def pin(self, pinned: bool, why: str = "move") -> None:
        """Keep the inputs after the newest visible batch at their hosts, until a follower has subscribed."""
        for link in self.links:
            link.pin(pinned, why)

    def limit(self, frames: tuple[int, ...] | None, *, rests: bool = True) -> None:
        """Offer no frames beyond these of each input; None lifts the limit.

        A follower that does not rest there waits for a higher limit. One that rests is offered its input again if it has run no
        batch: Spark asks for a batch without input, with a new watermark, only after another.
        """
        self._upto, self._rests, self._batches, self._halts = frames, rests, (), False
        self._news.notify()

    def repeat(self, frames: tuple[int, ...], batches: tuple[tuple[int, ...], ...], *, halts: bool = False) -> None:
        """Offer a follower its input up to these ``frames``, then exactly the last ``batches`` of its host, and then nothing.

        A batch runs with the watermark of all input before it, so the last one runs with the same watermark as at the host. A
        follower that ``halts`` runs no batch without input after that.
        """
        self._upto, self._rests, self._batches, self._halts = frames, False, batches, halts
        self._news.notify()

    def freeze(self) -> tuple[InputOffset, ...]:
        """Offer nothing beyond what was offered; return the offsets up to there. :meth:`limit` lifts it."""
        offsets = self._offered or self._output.offsets() or (InputOffset(),) * len(self._inputs)
        self.limit(tuple(offset.frame for offset in offsets))
        return offsets

    @property
    def discarded(self) -> Tail:
        """The state that a follower's stream would have after its newest committed batch."""
        if not isinstance(self._output, Discarded):
            raise BrokenInvariantError(f"{self.operator} publishes its output")
        return self._output.tail

    def go_live(self, epoch: int) -> None:
        """Publish from the next batch on, in the operator's new ``epoch``, and read under its own name without a limit.

        The outbox has adopted the stream as of the follower's newest committed batch.
        """
        tail, shown = self.discarded, self._published
        if self._output.newest() != tail.batch or (shown.visible(), shown.offsets()) != (tail.batch, tail.offsets):
            raise BrokenInvariantError(f"{self.operator} was adopted after batch {shown.visible()}, not after {tail.batch}")
        self._output, self._following, self._epoch = shown, None, epoch
        for position, link in enumerate(self.links):
            link.continue_as(self._subscriber(position), epoch)
        self.limit(None)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _acknowledge(self, offsets: tuple[InputOffset, ...]) -> None:
        for link, offset in zip(self.links, offsets, strict=False):
            link.acknowledge(offset.frame)

    def _check_not_behind(self, offsets: tuple[InputOffset, ...]) -> None:
        for offset, seen in zip(offsets, self._output.offsets(), strict=False):
            if offset.frame < seen.frame:
                raise BrokenInvariantError(f"{self.operator} is at frame {offset.frame} of an input and has shown {seen.frame}")

    async def _wait_news(self, after: tuple[InputOffset, ...]) -> tuple[InputOffset, ...]:
        while True:
            for link in self.links:
                link.check()
            if self._output.is_full():
                self._hold([False] * len(self.links))
                self._stuck_since_s = None
                await self._output.wait_room()
                continue
            offered = self._offer(after)
            if offered is not None:
                self._stuck_since_s = None
                return offered
            self._check_not_stuck()
            rested = self._rests
            await self._news.wait()
            if self._rests and not rested:
                return after if self._output.is_full() else self._offer(after) or after

    async def _linger(self, after: tuple[InputOffset, ...], offered: tuple[InputOffset, ...]) -> tuple[InputOffset, ...]:
        """Return an offer of more input, once there is no room for more, or none comes, or the time is over."""
        limit = self._upto
        try:
            async with self._clock.timeout(self._limits.linger_s):
                while self._takes_more:
                    await self._news.wait()
                    for link in self.links:
                        link.check()
                    offered = self._offer(after) or offered
        except TimeoutError:
            pass
        return offered if self._upto == limit else self._offer(after) or after

    def _offer(self, after: tuple[InputOffset, ...]) -> tuple[InputOffset, ...] | None:
        if (batch := next_batch(after, self._upto, self._batches)) is not None:
            return self._offer_whole(after, batch)
        limits = self._upto if self._upto is not None else (None,) * len(self._inputs)
        spans = [
            InputSpan(max(offset.frame, link.inbox.released), offset, link.inbox.at, source.lag_ms, source.ahead_ms, upto)
            for link, offset, source, upto in zip(self.links, after, self._inputs, limits, strict=True)
        ]
        self._hold(fill(spans, self._settings.batch_span_bytes, self._settings.batch_span_frames, self._row_limit()))
        is_full = any(span.next is not None and not is_held for span, is_held in zip(spans, self._held, strict=True))
        self._takes_more = not is_full and self._upto is None and not all(span.ends for span in spans)
        again = self._rests and any(o.frame > 0 and o.incarnation != self._incarnation for o in after)
        if not again and not any(span.last for span in spans):
            return None
        return tuple(span.offset_upto(self._incarnation) for span in spans)

    def _offer_whole(self, after: tuple[InputOffset, ...], batch: tuple[int, ...]) -> tuple[InputOffset, ...] | None:
        """Return the offsets up to the frames of a ``batch``, once all of them are there."""
        spans = [InputSpan(offset.frame, offset, link.inbox.at) for link, offset in zip(self.links, after, strict=True)]
        self._hold([False] * len(spans))
        return tuple(span.offset_upto(self._incarnation) for span in spans) if fill_upto(spans, batch) else None

    def _row_limit(self) -> int | None:
        """Return the most rows of the next batch. Before its first group, an aggregate's groups may be as small as rows."""
        rows, grouped_rows, _ = self._limits
        if self._following is not None:
            return self._settings.follow_span_rows if rows is None else min(rows, self._settings.follow_span_rows)
        has_large_groups = 0 < ROWS_OF_A_LARGE_GROUP * self._rows_out <= self._rows_in
        return grouped_rows if grouped_rows is not None and has_large_groups else rows

    def _hold(self, are_held: list[bool]) -> None:
        for link, is_held in zip(self.links, are_held, strict=True):
            link.hold(is_held)
        self._held = are_held

    def _check_not_stuck(self) -> None:
        """Raise ``held-too-long``: held-back frames fill the spill, and the other inputs do not advance."""
        full = [link for link, is_held in zip(self.links, self._held, strict=True) if is_held and link.inbox.spill_is_full]
        if not full:
            self._stuck_since_s = None
            return
        now = self._clock.now()
        if self._stuck_since_s is None:
            self._stuck_since_s = now
        if now - self._stuck_since_s > self._settings.spill_patience_s:
            spill = full[0].inbox.spill
            assert spill is not None
            news = f"inputs that have had no news for {self._settings.spill_patience_s:g} s"
            hint = "see why the others are behind; raise streams.spill_max_bytes or query.ahead_slack_s"
            message = f"{spill.bytes:,} bytes of {full[0].stream} wait for {news}"
            raise SbonError("held-too-long", message, where=self.operator, hint=hint)
