"""The sinks that are open at this node: what delivers their rows, and what shows how far they are. Keys are components."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

import structlog

from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.connectors.sinks.follow import FollowSink
from sbon_node.connectors.sinks.registry import FOLLOW, open_sink
from sbon_node.connectors.sinks.results import ResultStreams
from sbon_node.connectors.sinks.runner import SinkRunner
from sbon_node.context import Context
from sbon_node.hosting.operators.lineages import Lineages
from sbon_node.hosting.sinks.hosted_sink import HostedSink
from sbon_node.hosting.sinks.sink_positions import fenced
from sbon_node.hosting.stream_hosts import StreamHost
from sbon_node.model.frames import Frame
from sbon_node.model.schema import to_arrow
from sbon_node.overlay.membership.clocks import ROUNDING_MS
from sbon_node.ownership.acceptors import RecordAcceptors
from sbon_node.streams.links.link import Link
from sbon_node.streams.measures.delays import Delays
from sbon_protocol.api.delivery import Sample, SinkDelay, SinkReport
from sbon_protocol.api.states import sink_states
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

Work = Callable[[], Awaitable[None]]
"""Runs an open sink until all its inputs have ended."""
OPENING = "opening"
"""State of a sink that is not open yet, for metrics."""


class OpenSinks:
    """Opens and shuts sinks. Each reads its streams through its own links and acknowledges rows that it has durably delivered."""

    def __init__(self, context: Context, settings: ConnectorSettings, records: RecordAcceptors, results: ResultStreams) -> None:
        self._context, self._settings, self._records, self._results = context, settings, records, results
        self._links = SinkLinks(context, records)
        self.followed: dict[str, FollowSink] = {}
        self.runners: dict[str, SinkRunner] = {}
        self._waiting: dict[str, str] = {}
        """Why sinks of an earlier run, or of another node, are not open yet."""

    # -- opening and shutting -----------------------------------------------------------------------------------------

    async def open(self, hosted: HostedSink, is_current: Callable[[HostedSink], bool], *, fresh: bool) -> Work:
        """Open the sink; raise ``query-over`` if it was destroyed while its file was created."""
        context, order = self._context, hosted.order
        self._waiting.pop(order.component, None)
        ended = hosted.beginning.ended if hosted.beginning is not None else ()
        if order.spec.kind == FOLLOW:
            links = self._links.make(hosted, hosted.after(hosted.done))
            sink = FollowSink(order.query, links, context.clock, (*hosted.ended, *ended), hosted.rows, context.computing)
            self.followed[order.component] = sink
            return sink.run
        acknowledged = await fenced(context, self._records, hosted) if hosted.taken_over else None
        sink_context = self.context_of(hosted, fresh=fresh, acknowledged=acknowledged)
        opened = await open_sink(order.spec.kind, order.spec.options, sink_context)
        if not is_current(hosted):
            await opened.close()
            raise SbonError("query-over", "it ended while its sink was opened", where=order.component)
        links = self._links.make(hosted, hosted.after(opened.positions()))
        runner = SinkRunner(order.query, opened, links, context.clock, self._settings, context.computing, ended)
        self.runners[order.component] = runner
        return runner.run

    def waits(self, sink: str, error: SbonError) -> None:
        """Note why a sink cannot be opened now; it is tried again."""
        log.warning("sink-waits", sink=sink, reason=str(error))
        self._waiting[sink] = str(error)

    async def shut(self, sink: str, *, unsubscribe: bool = False) -> None:
        """Close a sink; ignore one that is not open."""
        self._waiting.pop(sink, None)
        self._links.closed(sink)
        for one in (self.followed.pop(sink, None), self.runners.pop(sink, None)):
            if one is not None:
                await one.close(unsubscribe=unsubscribe)

    async def shut_all(self) -> None:
        for sink in sorted({*self.followed, *self.runners}):
            await self.shut(sink)

    def forget(self, sink: str) -> None:
        """Forget which streams a sink has read."""
        self._links.forget(sink)

    def context_of(self, hosted: HostedSink, *, fresh: bool, acknowledged: DeliveryPosition | None = None) -> SinkContext:
        """Return the context in which the sink is opened, resumed or withdrawn here."""
        context = self._context
        return SinkContext(
            component=hosted.order.component,
            claim=hosted.claim,
            fresh=fresh,
            schema=to_arrow(hosted.order.schema),
            data_dir=context.data_dir,
            executor=context.executor,
            settings=self._settings,
            clock=context.clock,
            failpoint=context.failpoint,
            epoch=hosted.order.epoch,
            acknowledged=acknowledged,
            inputs=tuple(stream for stream, _ in hosted.order.inputs),
            columns=hosted.order.schema,
            results=self._results,
        )

    # -- what they show -----------------------------------------------------------------------------------------------

    def links(self) -> list[Link]:
        """Return the links that bring rows to this node's sinks."""
        sinks: list[SinkRunner | FollowSink] = [*self.runners.values(), *self.followed.values()]
        return [link for sink in sinks for link in sink.links]

    def report(self, sink: str) -> SinkReport | None:
        """Return the state of a sink, if it does not deliver to a follower; one that cannot be opened now counts as paused."""
        if (runner := self.runners.get(sink)) is not None:
            return runner.describe()
        why = self._waiting.get(sink)
        return SinkReport(state=f"{sink_states.PAUSED}: {why}", rows=None) if why is not None else None

    def states(self, sinks: Iterable[str]) -> dict[str, int]:
        """Return the number of these sinks by state; those of followers, and those not open yet, count on their own."""
        return dict(Counter(map(self._state, sinks)))

    def _state(self, sink: str) -> str:
        report = self.report(sink)
        return report.state.partition(":")[0] if report is not None else FOLLOW if sink in self.followed else OPENING

    def delay(self, sink: str) -> SinkDelay | None:
        """Return the delay of the newest rows that have arrived for a sink; None while it is not open."""
        return self._links.delay(sink)

    def sample(self, sink: str) -> Sample | None:
        """Return the newest rows of a sink."""
        if sink in self.runners:
            return self.runners[sink].newest.sample()
        return self.followed[sink].sample() if sink in self.followed else None


