"""The sinks that this node hosts: opened, resumed after a restart, followed, taken over, closed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Literal

import msgspec
import structlog

from sbon_node.base.store import RecordStore
from sbon_node.base.tasks import Tasks
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.follow import Events, Follower, FollowSink, IsReader
from sbon_node.connectors.sinks.registry import FOLLOW, check_sink, reach_sink, release_sink, withdraw_sink
from sbon_node.connectors.sinks.results import ResultStreams
from sbon_node.context import Context, until_passed
from sbon_node.hosting.components import HostedComponent, HostedSink, SinkOrder, acceptors_of, claim_of
from sbon_node.hosting.operators.ports import READER_FENCED
from sbon_node.hosting.sinks.open_sinks import OpenSinks, Work, begun
from sbon_node.net.peers import Caller
from sbon_node.overlay.presence import AS_SINK
from sbon_node.ownership.acceptors import NOT_OWNER, QUERY_OVER, REFUSED, RecordAcceptors, check_epoch, claim, report
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.ownership.operators import OperatorRegisters
from sbon_protocol.api.delivery import FurtherReport, SinkReport
from sbon_protocol.api.query_ids import is_further_sink, name_of, part_of, sink_of
from sbon_protocol.api.states import sink_states
from sbon_protocol.calls import (
    AcknowledgeRows,
    AddSink,
    ClaimComponent,
    DestroyComponents,
    FollowedFrame,
    FollowedRows,
    FollowRows,
    OpenSink,
    ReportState,
    SinkAdded,
    TakeOverSink,
)
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import ComponentHost, LocateComponent

log = structlog.get_logger()


class SinkHost:
    """This node's sinks by component: the first ones of queries, and further ones."""

    def __init__(
        self, context: Context, settings: ConnectorSettings, records: RecordAcceptors, results: ResultStreams, ended: EndedQueries
    ) -> None:
        self._context, self._settings, self._records, self._over = context, settings, records, ended
        self._hosted = {hosted.order.component: hosted for hosted in context.store.all("sink", HostedSink).values()}
        self._stored = tuple(self._hosted)
        self.open = OpenSinks(context, settings, records, results)
        self._ended = EndedSinks(context.store, context.settings.max_sinks)
        self._closing = False
        self._tasks = Tasks()
        context.server.handle(OpenSink, self._open)
        context.server.handle(AddSink, self._add)

    def start(self) -> None:
        """Resume the sinks of an earlier run, each once its query's record confirms it."""
        for sink in self._stored:
            if (hosted := self._hosted.get(sink)) is not None:
                self._tasks.start(f"resume {hosted.order.component}", self._resume(hosted))

    async def close(self) -> None:
        """Stop delivery; all sinks stay on disk. Open no new sinks."""
        self._closing = True
        await self._tasks.close()
        for sink in sorted({*self.open.followed, *self.open.runners}):
            await self.open.shut(sink)

    def rows(self, query: str) -> int | None:
        """Return the rows that the query's first sink has delivered for good since it was opened.

        Delivered means acknowledged by a follower, or durable at the destination. None if there is no sink, or if it is not yet
        open again after a start.
        """
        return self._rows(sink_of(query))

    def _rows(self, sink: str) -> int | None:
        if sink in self.open.runners:
            return self.open.runners[sink].rows
        hosted = self._hosted.get(sink)
        return hosted.rows if hosted is not None and hosted.order.spec.kind == FOLLOW else None

    def has(self, query: str) -> bool:
        """Return whether this node hosts the query's first sink, open or waiting to be opened again."""
        return sink_of(query) in self._hosted

    def further(self, query: str) -> list[FurtherReport]:
        """Return the states of the query's further sinks."""
        return [
            FurtherReport(
                component=sink,
                rows=self._rows(sink),
                begins_after=hosted.beginning.rows if hosted.beginning is not None else 0,
                report=self.open.report(sink),
            )
            for sink, hosted in sorted(self._hosted.items())
            if hosted.order.query == query and hosted.order.is_further
        ]

    def idle_followers(self, for_s: float) -> list[SinkOrder]:
        """Return the sinks of temporary followers that have left for so long."""
        return [
            self._hosted[sink].order
            for sink, followed in self.open.followed.items()
            if sink in self._hosted and self._hosted[sink].order.temporary and followed.idle_s >= for_s
        ]

    def components(self) -> list[HostedComponent]:
        orders = sorted((hosted.order.query, sink) for sink, hosted in self._hosted.items())
        return [HostedComponent(query, sink, self._hosted[sink].acceptors) for query, sink in orders]

    def epochs(self) -> dict[str, int]:
        return {sink: hosted.order.epoch for sink, hosted in self._hosted.items()}

    async def destroy(self, call: DestroyComponents) -> tuple[int | None, SinkReport | None]:
        """Close those of the query's sinks that are among the components; return the last rows and report of the first one.

        A repeated call gets them again until it is known that the record has them. Delivered rows stay, unless the submission
        was refused. A sink that has taken no frame leaves nothing behind.
        """
        query, first = call.query, sink_of(call.query)
        if call.confirmed:
            self._ended.confirm(query)
            return None, None
        for sink in sorted(set(call.components) & set(self._hosted)):
            hosted = self._hosted[sink]
            if hosted.order.query != query or (first not in call.components and await self._goes_on(hosted)):
                continue
            for task in (f"resume {sink}", f"sink {sink}"):
                await self._tasks.stop(task)
            rows, report = self._rows(sink), self.open.report(sink)
            if sink == first and rows is not None and not call.refused:
                self._ended.keep(query, EndedSink(rows=rows, report=report, ended_ms=self._context.clock.wall_ms()))
            await self._forget(hosted, delivered=call.refused)
        kept = self._ended.get(query) if first in call.components else None
        return (kept.rows, kept.report) if kept is not None else (None, None)

    async def _goes_on(self, hosted: HostedSink) -> bool:
        """Return whether a further sink is this node's by its register: the call to end it is late, and was for another."""
        order = hosted.order
        call = LocateComponent(query=order.query, component=order.component)
        register = await self._records.ask(order.query, hosted.acceptors, call, ComponentHost)
        return (register.node, register.epoch) == (self._context.name, order.epoch)

    async def _forget(self, hosted: HostedSink, *, delivered: bool) -> None:
        """Delete the sink's state; may be repeated after an error, because the stored record goes last."""
        spec = hosted.order.spec
        if self._is_current(hosted):
            await self.open.shut(hosted.order.component, unsubscribe=True)
        await withdraw_sink(spec.kind, spec.options, self.open.context_of(hosted, fresh=False), delivered=delivered)
        self._drop(hosted)

    def _is_current(self, hosted: HostedSink) -> bool:
        """Return whether the component is still this sink, in whatever epoch."""
        current = self._hosted.get(hosted.order.component)
        return current is not None and current.claim == hosted.claim

    # -- following ----------------------------------------------------------------------------------------------------

    def follow(self, query: str, after: Mapping[str, int], sink: str = "", word: str = "") -> Events:
        """Return the events of :meth:`FollowSink.follow`."""
        return self.followed(query, sink).follow(after, word)

    async def acknowledge(self, query: str, numbers: Mapping[str, int], is_reader: IsReader, sink: str = "") -> None:
        """Store that the follower has all frames up to these numbers, and acknowledge them upstream; raise ``not-the-reader``."""
        followed, hosted = self.followed(query, sink), self._hosted[self._followed_component(query, sink)]
        followed.check_reader(is_reader)
        ended = followed.ends(numbers)
        done = {stream: max(hosted.done.get(stream, 0), numbers.get(stream, 0)) for stream, _ in hosted.order.inputs}
        self.keep(msgspec.structs.replace(hosted, done=done, ended=tuple(sorted(ended)), rows=followed.rows_with(numbers)))
        self._context.failpoint("position-write")
        followed.acknowledge(numbers)

    def followed(self, query: str, sink: str = "") -> FollowSink:
        """Return a sink of a query by its uid or name; of several queries of that name, the newest counts.

        It is the first one, or a further ``sink`` by its id. Raises ``not-followable``, ``node-away``.
        """
        return self.open.followed[self._followed_component(query, sink)]

    def _followed_component(self, query: str, sink: str) -> str:
        self.check_open()
        followed = [one for one in self.open.followed if part_of(one) == (sink or part_of(sink_of("")))]
        exact = [one for one in followed if self._hosted[one].order.query == query]
        named = [one for one in followed if name_of(self._hosted[one].order.query) == query]
        if not exact and not named:
            which = f"sink {sink}" if sink else "sink"
            raise SbonError("not-followable", f"no {which} of {query!r} can be followed at this node", where="query")
        return (exact or named)[-1]

    # -- running ------------------------------------------------------------------------------------------------------

    async def _open(self, call: OpenSink, caller: Caller) -> None:
        hosted = self._ordered(call.sink, call.acceptors)
        if hosted.order.is_further:
            raise SbonError("bad-sink", "a further sink is not opened like the first one", where=hosted.order.component)
        self.check_order(hosted.order)
        self.keep(hosted)  # Before any file is created, so that a restart knows which files to delete.
        await self._begin_fresh(hosted)

    async def _add(self, call: AddSink, caller: Caller) -> SinkAdded:
        """Open a further sink; a repeated call finds it open."""
        hosted = self._ordered(call.sink, call.acceptors)
        order, before = hosted.order, self._hosted.get(hosted.order.component)
        if not order.is_further or not order.claim:
            raise SbonError("bad-sink", "it is no further sink", where=order.component)
        if before is not None and before.claim == order.claim and before.beginning is not None:
            return SinkAdded(rows=before.beginning.rows)
        if before is not None and before.order.epoch < order.epoch:  # It was removed, and this node has missed that.
            for task in (f"resume {order.component}", f"sink {order.component}"):
                await self._tasks.stop(task)
            await self._forget(before, delivered=False)
        self.check_order(order)
        self.keep(hosted)
        try:
            beginning = await begun(self._context, self._records, hosted)
        except BaseException:
            await self._undo(hosted)
            raise
        if not self._is_current(hosted):
            raise SbonError("query-over", "it ended while its sink was opened", where=order.component)
        hosted = msgspec.structs.replace(hosted, beginning=beginning)
        self.keep(hosted)
        await self._begin_fresh(hosted)
        return SinkAdded(rows=beginning.rows)

    def _ordered(self, sink: object, acceptors: tuple[object, ...]) -> HostedSink:
        order: SinkOrder = decode_record(sink, SinkOrder)
        check_epoch(order.epoch, order.component)
        known = acceptors_of(acceptors, order.component)
        self._over.check_not_over(order.query, known, order.component)
        return HostedSink(order=order, acceptors=known, claim=claim_of(order, self._context.rng))

    async def _begin_fresh(self, hosted: HostedSink) -> None:
        """Open a sink that is stored here, and begin to deliver; leave nothing of it if that fails."""
        order = hosted.order
        try:
            work = await self.open.open(hosted, self._is_current, fresh=True)
        except BaseException as error:
            if order.spec.failover and isinstance(error, SbonError) and error.code == "sink-exists":
                self._drop(hosted)  # Its claim is another sink's, whose position must stay.
            else:
                await self._undo(hosted)
            raise
        self._tasks.start(f"sink {order.component}", self._deliver(hosted, work))

    async def _undo(self, hosted: HostedSink) -> None:
        """Undo the sink at once, so that the same query may be submitted again; retry later if that fails."""
        try:
            await self._forget(hosted, delivered=True)
        except SbonError as error:
            self._waits(hosted.order.component, error)
            self._tasks.start(f"forget {hosted.order.component} {hosted.claim}", self._forget_at_last(hosted, delivered=True))

    def check_order(self, order: SinkOrder) -> None:
        """Raise unless this node may open the sink."""
        settings, where = self._context.settings, self._context.name
        self._context.drained.check()
        self.check_open()
        if order.component in self._hosted:
            raise SbonError("sink-exists", f"{order.query} has its sink here already", where=where)
        if len(self._hosted) >= settings.max_sinks:
            raise SbonError("too-many-sinks", f"{settings.max_sinks} sinks are here already", where=where)
        if len(order.inputs) > settings.max_inputs:
            hint = "raise control.max_inputs"
            raise SbonError("too-many-inputs", f"{len(order.inputs)} inputs", where=order.component, hint=hint)
        check_sink(order.spec.kind, order.spec.options, self._settings, failover=order.spec.failover)

    def check_open(self) -> None:
        """Raise ``node-away`` if this node is closing its sinks."""
        if self._closing:
            raise SbonError("node-away", "this node is going away", where=self._context.name)

    async def _resume(self, hosted: HostedSink) -> None:
        if hosted.order.is_further and hosted.beginning is None:  # Its opening was broken off: it has not read yet.
            await self._forget_at_last(hosted, delivered=True)
            return
        claimed = await self._claim(hosted)
        if claimed is not None:
            await self._deliver(claimed)

    async def _claim(self, hosted: HostedSink) -> HostedSink | None:
        """Return the sink in the next epoch; None if it is no longer this node's, and forgotten."""
        order = hosted.order
        try:
            call = ClaimComponent(query=order.query, component=order.component, epoch=order.epoch)
            epoch = await claim(self._context, self._records, hosted.acceptors, call)
        except SbonError as error:
            log.info("sink-given-up", sink=order.component, reason=str(error))
            if error.code == NOT_OWNER and order.spec.failover:
                await self.release(hosted)
            else:
                await self._forget_at_last(hosted, delivered=error.code == REFUSED)
            return None
        return msgspec.structs.replace(hosted, order=msgspec.structs.replace(order, epoch=epoch))

    async def _claim_again(self, hosted: HostedSink) -> HostedSink | None:
        """Close a sink that a stream's host has fenced, and claim it: another node may have it, or this one still."""
        log.warning("sink-fenced", sink=hosted.order.component, epoch=hosted.order.epoch)
        await self.open.shut(hosted.order.component)
        await self._context.clock.sleep(self._context.settings.retry_s)
        current = self._hosted.get(hosted.order.component)  # Followers have acknowledged rows since it was opened.
        return await self._claim(current) if current is not None and current.claim == hosted.claim else None

    async def _reopen(self, hosted: HostedSink) -> Work:
        async def attempt() -> Work:
            self.keep(hosted)
            return await self.open.open(hosted, self._is_current, fresh=False)

        return await until_passed(self._context, attempt, partial(self.open.waits, hosted.order.component))

    # -- sinks that move to another node ---------------------------------------------------------------------------------

    def hosted(self, sink: str) -> HostedSink | None:
        """Return a sink as it is stored here; None if it is not here."""
        return self._hosted.get(sink)

    def keep(self, hosted: HostedSink) -> None:
        self._context.store.put("sink", _key(hosted.order), hosted)
        self._hosted[hosted.order.component] = hosted

    def begin_delivery(self, hosted: HostedSink) -> None:
        """Begin to deliver, in the background, as another node has done before."""
        self._tasks.start(f"resume {hosted.order.component}", self._deliver(hosted))

    async def release(self, hosted: HostedSink) -> None:
        """Forget a sink that another node hosts; the result and the position that this needs stay."""
        spec = hosted.order.spec

        async def attempt() -> None:
            if self._is_current(hosted):
                await self.open.shut(hosted.order.component)
            await release_sink(spec.kind, spec.options, self.open.context_of(hosted, fresh=False))
            self._drop(hosted)

        await until_passed(self._context, attempt, partial(self._waits, hosted.order.component))

    def _drop(self, hosted: HostedSink) -> None:
        if self._is_current(hosted):
            self.open.forget(hosted.order.component)
            self._context.store.delete("sink", _key(hosted.order))
            del self._hosted[hosted.order.component]

    async def _forget_at_last(self, hosted: HostedSink, *, delivered: bool) -> None:
        forget = partial(self._forget, hosted, delivered=delivered)
        await until_passed(self._context, forget, partial(self._waits, hosted.order.component))

    def _waits(self, component: str, error: SbonError) -> None:
        log.warning("sink-waits", sink=component, reason=str(error))

    async def _deliver(self, hosted: HostedSink, work: Work | None = None) -> None:
        """Run a sink until all its inputs have ended or it fails for good; report the end to the query's record.

        Without ``work`` it is opened again first. A sink that is fenced is claimed anew: it goes on if it is still this node's.
        """
        claimed: HostedSink | None = hosted
        while claimed is not None:
            hosted = claimed
            try:
                await (work or await self._reopen(hosted))()
            except SbonError as error:
                if error.code != READER_FENCED:
                    log.warning("sink-failed", sink=hosted.order.component, reason=str(error))
                    await self._report(hosted, sink_states.FAILED, str(error))
                    return
            except Exception as error:
                await self._report(hosted, sink_states.FAILED, f"{type(error).__name__}: {error}")
                raise
            else:
                log.info("sink-finished", sink=hosted.order.component)
                await self._report(hosted, sink_states.FINISHED, "")
                return
            claimed, work = await self._claim_again(hosted), None

    async def _report(self, hosted: HostedSink, state: Literal["finished", "failed"], reason: str) -> None:
        order = hosted.order
        ended = ReportState(query=order.query, component=order.component, state=state, reason=reason[:500], epoch=order.epoch)
        refusal = await report(self._context, self._records, hosted.acceptors, ended, lambda: self._is_current(hosted))
        if refusal == NOT_OWNER and order.spec.failover:
            log.info("sink-taken-over", sink=order.component, epoch=order.epoch)
            await self.release(hosted)
        elif refusal == NOT_OWNER and order.is_further:
            await self._forget_at_last(hosted, delivered=False)


