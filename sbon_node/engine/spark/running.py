"""One operator as its node sees it: its progress, the requests of its readers and output, and its end."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog

from sbon_node.base.backoff import Backoff
from sbon_node.base.clock import Clock
from sbon_node.base.tasks import check_cancelled
from sbon_node.engine import state_provider
from sbon_node.engine.alignment import Cut
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.counting import at_present, with_batch
from sbon_node.engine.interface import OnOperatorState, OperatorPort
from sbon_node.engine.moving import SETTLE_POLL_S, frames_planned
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.messages import Begun, Committed, Done, Ended, Fetch, Fetched, Message, Poll, Polled, Request, Write
from sbon_node.model.frames import FrameDraft, InputOffset
from sbon_node.streams.mean_rate import MeanRate
from sbon_protocol.api.operators import OperatorSpec, OperatorStats
from sbon_protocol.api.states import operator_states
from sbon_protocol.api.states.operator_states import SET_ASIDE, OperatorState
from sbon_protocol.errors import BrokenInvariantError, SbonError

RETRY_S = 1.0
PASSING = ("disk-full", "disk-error", "store-busy")
"""Passing reasons: the operator stops with them and tries again, for ever."""


class Commits:
    """Shows the commits of one operator, one at a time.

    The engine process waits for the answer when it stops the operator, and every other command waits for that stop. An answer
    may take any time: a full disk, or a backup that is away and that only the operator's node can replace. So commits are
    refused before each stop; the next start shows them.

    ``waits`` is told why a commit cannot be shown yet, and an empty reason once it is; it returns False to give up.
    """

    def __init__(self, operator: str, port: OperatorPort, clock: Clock, waits: Callable[[str], bool]) -> None:
        self._operator, self._port, self._clock, self._waits = operator, port, clock, waits
        self._showing: asyncio.Task[None] | None = None
        self.are_taken = False
        """Whether commits are shown: the run has begun, and nobody stops it."""

    def take(self) -> None:
        """Show commits from now on."""
        self.are_taken = True

    def refuse(self) -> None:
        """Show no more commits, not even the one under way."""
        self.are_taken = False
        if self._showing is not None:
            self._showing.cancel()

    async def show(self, batch: int) -> None:
        """Make a commit visible. Raises :class:`SbonError`, ``operator-stopped`` if it is refused."""
        if self.are_taken:
            self._showing = asyncio.get_running_loop().create_task(self._show(batch), name=f"show {batch} of {self._operator}")
            try:
                return await self._showing
            except asyncio.CancelledError:
                check_cancelled()
            finally:
                self._showing = None
        raise SbonError("operator-stopped", f"its next start shows batch {batch}", where=self._operator)

    async def _show(self, batch: int) -> None:
        """Show a commit. Batch ``batch + 1`` may never come: a commit that cannot be shown now must be shown later."""
        told = False
        while True:
            try:
                await self._port.committed(batch)
                break
            except SbonError as error:
                if error.code not in PASSING or not self._waits(str(error)):
                    raise  # The commit becomes visible at the next start.
                told = True
            await self._clock.sleep(RETRY_S)
        if told:
            self._waits("")


log = structlog.get_logger()

GOOD_BATCHES = 10
"""Batches to commit in a row before an operator's earlier deaths are forgotten."""

REPLACED = "engine-replaced"
KILLED = "engine-killed"
"""This operator is the likely cause of the engine's death."""
OF_THE_ENGINE = (*PASSING, "engine-failed", "java-missing", "checkpoint-in-use", "bad-engine-message", REPLACED)
"""Reasons that are not the operator's fault."""

QUARANTINE_REMEDY = "stop its query, or raise engine.heap_mb and start the node again, which tries it anew"


class End(NamedTuple):
    """The end of a run and its reason. An end without a code may be chance, up to a limited number of times."""

    code: str
    reason: str


