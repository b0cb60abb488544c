"""The sinks that are open at this node: what delivers their rows, and what shows how far they are. Keys are components."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

import structlog

from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.connectors.sinks.follow import FollowSink
from sbon_node.connectors.sinks.registry import FOLLOW, open_sink
from sbon_node.connectors.sinks.results import ResultStreams
from sbon_node.connectors.sinks.runner import SinkRunner
from sbon_node.errors import SbonError
from sbon_node.hosting.hosted_sink import HostedSink
from sbon_node.hosting.record_acceptors import RecordAcceptors
from sbon_node.hosting.sink_links import SinkLinks
from sbon_node.hosting.sink_positions import fenced
from sbon_node.model.delivery import Sample, SinkDelay, SinkReport
from sbon_node.model.schema import to_arrow
from sbon_node.model.states import sink_states
from sbon_node.streams.links.link import Link
from sbon_node.workflow.context import Context

log = structlog.get_logger()

Work = Callable[[], Awaitable[None]]
"""Runs an open sink until all its inputs have ended."""
OPENING = "opening"
"""State of a sink that is not open yet, for metrics."""


class OpenSinks:
    """Opens and shuts sinks. Each reads its streams through its own links and acknowledges rows that it has durably delivered."""

    def __init__(self, context: Context, settings: ConnectorSettings, records: RecordAcceptors) -> None:
        self._context, self._settings, self._records = context, settings, records
        self._links = SinkLinks(context, records)
        self.results: ResultStreams | None = None
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
            results=self.results,
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
