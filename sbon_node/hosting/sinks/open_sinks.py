"""The sinks that are open at this node, and where the readers of a sink begin amid a stream."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

import structlog

from sbon_node.base.caller_checks import CallerChecks
from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.connectors.sinks.follow import FollowSink
from sbon_node.connectors.sinks.registry import FOLLOW, open_sink
from sbon_node.connectors.sinks.results import ResultStreams
from sbon_node.connectors.sinks.runner import SinkRunner
from sbon_node.context import UNREACHABLE, Context
from sbon_node.hosting.components import Beginning, HostedSink
from sbon_node.hosting.stream_hosts import Lineages, StreamHost
from sbon_node.model.frames import Frame
from sbon_node.model.schema import to_arrow
from sbon_node.net.peers import Caller
from sbon_node.overlay.membership.clocks import ROUNDING_MS
from sbon_node.ownership.acceptors import NOT_OWNER, OVER, RecordAcceptors
from sbon_node.ownership.operators import OperatorRegisters, hosted_by
from sbon_node.streams.links.link import Link
from sbon_node.streams.measures.delays import Delays
from sbon_node.streams.outbox.retention import Begin
from sbon_node.streams.outbox.signals import Signal
from sbon_protocol.api.bounded import MAX_EPOCH_LEAP
from sbon_protocol.api.delivery import Sample, SinkDelay, SinkReport
from sbon_protocol.api.query_ids import is_further_sink, is_sink, uid_of
from sbon_protocol.api.states import sink_states
from sbon_protocol.base import Call, Message
from sbon_protocol.calls import BeginReader, FenceReader, ReaderBegun, ReaderPosition
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import Hello
from sbon_protocol.moving import ComponentHost, LocateComponent

log = structlog.get_logger()

# -- Where readers begin: of a sink that was taken over, or a further one. Only the sink's host may ask ----------------

R = TypeVar("R", bound=Message)
REFUSALS = frozenset({"reader-fenced", "bad-epoch", "not-retained"})
"""Refusals of a host of a stream that do not pass."""
MOST_HOSTS = 4
"""Most hosts of one stream that are asked in turn: a stream rarely moves twice in a moment."""


class ReaderPositions:
    """Answers for the operators and sinks that read streams of this node.

    The register of each says who hosts it, and in which epoch: ``control.checks`` of them are read at once, a share of them for
    one caller.
    """

    def __init__(self, context: Context, registers: OperatorRegisters) -> None:
        self._context, self._registers = context, registers
        self._outbox, self._checks = context.outbox, CallerChecks(context.settings.checks, "control.checks")
        context.server.handle(FenceReader, self._fence)
        context.server.handle(BeginReader, self._begin)

    async def _fence(self, call: FenceReader, caller: Caller) -> ReaderPosition:
        await self._check_sink(call, caller, is_sink)
        acknowledged, ended = self._outbox.fence(call.stream, call.subscriber, call.reader_epoch)
        return ReaderPosition(acknowledged=acknowledged, ended=ended)

    async def _begin(self, call: BeginReader, caller: Caller) -> ReaderBegun:
        await self._check_sink(call, caller, is_further_sink)
        begun = self._outbox.further.subscribe(call.stream, call.subscriber, call.reader_epoch, call.begin)
        return ReaderBegun(frame=begun.frame, rows=begun.rows, ended=begun.ended)

    async def _check_sink(self, call: FenceReader | BeginReader, caller: Caller, is_one: Callable[[str], bool]) -> None:
        if not is_one(call.subscriber):
            raise SbonError(NOT_OWNER, f"{call.subscriber} is no such sink", where=call.subscriber)
        self._outbox.epoch(call.stream)  # A register is read for streams of this node alone.
        await self.check_host(call.subscriber, call.reader_epoch, caller)
        known = self._outbox.reader_epoch(call.stream, call.subscriber)
        if call.reader_epoch > known + MAX_EPOCH_LEAP:
            raise SbonError("bad-epoch", f"epoch {call.reader_epoch} is too far above {known}", where=call.subscriber)

    async def end_removed(self) -> None:
        """Delete subscriptions of further sinks that have been removed, or have failed, while this node missed it."""
        further, connection = self._outbox.further, self._context.publisher.connection
        subscriptions = [(stream, sink) for stream in self._outbox.streams() for sink in further.names(stream)]
        for stream, sink in subscriptions:
            if connection(stream, sink) is not None:
                continue
            try:
                register = await self._registers.read(uid_of(sink), sink)
            except SbonError as error:
                log.info("reader-not-checked", stream=stream, sink=sink, code=error.code, reason=str(error))
                continue
            if not register.host:
                log.info("reader-ended", stream=stream, sink=sink)
                self._outbox.unsubscribe(stream, sink)

    async def check_host(self, component: str, epoch: int, caller: Caller | Hello) -> None:
        """Raise unless the caller hosts the operator or sink in that epoch: ``reader-fenced`` if that is over, or ``not-owner``.

        Raises ``record-unknown`` or ``no-majority`` where nobody knows, and ``too-many-checks``: the caller tries again.
        """
        with self._checks.one(caller.node, component):
            register = await self._registers.read(uid_of(component), component)
        if not hosted_by(register, caller.node, caller.instance) or register.epoch != epoch:
            reason = f"{caller.node} does not host {component} in epoch {epoch}"
            self._context.counters.refuse("reader-epoch-refused", peer=caller.node, component=component, reason=reason)
            raise SbonError("reader-fenced" if register.epoch > epoch else NOT_OWNER, reason, where=component)


async def fenced(context: Context, records: RecordAcceptors, hosted: HostedSink) -> DeliveryPosition:
    """End the former host's readers; return up to where it had acknowledged the sink's streams.

    Raises :data:`~sbon_node.connectors.interface.AWAY` as long as a host of a stream, or its register, does not answer.
    """
    done: dict[str, int] = {}
    ended: list[str] = []
    for stream, _ in hosted.order.inputs:
        call = FenceReader(stream=stream, subscriber=hosted.order.component, reader_epoch=hosted.order.epoch)
        try:
            position = await _asked(context, records, hosted, stream, call, ReaderPosition)
        except SbonError as error:
            if error.code in OVER | REFUSALS:
                raise
            raise SbonError(AWAY, str(error), where=stream) from error
        if position.acknowledged:
            done[stream] = position.acknowledged
        if position.ended:
            ended.append(stream)
    return DeliveryPosition(streams=done, ended=tuple(ended))


async def begun(context: Context, records: RecordAcceptors, hosted: HostedSink) -> Beginning:
    """Have the hosts of a further sink's streams keep their frames from its beginning on; return where that is.

    Raises ``not-retained`` where it is to begin with the first row, and that is gone.
    """
    order = hosted.order
    if order.begin:
        return await _begun(context, records, hosted, order.begin)
    try:
        return await _begun(context, records, hosted, "earliest")
    except SbonError as error:
        if error.code != "not-retained":
            raise
    return await _begun(context, records, hosted, "now")


async def _begun(context: Context, records: RecordAcceptors, hosted: HostedSink, begin: Begin) -> Beginning:
    order, frames, ended, rows = hosted.order, dict[str, int](), list[str](), 0
    for stream, _ in order.inputs:
        call = BeginReader(stream=stream, subscriber=order.component, reader_epoch=order.epoch, begin=begin)
        answer = await _asked(context, records, hosted, stream, call, ReaderBegun)
        rows += answer.rows
        if answer.frame:
            frames[stream] = answer.frame
        if answer.ended:
            ended.append(stream)
    return Beginning(frames=frames, ended=tuple(ended), rows=rows)


async def _asked(context: Context, records: RecordAcceptors, hosted: HostedSink, stream: str, call: Call, reply: type[R]) -> R:
    """Ask the stream's host, and again if that was not the host any more: a former one may know less."""
    query, asked = hosted.order.query, ""
    answer: R | None = None
    for _ in range(MOST_HOSTS):
        try:
            locate = LocateComponent(query=query, component=stream)
            host = (await records.ask(query, hosted.acceptors, locate, ComponentHost)).node
        except SbonError as error:
            acceptors = " and ".join(one.node for one in hosted.acceptors)
            raise error_of_silent(acceptors, error, "the query's record is", code="holder-unreachable") from error
        if answer is not None and host == asked:
            return answer
        try:
            answer, asked = await context.ask(host, call, reply), host
        except SbonError as error:
            raise error_of_silent(host, error, f"{stream} is", code="host-unreachable") from error
    raise SbonError("moved", f"it has moved {MOST_HOSTS} times meanwhile", where=stream)