def _key(order: SinkOrder) -> str:
    """Return the key of a sink in the store; that of a query's first sink is the query's."""
    return order.component if is_further_sink(order.component) else order.query


# -- Final reports of sinks that were closed here, kept until the query's leader has stored them ----------------------

# The leader learns a sink's final count of rows only in the answer to the call that ends it. If the answer is lost, the sink is
# gone.


class EndedSink(msgspec.Struct, frozen=True, kw_only=True):
    """The final report of a sink."""

    rows: int | None
    report: SinkReport | None
    ended_ms: int


class EndedSinks:
    """Final reports by query; beyond ``most`` of them the oldest goes."""

    def __init__(self, store: RecordStore, most: int) -> None:
        self._store, self._most = store, most
        self._ended = store.all("sink-end", EndedSink)

    def keep(self, query: str, ended: EndedSink) -> None:
        """Store a report, unless an earlier one of the same sink is there, which was made while its rows were known."""
        if query in self._ended:
            return
        if len(self._ended) >= self._most:
            self._delete(min(self._ended, key=lambda name: (self._ended[name].ended_ms, name)))
        self._store.put("sink-end", query, ended)
        self._ended[query] = ended

    def get(self, query: str) -> EndedSink | None:
        return self._ended.get(query)

    def confirm(self, query: str) -> None:
        """Forget the report, which the leader has stored."""
        if query in self._ended:
            self._delete(query)

    def _delete(self, query: str) -> None:
        self._store.delete("sink-end", query)
        del self._ended[query]