class Running:
    """One operator that should run. A *run* lasts from its start in the engine process until :attr:`ended`.

    ``suspicions`` are the deaths of the engine with a batch of it under way since it was :attr:`healthy`. ``starter`` is its
    first start, ``ending`` its destruction.
    """

    def __init__(
        self,
        spec: OperatorSpec,
        port: OperatorPort,
        checkpoint: Path,
        clock: Clock,
        on_state: OnOperatorState,
        *,
        backoff: Backoff,
        fsync: bool,
    ) -> None:
        self.spec, self.checkpoint, self.backoff = spec, checkpoint, backoff
        self.stats = OperatorStats()
        self.state: OperatorState = operator_states.STARTING
        self.stopping = self.paused = self.live = False
        self.deaths = self.kills = self.suspicions = self.run = 0
        self.is_awaited = port.is_awaited
        self.ended: asyncio.Future[End]
        self.healthy: asyncio.Future[None]
        self.starter: asyncio.Task[None] | None = None
        self.ending: asyncio.Task[None] | None = None
        self._port, self._clock, self._on_state = port, clock, on_state
        self._log = BatchLog(checkpoint, fsync=fsync)
        self.commits = Commits(spec.id, port, clock, self._tell_waiting)
        self._after: list[InputOffset] = []
        self._has_begun = asyncio.Event()
        """Whether Spark has the watermark of its next batch, which an answer to a reader may let it plan."""
        self._released = asyncio.Event()
        self._released.set()
        self._asking = 0
        """The run that waits for news of its inputs."""
        self._answers: dict[int, InputOffset] = {}
        """Results of one shared poll for inputs that Spark has not asked yet."""
        self._wrote = False
        self._born_ms: int | None = None
        self._shown = -1
        self._good = 0
        self._refusal: SbonError | None = None
        self._pace = MeanRate()
        self._read_rows = self._read_bytes = 0
        self._began_s: float | None = None
        """When the current batch was planned."""

    def current_stats(self) -> OperatorStats:
        """Return the statistics, with the current batch."""
        stats = at_present(self.stats, self._pace, self._clock.now())
        if self._began_s is None or not self.live:
            return stats
        return msgspec.structs.replace(
            stats,
            under_way_s=max(0.0, self._clock.now() - self._began_s),
            under_way_rows=self._read_rows,
            under_way_bytes=self._read_bytes,
        )

    def _batch_begins(self) -> None:
        if self._began_s is None:
            self._began_s = self._clock.now()

    def set_state(self, state: OperatorState, reason: str = "") -> None:
        operator_states.LIFECYCLE.check_transition(self.state, state, self.spec.id)
        self.state = state
        self._on_state(self.spec.id, state, reason)

    def _tell_waiting(self, reason: str) -> bool:
        """Show why a commit waits; return whether it may."""
        if not self.stopping:
            self.set_state(self.state, reason)
        return not self.stopping

    # -- a run --------------------------------------------------------------------------------------------------------

    def arm(self) -> None:
        """Prepare the futures of a run's end; call before each start."""
        self.ended = asyncio.get_running_loop().create_future()
        self.healthy = asyncio.get_running_loop().create_future()

    async def recover(self) -> None:
        """Repair the checkpoint, and make its commits visible. No other process may write to it any more."""
        try:
            committed = self._log.repair(self._port.has_batch, self._port.visible_batch())
            self._log.sync()
            planned = self._log.offsets()
            self._after = list(self._log.read_offsets(planned[-1])) if planned else [InputOffset()] * len(self.spec.inputs)
            if planned:
                pinned = self._log.read_setting(planned[-1], state_provider.CLASS)
                state_provider.check_pinned(pinned, self.spec.state_provider, self.spec.id)
        except ValueError as error:
            raise SbonError("checkpoint-unreadable", str(error), where=self.spec.id) from error
        except OSError as error:
            code = "disk-full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "disk-error"
            raise SbonError(code, f"the checkpoint cannot be used: {error.strerror}", where=str(self.checkpoint)) from error
        if planned or not self.spec.has_state:
            self._has_begun.set()  # with the watermark of its checkpoint, or with none
        else:
            self._has_begun.clear()
        self._shown = -1 if committed is None else committed
        self._answers.clear()
        self._refusal = self._born_ms = self._began_s = None
        self._read_rows = self._read_bytes = 0
        await self._port.store(committed)
        self._port.recover(committed)

    def begin_run(self) -> int:
        """Begin a new run and return its number."""
        self.live, self.paused = True, False
        self.commits.take()
        self.run += 1
        return self.run

    def end(self, end: End) -> None:
        """End the run; the first reason counts."""
        self.live = False
        if not self.ended.done():
            self.ended.set_result(end)

    def has_open_batch(self) -> bool:
        """Return whether Spark has received more input than it has committed."""
        commits = self._log.commits()
        try:
            done = self._log.read_offsets(commits[-1]) if commits else [InputOffset()] * len(self.spec.inputs)
            return self._after != list(done)
        except (OSError, ValueError):
            return True

    def count_end(self, end: End, settings: EngineSettings) -> tuple[OperatorState, str] | None:
        """Count the end; return a state of :data:`SET_ASIDE` and the reason, or None if the operator must restart."""
        if end.code in OF_THE_ENGINE:
            return None
        if end.code and end.code != KILLED:
            return operator_states.FAILED, end.reason
        self._good = 0
        if end.code == KILLED:
            self.kills += 1
            if self.kills < settings.max_kills:
                return None
            reason = f"it has killed the engine {self.kills} times, at last: {end.reason}; {QUARANTINE_REMEDY}"
            return operator_states.QUARANTINED, reason
        self.deaths += 1
        if self.deaths <= settings.max_restarts:
            return None
        return operator_states.FAILED, f"ended {self.deaths} times, at last: {end.reason}"

    async def wait_ended_or_healthy(self, within_s: float) -> None:
        """Wait until the run has ended, or has committed a batch, or has no input."""
        either: list[asyncio.Future[Any]] = [self.ended, self.healthy]
        await asyncio.wait(either, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)

    async def resumed(self, within_s: float) -> None:
        """Wait until it runs again after a replacement of the engine, or will not run any more."""
        before = self.run
        try:
            async with self._clock.timeout(within_s):
                while not (self.stopping or self.state in SET_ASIDE or self._runs_anew(before)):
                    await self._clock.sleep(SETTLE_POLL_S)
        except TimeoutError:
            log.warning("operator-not-resumed", operator=self.spec.id, within_s=within_s)

    def _runs_anew(self, before: int) -> bool:
        return self.run > before and self.state == operator_states.RUNNING

    async def settle(self, within_s: float) -> None:
        """Stop planning batches for good; wait until the current one is committed and visible."""
        self.stopping = True
        self.hold(False)
        await self.pause(within_s)

    async def pause(self, within_s: float) -> None:
        """Stop planning batches until the next start; wait as :meth:`settle`."""
        self.paused = True
        try:
            async with self._clock.timeout(within_s):
                while self.live and self.state == operator_states.RUNNING and not self._is_settled():
                    await self._clock.sleep(SETTLE_POLL_S)
        except TimeoutError:
            log.info("operator-stopped-amid-a-batch", operator=self.spec.id)

    def hold(self, holding: bool) -> None:
        """Answer no reader while ``holding``, however long it wants to wait: Spark then plans no batch at all."""
        (self._released.clear if holding and not self.stopping else self._released.set)()

    def committed(self) -> int:
        return max(self._log.commits(), default=-1)

    def cut(self) -> Cut | None:
        """Return the position after the newest visible batch; None before the first. Raises ``OSError``, ``ValueError``."""
        return None if self._shown < 0 else self._log.read_cut(self._shown)

    def is_quiet(self) -> bool:
        """Return whether no batch is under way: all that is planned is committed and visible."""
        return self._log.is_settled() and self._is_settled()

    @property
    def asks(self) -> bool:
        return self.live and self._asking == self.run

    def planned(self) -> list[tuple[int, ...]]:
        return frames_planned(self._log, self._shown)

    def _is_settled(self) -> bool:
        return not self.has_open_batch() and self._shown >= self.committed()

    def _mark_healthy(self) -> None:
        self.suspicions = 0
        self.backoff.reset()
        if not self.healthy.done():
            self.healthy.set_result(None)

    # -- requests of readers and outputs ------------------------------------------------------------------------------

    async def serve(self, request: Request) -> Message:
        """Answer a request of a reader or an output.

        Raises :class:`SbonError`; a refusal by the port will be the reason of the run's end.
        """
        try:
            return await self._answer(request)
        except SbonError as error:
            self._refusal = error
            raise
        except BrokenInvariantError as error:
            log.exception("broken-invariant", operator=self.spec.id)
            self._refusal = SbonError("broken-invariant", str(error), where=self.spec.id)
            raise self._refusal from error

    def spent(self, cpu_s: float) -> None:
        self._port.spent(cpu_s)

    async def _answer(self, request: Request) -> Message:
        match request:
            case Begun():
                if request.run == self.run:
                    self._has_begun.set()
            case Poll():
                return Polled(offset=await self._poll(request.position, request.after, request.wait_s))
            case Fetch():
                self._batch_begins()
                frames = await self._port.fetch(request.position, request.after, request.upto)
                self._born_ms = min([frame.born_ms for frame in frames if frame.rows], default=self._born_ms)
                self._read_rows += sum(f.rows for f in frames)
                self._read_bytes += sum(len(f.payload) for f in frames)
                return Fetched(payloads=tuple(frame.payload for frame in frames))
            case Write():
                await self._write(request)
            case Committed():
                await self._committed(request.batch)
            case Ended():
                if self.live and request.run == self.run and self.commits.are_taken:
                    refused = self._refusal
                    self.end(End(refused.code, str(refused)) if refused else End(request.code, request.reason))
        return Done()

    async def _poll(self, position: int, after: InputOffset, wait_s: float) -> InputOffset:
        """Poll all inputs at once: Spark asks for each in turn, and the later ones get the stored answers."""
        ready = self._answers.pop(position, None)
        if ready is None or ready.frame < after.frame:
            self._after[position] = after
            await self._begins()
            if self.stopping or self.paused:
                await self._clock.sleep(SETTLE_POLL_S)
                await self._released.wait()  # An answer would let a held operator plan a batch without input.
                return after
            before = tuple(self._after)
            # A watermark releases rows only in another batch, which Spark runs once it has asked for news.
            offsets = await self._news(before, 0.0 if self._wrote and self.spec.has_state else wait_s)
            self._wrote = False
            if self.stopping or self.paused:
                return after
            if offsets != before:
                self._batch_begins()
            if offsets == before and not self.healthy.done() and not self.has_open_batch():
                self._mark_healthy()
            self._answers = {i: offset for i, offset in enumerate(offsets) if i != position}
            ready = offsets[position]
        self._after[position] = ready
        return ready

    async def _news(self, before: tuple[InputOffset, ...], wait_s: float) -> tuple[InputOffset, ...]:
        """Return the port's news; those of before a hold are old, and are asked for again after it."""
        self._asking = run = self.run
        try:
            while True:
                await self._released.wait()
                offsets = await self._port.poll(before, wait_s)
                if self._released.is_set():
                    return offsets
        finally:
            if self._asking == run:
                self._asking = 0

    async def _begins(self) -> None:
        """Wait until Spark has the watermark of this run's first batch. Raises ``operator-stopped`` if the run ends before.

        Any answer before, even one without news, would let Spark plan a batch with a watermark of 1970.
        """
        begun: asyncio.Future[Any] = asyncio.ensure_future(self._has_begun.wait())
        either: list[asyncio.Future[Any]] = [begun, self.ended]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            begun.cancel()
        if not self._has_begun.is_set():
            raise SbonError("operator-stopped", "the run has ended before its first batch", where=self.spec.id)

    async def _committed(self, batch: int) -> None:
        await self.commits.show(batch)
        self._shown = batch
        self._good += 1
        if self._good >= GOOD_BATCHES:
            self.deaths = self.kills = 0
        self._mark_healthy()

    async def _write(self, request: Write) -> None:
        born_ms = self._clock.wall_ms() if self._born_ms is None else self._born_ms
        drafts = [
            FrameDraft(
                payload=frame.payload, rows=frame.rows, watermark_ms=request.watermark_ms, ended=request.ended, born_ms=born_ms
            )
            for frame in request.frames
        ]
        await self._port.write(request.batch, request.offsets, drafts, request.skipped)
        self._wrote = True
        self._born_ms = None
        self._count(sum(d.rows for d in drafts), sum(len(d.payload) for d in drafts), request.batch_ms)

    def _count(self, rows_out: int, bytes_out: int, batch_ms: float) -> None:
        """Count a batch's input together with its output, so that their quotient covers the same rows."""
        self._pace.observe(self._clock.now(), rows_out, bytes_out)
        batch_ms = 0.9 * self.stats.batch_ms + 0.1 * batch_ms if self.stats.batches else batch_ms
        self.stats = with_batch(self.stats, (self._read_rows, self._read_bytes), (rows_out, bytes_out), batch_ms)
        self._read_rows = self._read_bytes = 0
        self._began_s = None
