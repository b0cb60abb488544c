"""Runs a sink: takes frames from its links, has them delivered durably, then acknowledges them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import structlog

from sbon_node.base.backoff import Backoff
from sbon_node.base.clock import Clock
from sbon_node.base.executors import Executor, in_thread
from sbon_node.connectors.formats import frames
from sbon_node.connectors.interface import AWAY, Sink
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.newest import NewestRows
from sbon_node.model.frames import Frame
from sbon_node.streams.links.link import Link
from sbon_node.streams.outbox.signals import Signal
from sbon_protocol.api.delivery import SinkReport
from sbon_protocol.api.states import sink_states
from sbon_protocol.api.states.sink_states import SinkState
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

FRAMES_AT_ONCE = 8
WAITED_OUT = frozenset({"disk-full", AWAY})


class SinkRunner:
    """Starts and closes ``links``, and delivers their streams to ``sink``. No link may have been started.

    ``ended`` are streams that ended before the sink began.
    """

    def __init__(
        self,
        query: str,
        sink: Sink,
        links: Sequence[Link],
        news: Signal,
        clock: Clock,
        settings: ConnectorSettings | None = None,
        executor: Executor = in_thread,
        ended: Iterable[str] = (),
    ) -> None:
        self.query = query
        self.state: SinkState = sink_states.RUNNING
        self.reason = ""
        self.retries = 0
        self._sink, self._links, self._clock = sink, tuple(links), clock
        self._settings, self._executor = settings or ConnectorSettings(), executor
        self._news = news
        self.newest = NewestRows()
        self._taken = {link.stream: link.inbox.released for link in self._links} | sink.positions()
        self._ended = {*sink.ended, *ended}

    @property
    def links(self) -> tuple[Link, ...]:
        return self._links

    @property
    def rows(self) -> int:
        """Rows durably delivered, restarts included."""
        return self._sink.rows

    def positions(self) -> Mapping[str, int]:
        """Return the last durably delivered frame of each stream, restarts included."""
        return self._sink.positions()

    def describe(self) -> SinkReport:
        state = f"{self.state}: {self.reason}" if self.reason else self.state
        sink = self._sink
        return SinkReport(state=state, rows=sink.rows, refused=sink.refused, dead_letters=sink.dead_letters, retries=self.retries)

    async def run(self) -> None:
        """Run until all inputs have ended and everything is delivered.

        Raises :class:`SbonError` for any other end: a link that failed for good, ``bad-frame``, ``disk-error``, ``sink-lost``. A
        full disk or an unreachable receiver makes it wait.
        """
        for link in self._links:
            if link.stream not in self._ended:
                link.start()
        try:
            await self._deliver()
        finally:
            await self._sink.close()
        self._enter(sink_states.FINISHED)

    async def close(self, *, unsubscribe: bool = False) -> None:
        """Close the links; call it when :meth:`run` is over or cancelled."""
        for link in self._links:
            await link.close(unsubscribe=unsubscribe)

    async def _deliver(self) -> None:
        flush_at: float | None = None
        while True:
            took = await self._take_frames()
            if took and flush_at is None:
                flush_at = self._clock.now() + self._sink.flush_after_s
            all_ended = len(self._ended) == len({link.stream for link in self._links})
            if self._sink.wants_flush or all_ended or (flush_at is not None and self._clock.now() >= flush_at):
                await self._flush()
                flush_at, took = None, True
            if all_ended:
                await self._persist(finish=True)
                return
            if took:
                # More frames may have arrived meanwhile without a further notification.
                await asyncio.sleep(0)
                continue
            for link in self._links:
                if link.stream not in self._ended:
                    link.check()
            await self._wait(flush_at)

    async def _take_frames(self) -> bool:
        """Pass arrived frames to the sink, links in turn; return whether there were any."""
        took = False
        for link in self._links:
            after = self._taken.get(link.stream, 0)
            upto = min(link.inbox.received, max(after, link.inbox.released) + FRAMES_AT_ONCE)
            if upto <= after:
                continue
            for frame in link.inbox.frames(after, upto):
                if self._sink.wants_flush:
                    return True
                table = await self._unpacked(frame)
                self._sink.take(frame, table)
                self.newest.saw(frame.payload, table)
                self._taken[link.stream] = frame.number
                took = True
                if frame.ended:
                    self._ended.add(frame.stream)
        return took

    async def _unpacked(self, frame: Frame) -> pa.Table | None:
        try:
            return await frames.unpacked(frame.payload, self._executor)
        except frames.BadPayloadError as error:
            raise SbonError("bad-frame", f"frame {frame.number} cannot be read: {error}", where=frame.stream) from error

    async def _wait(self, until: float | None) -> None:
        if until is None:
            await self._news.wait()
            return
        try:
            async with self._clock.timeout(max(0.0, until - self._clock.now())):
                await self._news.wait()
        except TimeoutError:
            return

    async def _flush(self) -> None:
        await self._persist(finish=False)
        delivered = self._sink.positions()
        for link in self._links:
            link.acknowledge(delivered.get(link.stream, 0))

    async def _persist(self, *, finish: bool) -> None:
        """Flush the sink. It takes no frames while delivery is impossible; the links' credit bounds the waiting frames."""
        backoff = Backoff(self._settings.retry_s, self._settings.retry_max_s)
        while True:
            try:
                await (self._sink.finish() if finish else self._sink.flush())
            except SbonError as error:
                if error.code not in WAITED_OUT:
                    raise
                self.retries += 1
                self._enter(sink_states.PAUSED, str(error))
            else:
                self._enter(sink_states.RUNNING)
                return
            await self._clock.sleep(backoff.next_s())

    def _enter(self, state: SinkState, reason: str = "") -> None:
        sink_states.LIFECYCLE.check_transition(self.state, state, self.query)
        if state != self.state:
            log.info("sink_state", query=self.query, state=state, reason=reason)
        self.state, self.reason = state, reason