def error_of_silent(node: str, error: SbonError, part: str, code: str) -> SbonError:
    """Return the error of a reader that needs the ``part`` of its query at a silent ``node``; other errors as they are."""
    if error.code not in UNREACHABLE:
        return error
    hint = f"start {node} again, or restore the network to it"
    return SbonError(code, f"{part} at {node}, which does not answer: {error.message}", where="query", hint=hint)


# -- Delivery of the rows of open sinks, and their progress. Keys are components ---------------------------------------

Work = Callable[[], Awaitable[None]]
"""Runs an open sink until all its inputs have ended."""
OPENING = "opening"
"""State of a sink that is not open yet, for metrics."""


class OpenSinks:
    """Opens and shuts sinks. Each reads its streams through its own links and acknowledges rows that it has durably delivered."""

    def __init__(self, context: Context, settings: ConnectorSettings, records: RecordAcceptors, results: ResultStreams) -> None:
        self._context, self._settings, self._records, self._results = context, settings, records, results
        self._lineages = Lineages(context.store)
        self._delays: dict[str, SinkDelays] = {}
        self.followed: dict[str, FollowSink] = {}
        self.runners: dict[str, SinkRunner] = {}
        self._waiting: dict[str, str] = {}
        """Why sinks of an earlier run, or of another node, are not open yet."""

    # -- opening and shutting -----------------------------------------------------------------------------------------

    async def open(self, hosted: HostedSink, is_current: Callable[[HostedSink], bool], *, fresh: bool) -> Work:
        """Open the sink; raise ``query-over`` if it was destroyed while its file was created."""
        context, order, news = self._context, hosted.order, Signal()
        self._waiting.pop(order.component, None)
        ended = hosted.beginning.ended if hosted.beginning is not None else ()
        if order.spec.kind == FOLLOW:
            links = self._links(hosted, hosted.after(hosted.done), news)
            sink = FollowSink(order.query, links, news, context.clock, (*hosted.ended, *ended), hosted.rows, context.computing)
            self.followed[order.component] = sink
            return sink.run
        acknowledged = await fenced(context, self._records, hosted) if hosted.taken_over else None
        sink_context = self.context_of(hosted, fresh=fresh, acknowledged=acknowledged)
        opened = await open_sink(order.spec.kind, order.spec.options, sink_context)
        if not is_current(hosted):
            await opened.close()
            raise SbonError("query-over", "it ended while its sink was opened", where=order.component)
        links = self._links(hosted, hosted.after(opened.positions()), news)
        runner = SinkRunner(order.query, opened, links, news, context.clock, self._settings, context.computing, ended)
        self.runners[order.component] = runner
        return runner.run

    def waits(self, sink: str, error: SbonError) -> None:
        """Note why a sink cannot be opened now; it is tried again."""
        log.warning("sink-waits", sink=sink, reason=str(error))
        self._waiting[sink] = str(error)

    async def shut(self, sink: str, *, unsubscribe: bool = False) -> None:
        """Close a sink; ignore one that is not open."""
        self._waiting.pop(sink, None)
        self._delays.pop(sink, None)
        for one in (self.followed.pop(sink, None), self.runners.pop(sink, None)):
            if one is not None:
                await one.close(unsubscribe=unsubscribe)

    def forget(self, sink: str) -> None:
        """Forget which streams a sink has read."""
        self._lineages.forget(sink)

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

    # -- progress of sinks --------------------------------------------------------------------------------------------

    def links(self) -> list[Link]:
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
        delays = self._delays.get(sink)
        return delays.report() if delays is not None else None

    def sample(self, sink: str) -> Sample | None:
        if sink in self.runners:
            return self.runners[sink].newest.sample()
        return self.followed[sink].sample() if sink in self.followed else None

    # -- the links by which sinks read their streams ------------------------------------------------------------------

    def _links(self, hosted: HostedSink, done: Mapping[str, int], news: Signal) -> list[Link]:
        """Return a link for each of the sink's streams, which begins after the frame that is ``done``."""
        return [self._link(hosted, stream, node, done.get(stream, 0), news) for stream, node in hosted.order.inputs]

    def _link(self, hosted: HostedSink, stream: str, node: str, done: int, news: Signal) -> Link:
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
            news=news,
            lineage=self._lineages.of(order.component, stream),
            learn=partial(self._lineages.learn, order.component, stream),
            reader_epoch=order.epoch,
            failpoint=context.failpoint,
            columns=tuple(column.name for column in order.schema) if stream in order.by_position else (),
        )


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
