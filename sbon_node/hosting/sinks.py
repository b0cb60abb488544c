"""The sinks that this node hosts: opened, resumed after a restart, followed, closed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Literal

import msgspec
import structlog

from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.connectors.sinks.follow import FollowSink
from sbon_node.connectors.sinks.registry import FOLLOW, check_sink, open_sink, release_sink, withdraw_sink
from sbon_node.connectors.sinks.results import ResultStreams
from sbon_node.connectors.sinks.runner import SinkRunner
from sbon_node.errors import SbonError
from sbon_node.hosting.claims import NOT_OWNER, REFUSED, check_epoch, claim, report
from sbon_node.hosting.components import HostedComponent, acceptors_of
from sbon_node.hosting.ended_queries import EndedQueries
from sbon_node.hosting.ended_sinks import EndedSink, EndedSinks
from sbon_node.hosting.hosted_sink import HostedSink, SinkOrder, claim_call, claim_of
from sbon_node.hosting.ports import READER_FENCED
from sbon_node.hosting.record_acceptors import RecordAcceptors
from sbon_node.hosting.sink_links import SinkLinks
from sbon_node.hosting.sink_positions import fenced
from sbon_node.model.delivery import Finished, Rows, Sample, SinkDelay, SinkReport
from sbon_node.model.query_ids import name_of
from sbon_node.model.schema import to_arrow
from sbon_node.model.states import sink_states
from sbon_node.net.peers import Caller
from sbon_node.streams.links.link import Link
from sbon_node.tasks import Tasks
from sbon_node.workflow.context import Context
from sbon_node.workflow.retry import until_passed
from sbon_protocol.calls import DestroyComponents, OpenSink, ReportState
from sbon_protocol.codec import decode_record

log = structlog.get_logger()

Work = Callable[[], Awaitable[None]]
"""Runs an open sink until all its inputs have ended."""


class SinkHost:
    """This node's sinks.

    Each sink reads its streams through its own links and acknowledges rows that it has durably delivered.
    """

    def __init__(self, context: Context, settings: ConnectorSettings, records: RecordAcceptors, ended: EndedQueries) -> None:
        self._context, self._settings, self._records, self._over = context, settings, records, ended
        self._hosted = context.store.all("sink", HostedSink)
        self._stored = tuple(self._hosted)
        self._links = SinkLinks(context, records)
        self._ended = EndedSinks(context.store, context.settings.max_sinks)
        self._closing = False
        self.results: ResultStreams | None = None
        self._followed: dict[str, FollowSink] = {}
        self._runners: dict[str, SinkRunner] = {}
        self._tasks = Tasks()
        context.server.handle(OpenSink, self._open)

    def start(self) -> None:
        """Resume the sinks of an earlier run, each once its query's record confirms it."""
        for query in self._stored:
            hosted = self._hosted.get(query)
            if hosted is not None:
                self._tasks.start(f"resume {hosted.order.component}", self._resume(hosted))

    async def close(self) -> None:
        """Stop delivery; all sinks stay on disk. Open no new sinks."""
        self._closing = True
        await self._tasks.close()
        for query in sorted({*self._followed, *self._runners}):
            await self._shut(query)

    def rows(self, query: str) -> int | None:
        """Return the rows that the query's sink has delivered for good since it was opened.

        Delivered means acknowledged by a follower, or durable at the destination. None if there is no sink, or if it is not yet
        open again after a start.
        """
        if query in self._runners:
            return self._runners[query].rows
        hosted = self._hosted.get(query)
        return hosted.rows if hosted is not None and hosted.order.spec.kind == FOLLOW else None

    def has(self, query: str) -> bool:
        """Return whether this node hosts the query's sink, open or waiting to be opened again."""
        return query in self._hosted

    def links(self) -> list[Link]:
        """Links that bring rows to this node's sinks."""
        sinks: list[SinkRunner | FollowSink] = [*self._runners.values(), *self._followed.values()]
        return [link for sink in sinks for link in sink.links]

    def report(self, query: str) -> SinkReport | None:
        """Return the state of the query's sink, if it does not deliver to a follower."""
        runner = self._runners.get(query)
        return runner.describe() if runner is not None else None

    def delay(self, query: str) -> SinkDelay | None:
        """Return the delay of the newest rows that have arrived for the query's sink; None while it is not open."""
        return self._links.delay(query)

    def sample(self, query: str) -> Sample | None:
        """Return the newest rows of the query's sink."""
        if query in self._runners:
            return self._runners[query].newest.sample()
        return self._followed[query].sample() if query in self._followed else None

    def components(self) -> list[HostedComponent]:
        """Return every sink of this node."""
        orders = sorted((query, hosted.order.component) for query, hosted in self._hosted.items())
        return [HostedComponent(query, component, self._hosted[query].acceptors) for query, component in orders]

    def epochs(self) -> dict[str, int]:
        """Return epochs by sink."""
        return {hosted.order.component: hosted.order.epoch for hosted in self._hosted.values()}

    async def destroy(self, call: DestroyComponents) -> tuple[int | None, SinkReport | None]:
        """Close the query's sink if it is one of the components; return its last :meth:`rows` and :meth:`report`.

        A repeated call gets them again until it is known that the record has them. Delivered rows stay, unless the submission
        was refused. A sink that has taken no frame leaves nothing behind.
        """
        query = call.query
        if call.confirmed:
            self._ended.confirm(query)
            return None, None
        hosted = self._hosted.get(query)
        if hosted is not None:
            if hosted.order.component not in call.components:
                return None, None
            for task in (f"resume {hosted.order.component}", f"sink {hosted.order.component}"):
                await self._tasks.stop(task)
            rows, report = self.rows(query), self.report(query)
            if rows is not None and not call.refused:
                self._ended.keep(query, EndedSink(rows=rows, report=report, ended_ms=self._context.clock.wall_ms()))
            await self._forget(hosted, delivered=call.refused)
        kept = self._ended.get(query)
        return (kept.rows, kept.report) if kept is not None else (None, None)

    async def _forget(self, hosted: HostedSink, *, delivered: bool) -> None:
        """Delete the sink's state; may be repeated after an error, because the stored record goes last."""
        query, spec = hosted.order.query, hosted.order.spec
        if self._is_current(hosted):
            await self._shut(query, unsubscribe=True)
        await withdraw_sink(spec.kind, spec.options, self.context_of(hosted, fresh=False), delivered=delivered)
        self._drop(hosted)

    def _is_current(self, hosted: HostedSink) -> bool:
        """Return whether the query's sink is still this sink, in whatever epoch."""
        current = self._hosted.get(hosted.order.query)
        return current is not None and current.claim == hosted.claim

    # -- following ----------------------------------------------------------------------------------------------------

    async def follow(self, query: str, after: Mapping[str, int]) -> AsyncGenerator[Rows | Finished, None]:
        """Yield rows of the frames after those numbers; end with a Finished once every input has ended and is acknowledged."""
        async with aclosing(self.followed(query).follow(after)) as events:
            async for event in events:
                yield event

    async def acknowledge(self, query: str, numbers: Mapping[str, int]) -> None:
        """Store that the follower has durably taken all frames up to these numbers, then acknowledge them upstream."""
        sink = self.followed(query)
        hosted = self._hosted[sink.query]
        ended = sink.ends(numbers)
        done = {stream: max(hosted.done.get(stream, 0), numbers.get(stream, 0)) for stream, _ in hosted.order.inputs}
        stored = msgspec.structs.replace(hosted, done=done, ended=tuple(sorted(ended)), rows=sink.rows_with(numbers))
        self._context.store.put("sink", sink.query, stored)
        self._context.failpoint("position-write")
        self._hosted[sink.query] = stored
        sink.acknowledge(numbers)

    def followed(self, query: str) -> FollowSink:
        """Return the sink of a query by its uid or name; of several queries of that name, the newest counts.

        Raises ``not-followable``, ``node-away``.
        """
        self.check_open()
        named = [sink for uid, sink in self._followed.items() if query in (uid, name_of(uid))]
        sink = self._followed.get(query, named[-1] if named else None)
        if sink is None:
            raise SbonError("not-followable", f"no sink of {query!r} can be followed at this node", where="query")
        return sink

    # -- running ------------------------------------------------------------------------------------------------------

    async def _open(self, call: OpenSink, caller: Caller) -> None:
        order: SinkOrder = decode_record(call.sink, SinkOrder)
        check_epoch(order.epoch, order.component)
        acceptors = acceptors_of(call.acceptors, order.component)
        self._over.check(order.query, acceptors, order.component)
        self.check(order)
        hosted = HostedSink(order=order, acceptors=acceptors, claim=claim_of(order, self._context.rng))
        self.keep(hosted)  # Before any file is created, so that a restart knows which files to delete.
        try:
            work = await self._run(hosted, fresh=True)
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

    def check(self, order: SinkOrder) -> None:
        """Raise unless this node may open the sink."""
        settings, where = self._context.settings, self._context.name
        self._context.drained.check()
        self.check_open()
        if order.query in self._hosted:
            raise SbonError("sink-exists", f"{order.query} has a sink here already", where=where)
        if len(self._hosted) >= settings.max_sinks:
            raise SbonError("too-many-sinks", f"{settings.max_sinks} sinks are here already", where=where)
        if len(order.inputs) > settings.max_inputs:
            raise SbonError(
                "too-many-inputs", f"{len(order.inputs)} inputs", where=order.component, hint="raise control.max_inputs"
            )
        check_sink(order.spec.kind, order.spec.options, self._settings, failover=order.spec.failover)

    def check_open(self) -> None:
        """Raise ``node-away`` if this node is closing its sinks."""
        if self._closing:
            raise SbonError("node-away", "this node is going away", where=self._context.name)

    async def _resume(self, hosted: HostedSink) -> None:
        claimed = await self._claim(hosted)
        if claimed is not None:
            await self._deliver(claimed)

    async def _claim(self, hosted: HostedSink) -> HostedSink | None:
        """Return the sink in the next epoch; None if it is no longer this node's, and forgotten."""
        order = hosted.order
        try:
            epoch = await claim(self._context, self._records, hosted.acceptors, claim_call(hosted))
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
        await self._shut(hosted.order.query)
        await self._context.clock.sleep(self._context.settings.retry_s)
        current = self._hosted.get(hosted.order.query)  # Followers have acknowledged rows since it was opened.
        return await self._claim(current) if current is not None and current.claim == hosted.claim else None

    async def _reopen(self, hosted: HostedSink) -> Work:
        async def attempt() -> Work:
            self.keep(hosted)
            return await self._run(hosted, fresh=False)

        return await until_passed(self._context, attempt, partial(self._waits, hosted.order.component))

    # -- sinks that move to another node ---------------------------------------------------------------------------------

    def hosted(self, query: str) -> HostedSink | None:
        """Return the query's sink as it is stored here; None if it is not here."""
        return self._hosted.get(query)

    def keep(self, hosted: HostedSink) -> None:
        """Store a sink."""
        self._context.store.put("sink", hosted.order.query, hosted)
        self._hosted[hosted.order.query] = hosted

    def begin(self, hosted: HostedSink) -> None:
        """Begin to deliver, in the background, as another node has done before."""
        self._tasks.start(f"resume {hosted.order.component}", self._deliver(hosted))

    async def release(self, hosted: HostedSink) -> None:
        """Forget a sink that another node hosts; the result and the position that this needs stay."""
        spec = hosted.order.spec

        async def attempt() -> None:
            if self._is_current(hosted):
                await self._shut(hosted.order.query)
            await release_sink(spec.kind, spec.options, self.context_of(hosted, fresh=False))
            self._drop(hosted)

        await until_passed(self._context, attempt, partial(self._waits, hosted.order.component))

    def _drop(self, hosted: HostedSink) -> None:
        if self._is_current(hosted):
            self._links.forget(hosted.order.component)
            self._context.store.delete("sink", hosted.order.query)
            del self._hosted[hosted.order.query]

    async def _forget_at_last(self, hosted: HostedSink, *, delivered: bool) -> None:
        await until_passed(
            self._context, lambda: self._forget(hosted, delivered=delivered), partial(self._waits, hosted.order.component)
        )

    def _waits(self, component: str, error: SbonError) -> None:
        log.warning("sink-waits", sink=component, reason=str(error))

    async def _run(self, hosted: HostedSink, *, fresh: bool) -> Work:
        """Open the sink; raise ``query-over`` if it was destroyed while its file was created."""
        context, order = self._context, hosted.order
        if order.spec.kind == FOLLOW:
            links = self._links.make(hosted, hosted.done)
            sink = FollowSink(order.query, links, context.clock, hosted.ended, hosted.rows, context.computing)
            self._followed[order.query] = sink
            return sink.run
        acknowledged = await fenced(context, self._records, hosted) if hosted.taken_over else None
        sink_context = self.context_of(hosted, fresh=fresh, acknowledged=acknowledged)
        opened = await open_sink(order.spec.kind, order.spec.options, sink_context)
        if not self._is_current(hosted):
            await opened.close()
            raise SbonError("query-over", "it ended while its sink was opened", where=order.component)
        links = self._links.make(hosted, opened.positions())
        runner = SinkRunner(order.query, opened, links, context.clock, self._settings, context.computing)
        self._runners[order.query] = runner
        return runner.run

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
        ended = ReportState(
            query=order.query,
            component=order.component,
            state=state,
            reason=reason[:500],
            epoch=order.epoch,
        )
        refusal = await report(self._context, self._records, hosted.acceptors, ended, lambda: self._is_current(hosted))
        if refusal == NOT_OWNER and order.spec.failover:
            log.info("sink-taken-over", sink=order.component, epoch=order.epoch)
            await self.release(hosted)

    async def _shut(self, query: str, *, unsubscribe: bool = False) -> None:
        self._links.closed(query)
        sinks = [s for s in (self._followed.pop(query, None), self._runners.pop(query, None)) if s is not None]
        for sink in sinks:
            await sink.close(unsubscribe=unsubscribe)