# -- The links by which the sinks of this node read their streams, and the delays of the rows that come by them -------


class SinkLinks:
    """Makes the links of sinks."""

    def __init__(self, context: Context, records: RecordAcceptors) -> None:
        self._context, self._records = context, records
        self._lineages = Lineages(context.store)
        self._delays: dict[str, SinkDelays] = {}

    def make(self, hosted: HostedSink, done: Mapping[str, int]) -> list[Link]:
        """Return a link for each of the sink's streams, which begins after the frame that is ``done``."""
        return [self._link(hosted, stream, node, done.get(stream, 0)) for stream, node in hosted.order.inputs]

    def delay(self, sink: str) -> SinkDelay | None:
        """Return the delay of the newest rows that have arrived for the sink; None while it is not open."""
        delays = self._delays.get(sink)
        return delays.report() if delays is not None else None

    def closed(self, sink: str) -> None:
        """Forget the delays of a sink that is closed."""
        self._delays.pop(sink, None)

    def forget(self, sink: str) -> None:
        """Forget which streams a sink has read."""
        self._lineages.forget(sink)

    def _link(self, hosted: HostedSink, stream: str, node: str, done: int) -> Link:
        context, order = self._context, hosted.order
        host = StreamHost(context, self._records, order.query, stream, node, hosted.acceptors)
        delays = self._delays.setdefault(order.component, SinkDelays(context))
        return Link(
            stream,
            order.component,
            locate=host.locate,
            expect=host.expect,
            search=host.search,
            own_time=host.own_time,
            arrived=partial(delays.observe, host),
            peers=context.connections,
            clock=context.clock,
            settings=context.stream_settings,
            rng=context.rng,
            start_after=done,
            lineage=self._lineages.of(order.component, stream),
            learn=self._lineages.learner(order.component, stream),
            reader_epoch=order.epoch,
            failpoint=context.failpoint,
            columns=tuple(column.name for column in order.schema) if stream in order.by_position else (),
        )


# -- The delay of the rows that arrive for one sink of this node ------------------------------------------------------


class SinkDelays:
    """Observes the frames of all streams that a sink reads, as they arrive."""

    def __init__(self, context: Context) -> None:
        settings = context.stream_settings
        self._clock = context.clock
        self._delays = Delays(most=settings.delay_frames, window_s=settings.delay_window_s)

    def observe(self, host: StreamHost, frame: Frame) -> None:
        """Note a frame that has come from ``host``; its time of birth is by this node's clock, or 0."""
        if not frame.rows:
            return
        now, error_ms = self._clock.now(), host.clock_error_ms
        if not frame.born_ms or error_ms is None:
            self._delays.observe_undated(now)
        else:  # The stamp and its translation are rounded, each by a millisecond at most.
            self._delays.observe(now, self._clock.wall_us() / 1000.0 - frame.born_ms, error_ms + ROUNDING_MS, frame.rows)

    def report(self) -> SinkDelay:
        return self._delays.report(self._clock.now())