# -- Queries that were ended at this node: a late call opens no sink of theirs -----------------------------------------

# The call may be on its way while its sender, cut off from this node, undoes the query and forgets it. An operator needs no
# such memory: its end releases the reservation without which it is not started, and a late reservation lapses.


class EndedQueries:
    """The last ``most`` ends that nodes have asked for here, by query and node.

    Kept in memory only: a call that was sent before a restart is lost with its connection. A sink that is opened nevertheless,
    by a node that learns of the end later, is closed by :class:`~sbon_node.hosting.destroy.OrphanCheck`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._ended: dict[tuple[str, str], None] = {}

    def add(self, query: str, node: str) -> None:
        self._ended[query, node] = None
        while len(self._ended) > self._most:
            del self._ended[next(iter(self._ended))]

    def check_not_over(self, query: str, acceptors: Iterable[Acceptor], component: str) -> None:
        """Raise ``query-over`` if one of the acceptors of the query's record has ended the query.

        Any other node may ask for an end as well; as it has no say, it cannot keep a query from its start either.
        """
        if any((query, one.node) in self._ended for one in acceptors):
            raise SbonError(QUERY_OVER, "it ended before this part was started", where=component)


class RelayedRows:
    """Answers calls of followers at other nodes, which relay the rows (:mod:`sbon_node.queries.sinks.follow`).

    A follower has its turn while it calls. The turn ends with the connection of a call that waits for rows, and otherwise after
    ``control.call_timeout_s`` of silence.
    """

    def __init__(self, context: Context, sinks: SinkHost) -> None:
        self._settings, self._sinks = context.settings, sinks
        context.server.handle(FollowRows, self._handle_follow)
        context.server.handle(AcknowledgeRows, self._handle_acknowledge)

    async def _handle_follow(self, call: FollowRows, caller: Caller) -> FollowedRows:
        sink, settings = self._sinks.followed(call.query), self._settings
        turn_s = settings.call_timeout_s
        follower = Follower("", call.follower, caller.node, caller.instance)
        if call.purpose == "end":
            sink.end_turn(follower)
            return FollowedRows(query=sink.query)
        if call.purpose == "hold":
            sink.hold(follower, turn_s)
            return FollowedRows(query=sink.query)
        wait_s = min(call.wait_s, settings.follow_wait_s)
        taken = await sink.frames_after(follower, call.after, wait_s=wait_s, turn_s=turn_s, max_bytes=settings.follow_bytes)
        if taken.end is not None:
            self._sinks.check_open()  # the sink also ends with its node, and the query does not
        frames = tuple(FollowedFrame(f.stream, f.number, f.watermark_ms, f.born_ms, f.payload) for f in taken.frames)
        return FollowedRows(query=sink.query, frames=frames, end=taken.end)

    async def _handle_acknowledge(self, call: AcknowledgeRows, caller: Caller) -> None:
        relay = (caller.node, caller.instance)
        await self._sinks.acknowledge(call.query, call.numbers, lambda one: (one.node, one.instance) == relay)


class SinkTakeover:
    """Answers the leader of a query whose sink is lost with its node, where the user allows that another takes it over.

    The sink is stored here first; then its register names this node as the host, in the next epoch; then it delivers. A restart
    in between either finds the register changed, and goes on, or forgets the sink.
    """

    def __init__(
        self, context: Context, sinks: SinkHost, records: RecordAcceptors, owners: OperatorRegisters, ended: EndedQueries
    ) -> None:
        self._context, self._sinks, self._records, self._owners, self._over = context, sinks, records, owners, ended
        self._under_way: dict[str, None] = {}
        context.server.handle(TakeOverSink, self._take_over)

    async def _take_over(self, call: TakeOverSink, caller: Caller) -> None:
        order: SinkOrder = decode_record(call.sink, SinkOrder)
        check_epoch(order.epoch, order.component)
        if order.component != sink_of(order.query) or not order.spec.failover:
            raise SbonError("no-failover", "no other node may take it over", where=order.component)
        acceptors = acceptors_of(call.acceptors, order.component)
        self._over.check_not_over(order.query, acceptors, order.component)
        if not await self._records.is_acceptor(order.query, (), caller.node):
            raise SbonError(NOT_OWNER, f"{caller.node} keeps no record of {order.query}", where=order.component)
        if order.query in self._under_way:
            raise SbonError("sink-exists", f"the sink of {order.query} is being taken over here", where=order.component)
        self._under_way[order.query] = None
        try:
            await self._host(order, HostedSink(order=order, acceptors=acceptors, claim=claim_of(order, self._context.rng)))
        finally:
            del self._under_way[order.query]

    async def _host(self, order: SinkOrder, asked: HostedSink) -> None:
        context, sinks = self._context, self._sinks
        register = await self._owners.read(order.query, order.component)
        mine = (register.host, register.instance) == context.membership.expected(context.name)
        if sinks.hosted(order.component) is not None:
            if mine:
                return
            raise SbonError("sink-exists", f"{order.query} has a sink here already", where=context.name)
        if not mine and not context.presence.gone(AS_SINK, register.host, register.instance):
            raise SbonError(NOT_OWNER, f"{context.name} takes {register.host} to be there", where=order.component)
        sinks.check_order(order)
        await reach_sink(order.spec.kind, order.spec.options, sinks.open.context_of(asked, fresh=False))
        epoch = register.epoch if mine else register.epoch + 1
        hosted = msgspec.structs.replace(asked, order=msgspec.structs.replace(order, epoch=epoch), taken_over=True)
        sinks.keep(hosted)
        try:
            if not mine:
                await self._owners.take_over_sink(order.query, order.component, register.host, register.epoch)
        except BaseException:
            await sinks.release(hosted)  # If the register names this node nevertheless, the leader asks again.
            raise
        log.warning("sink-recovered", sink=order.component, host=register.host, epoch=epoch)
        if sinks.hosted(order.component) is hosted:  # Otherwise its query has ended meanwhile.
            sinks.begin_delivery(hosted)
