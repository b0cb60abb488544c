"""The queries whose records this node keeps, as one of three: their state, their cost and their end."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import structlog

from sbon_node.base.tasks import Tasks
from sbon_node.context import Context, backoff_of
from sbon_node.hosting.sources.measurements import MeasurementStore
from sbon_node.model.records import QueryRecord
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.ownership.queries import Records, RecordStep
from sbon_node.queries.describing.describe import Description, as_terminal, delivery_of
from sbon_node.queries.describing.progress import slowest_lag_ms
from sbon_node.queries.describing.survival import with_survival
from sbon_node.queries.describing.time_series import OLDEST_POINTS, TimeSeries, thinned
from sbon_node.queries.describing.waits import KnownReasons
from sbon_node.queries.driving.deploy import QueryHosts
from sbon_node.queries.driving.duties import Duties, Work
from sbon_node.queries.driving.record_steps import (
    check_placing,
    cleaned,
    concluded,
    has_begun,
    is_placing,
    notify_of_placement,
    notify_of_query,
    refused,
    restart_text,
    restarted,
    with_last,
    withdrawn,
)
from sbon_protocol.api.placement import Placement
from sbon_protocol.api.queries import QueryInfo
from sbon_protocol.api.states import query_states
from sbon_protocol.api.states.lifecycle import LOST
from sbon_protocol.api.states.query_states import LIVE, QueryState
from sbon_protocol.api.usage import LinkUsage, QueryUsage, QueryUsagePoint
from sbon_protocol.calls import ReportState
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


class QueryLeader:
    """Records of queries, of which this node is an acceptor or which it is asked about.

    Any node may change any record: the register lets one of several changes through. The work that follows from a record is its
    leader's (:mod:`sbon_node.queries.driving.duties`), except that a node which ends a query begins to clean up after it.
    """

    def __init__(self, context: Context, measurements: MeasurementStore, records: Records, hosts: QueryHosts) -> None:
        self._context, self._measurements, self._records, self._hosts = context, measurements, records, hosts
        self.counted: dict[str, int] = {}
        """Rows of queries that this node leads, as last counted."""
        self.failures = 0
        """Queries that this node has recorded as failed since it started, without refused submissions."""
        self.reasons = KnownReasons()
        self._submitting: dict[str, None] = {}
        self._incomplete: dict[str, None] = {}
        """Queries of which a host did not know a component in the last round."""
        self._histories = UsageHistories(context, self.running, self._point)
        self._tasks = Tasks()
        self._stops = Stops(self._tasks, self._carry_out_stop, context.name)
        work = Work(
            is_submitting=self._submitting.__contains__,
            begin=self._take_up,
            end=self._forget_counts,
            clean=self._clean,
            give_up=self._give_up,
        )
        self._duties = Duties(context, records, self._tasks, work, context.settings.max_queries)

    def start(self) -> None:
        """Take up the work of an earlier run, and of nodes that are gone."""
        self._duties.start()
        self._tasks.start("measure", self._measure())
        self._tasks.start("history", self._histories.run())

    async def close(self) -> None:
        await self._tasks.close()

    async def _measure(self) -> None:
        """Send measurements of running operators to their sources' nodes, as :meth:`_conclude` does once more."""
        while True:
            await self._context.clock.sleep(self._context.settings.measure_interval_s)
            for query in self.running():
                # Requests take time: the query may have ended since the round began, and its record may be gone.
                record = self._records.get(query)
                if record is not None and record.state == query_states.RUNNING:
                    described = await self._described(record)
                    await self._measurements.distribute(record, described.info.operators)
                    await self._end_lost(record, described.info)

    async def _end_lost(self, record: QueryRecord, info: QueryInfo) -> None:
        """Fail a query whose host answers, twice in turn, that it does not know a component: its disk was lost.

        Once would not be enough: the query may be ending meanwhile.
        """
        lost = (info.sink_lost and not record.sink.failover) or any(one.state == LOST for one in (*info.operators, *info.shared))
        if not lost:
            self._incomplete.pop(record.id, None)
            return
        if record.id not in self._incomplete:
            self._incomplete[record.id] = None
            return
        try:
            await self._conclude(record.id, query_states.FAILED, info.reason, lost=True)
        except SbonError as error:
            log.warning("query-not-failed", query=record.id, code=error.code, reason=str(error))
        else:
            self._incomplete.pop(record.id, None)
            self._tasks.start(f"clean {record.id}", self._clean(record.id))

    def _take_up(self, query: str) -> None:
        """Begin the history of a query that this node leads from now on."""
        if not self._histories.points(query):
            self._histories.begin_history(query)

    def running(self) -> list[str]:
        """Return the running queries that this node leads."""
        running = (record.id for record in self._records.all() if record.state == query_states.RUNNING)
        return [query for query in running if self._duties.leads(query)]

    async def _point(self, query: str) -> QueryUsagePoint | None:
        """Return a point of its history; None if it no longer runs."""
        record = self._records.get(query)
        if record is None or record.state != query_states.RUNNING:
            return None
        return query_usage_of(self._context, record, await self._described(record)).now

    # -- submission ---------------------------------------------------------------------------------------------------

    async def check_name(self, name: str) -> None:
        """Raise ``query-exists`` if a live query of that name is recorded here."""
        known = self._records.find(name)
        if known is not None and known.state in LIVE and (record := await self._records.read(known.id)) and record.state in LIVE:
            raise SbonError("query-exists", f"there is a query {name!r} already", where="name", hint="choose another name")

    async def create(self, record: QueryRecord, acceptors: tuple[Acceptor, ...]) -> QueryRecord:
        """Store a new record at :meth:`new_acceptors`; raise ``query-exists``, ``too-many-queries`` or ``no-majority``."""
        await self.check_name(record.called)
        submitter = acceptors[0]
        record = msgspec.structs.replace(record, submitter=submitter.node, submitter_instance=submitter.instance)
        self._submitting[record.id] = None
        try:
            created = await self._records.create(record, acceptors)
        except SbonError as error:
            # It may take effect nevertheless; this node then ends it.
            self._tasks.start(f"refuse {record.id}", self._refuse_at_last(record.id, str(error)[:500]))
            raise
        except BaseException:
            self._submitting.pop(record.id, None)
            raise
        notify_of_query(self._context.bus, created, created.state)
        return created

    def new_acceptors(self, query: str) -> tuple[Acceptor, ...]:
        """Return the acceptors for a new record, this node first."""
        return self._records.for_new(query)

    def acceptors(self, query: str) -> tuple[Acceptor, ...]:
        """Return the acceptors of a record, the submitter first."""
        return self._records.acceptors(query)

    async def place(self, query: str, placement: Placement, hosts: dict[str, str], consumer: str) -> QueryRecord:
        """Store the placement; raise ``query-over`` if the query has ended meanwhile."""

        def placed(record: QueryRecord) -> QueryRecord:
            check_placing(record)
            return msgspec.structs.replace(record, placement=placement, hosts=hosts, consumer=consumer)

        before, record = await self._records.change(query, placed)
        notify_of_placement(self._context.bus, before, record)
        return record

    async def mark_running(self, query: str) -> QueryRecord:
        """Mark the query as running: all parts run or have finished. Raises ``query-over`` if it has ended meanwhile."""

        def begun(record: QueryRecord) -> QueryRecord | None:
            if has_begun(record):
                return None
            check_placing(record)
            return msgspec.structs.replace(record, state=query_states.RUNNING, accepted=True)

        record = await self._change(query, begun)
        if record.state == query_states.RUNNING:
            self._histories.begin_history(
                query, QueryUsagePoint(at_ms=self._context.clock.wall_ms(), byte_ms=0.0, baseline_byte_ms=0.0)
            )
        self._submitting.pop(query, None)
        return record

    async def undo(self, query: str, reason: str) -> QueryRecord | None:
        """Undo a refused submission, and have its record forgotten; return the record, or None if that has to wait.

        The query fails first, so that it cannot finish any more: only then may its results be deleted. If it has ended before,
        its end stands. The record stays while a host is still to be informed, and that of a query that was marked as running,
        although nobody has learnt of it.
        """
        try:
            undone = await self._refuse(query, reason)
        except SbonError as error:
            # The user gets the reason for the refusal, not the reason why the record stays.
            log.warning("query-not-undone", query=query, code=error.code, reason=str(error))
            self._tasks.start(f"refuse {query}", self._refuse_at_last(query, reason))
            return None
        except BaseException:
            self._submitting.pop(query, None)
            raise
        finally:
            self._forget_counts(query)
        self._submitting.pop(query, None)
        return undone

    async def _refuse(self, query: str, reason: str) -> QueryRecord:
        before, record = await self._records.change(query, partial(refused, reason=reason))
        if before.state in LIVE:
            notify_of_query(self._context.bus, record, "refused", before.state, reason)
        missed: Collection[str] = (await self._hosts.destroy(record))[0] if is_placing(before) else ()
        if is_placing(before) and not missed:
            return (await self._records.change(query, withdrawn)).after
        self._tasks.start(f"undo {query}", self._clean(query, missed))
        return record

    async def _refuse_at_last(self, query: str, reason: str) -> None:
        """Store the refusal as soon as disks and acceptors accept it; until then the submission counts as under way."""
        backoff = backoff_of(self._context.settings)
        try:
            while True:
                await self._context.clock.sleep(backoff.next_s())
                if self._records.get(query) is None:
                    return
                with suppress(SbonError):
                    await self._refuse(query, reason)
                    return
        finally:
            self._submitting.pop(query, None)

    async def _give_up(self, query: str, reason: str) -> None:
        """End a query that nobody goes on to place."""

        def failed(record: QueryRecord) -> QueryRecord | None:
            return msgspec.structs.replace(record, state=query_states.FAILED, reason=reason) if is_placing(record) else None

        backoff = backoff_of(self._context.settings)
        while True:
            try:
                await self._change(query, failed)
                break
            except SbonError as error:
                log.warning("query-not-given-up", query=query, code=error.code, reason=str(error))
            await self._context.clock.sleep(backoff.next_s())
        await self._clean(query)

    async def _change(self, query: str, step: RecordStep) -> QueryRecord:
        before, record = await self._records.change(query, step)
        if record.state != before.state:
            notify_of_query(self._context.bus, record, record.state, before.state, record.reason)
            self.failures += record.state == query_states.FAILED
        return record

    # -- questions ----------------------------------------------------------------------------------------------------

    def find(self, query: str) -> QueryRecord | None:
        """Return a record that this node keeps, by its uid or name, as this node knows it."""
        return self._records.find(query)

    async def latest(self, query: str) -> QueryRecord | None:
        """Return the record of a uid as a majority has it, or else as this node knows it."""
        try:
            return await self._records.read(query)
        except SbonError:
            return self._records.get(query)

    async def read_record(self, query: str) -> QueryRecord:
        """Return the record of a uid as a majority has it; raise ``unknown-query`` or ``no-majority``."""
        record = await self._records.read(query)
        if record is None:
            raise SbonError("unknown-query", f"there is no query {query!r}", where="query")
        return record

    def records(self) -> list[QueryRecord]:
        return [record for record in self._records.all() if not record.withdrawn]

    def leader_of(self, query: str) -> str:
        """Return the node that works for the query, as far as this node knows."""
        return self._duties.leader_of(query)

    async def describe(self, record: QueryRecord) -> QueryInfo:
        """Return the query's current state, or its last state if it is over."""
        if record.last is None:
            return as_terminal((await self._described(record, decisions=True)).info)
        return msgspec.structs.replace(as_terminal(record.last), **self._keeping(record))

    async def _described(self, record: QueryRecord, *, decisions: bool = False) -> Description:
        """Return the current state, and remember countable rows for lists."""
        described = await self._hosts.describe(record, decisions=decisions)
        info = msgspec.structs.replace(described.info, **self._keeping(record))
        described = described._replace(info=with_survival(info, self._context.presence.absence))
        now = self._records.get(record.id)
        if described.info.rows is not None and now is not None and now.state in LIVE:
            self.counted[record.id] = described.info.rows
        if now is not None and now.state in LIVE:
            self.reasons.note(record.id, described.reasons)
        return described

    def _keeping(self, record: QueryRecord) -> dict[str, Any]:
        """Return who keeps the record, and whether it begins anew."""
        restart = {"restarted_from": record.restarted_from, "restart": restart_text(record)}
        acceptors = tuple(one.node for one in self._records.acceptors(record.id))
        return {"node": self._duties.leader_of(record.id), "acceptors": acceptors, "version": record.version, **restart}

    async def with_query_usage(self, record: QueryRecord, after_ms: int) -> tuple[QueryInfo, QueryUsage]:
        """Return description and usage from a single round of requests, with history points later than ``after_ms``."""
        if record.last is not None and record.query_usage is not None:
            later = tuple(point for point in record.query_usage.history if point.at_ms > after_ms)
            info = msgspec.structs.replace(as_terminal(record.last), **self._keeping(record))
            return info, msgspec.structs.replace(record.query_usage, history=later)
        described = await self._described(record, decisions=True)
        query_usage = query_usage_of(self._context, record, described, self._histories.points(record.id, after_ms))
        return as_terminal(described.info), query_usage

    # -- ends ---------------------------------------------------------------------------------------------------------

    async def stop(self, query: str) -> QueryInfo:
        """End a running query; leave a query that is over as it is. ``query`` is a uid.

        Unreachable hosts are informed when they return. The end goes on if the caller gives up.
        """
        if (await self.read_record(query)).restart_due:
            await self._change(query, partial(restarted, uid="", reason="stopped by a user"))
        await self._stops.stop(query)
        return await self.describe(await self.read_record(query))

    async def _carry_out_stop(self, query: str) -> None:
        record = await self._conclude(query, query_states.STOPPED, "stopped by a user")
        if record.cleaned:
            return
        try:  # Cleaning goes on in the background where once is not enough.
            missed = await self._clean_once(query)
        except SbonError as error:
            log.warning("clean-waits", query=query, code=error.code, reason=str(error))
            self._tasks.start(f"clean {query}", self._clean(query))
        else:
            if missed:
                self._tasks.start(f"clean {query}", self._clean(query, missed))

    async def finish(self, record: QueryRecord, call: ReportState, node: str) -> None:
        """End a query whose component at ``node`` has finished or failed."""
        reason = "" if call.state == query_states.FINISHED else f"{call.component} at {node}: {call.reason}"
        # Answered only after storing: the host does not report again.
        await self._conclude(record.id, call.state, reason)
        self._tasks.start(f"clean {record.id}", self._clean(record.id))

    async def _conclude(self, query: str, state: QueryState, reason: str, *, lost: bool = False) -> QueryRecord:
        """Store the end with the last description and usage; a ``lost`` query begins anew if its submission allows it."""
        record = await self.read_record(query)
        if record.state not in LIVE:
            return record
        described = await self._described(record, decisions=True)
        query_usage = query_usage_of(self._context, record, described, thinned(self._histories.points(query), OLDEST_POINTS))
        last = as_terminal(msgspec.structs.replace(described.info, state=state, reason=reason))
        concluded_record = await self._change(query, partial(concluded, last=last, query_usage=query_usage, lost=lost))
        if concluded_record.state in LIVE:
            return concluded_record
        self._forget_counts(query)
        if (concluded_record.state, concluded_record.reason) == (state, reason):
            log.info("query-over", query=query, state=state, reason=reason)
            self._tasks.start(f"remember {query}", self._measurements.distribute(record, last.operators))
        return concluded_record

    def _forget_counts(self, query: str) -> None:
        self._incomplete.pop(query, None)
        self._histories.end_history(query)
        self.counted.pop(query, None)
        self.reasons.forget(query)

    async def _clean(self, query: str, nodes: Collection[str] = ()) -> None:
        """Ask every host, or ``nodes``, to delete its parts; retry while hosts are away or too few acceptors answer."""
        backoff = backoff_of(self._context.settings)
        while True:
            try:
                nodes = await self._clean_once(query, nodes)
                if not nodes:
                    return
            except SbonError as error:
                log.warning("clean-waits", query=query, code=error.code, reason=str(error))
            await self._context.clock.sleep(backoff.next_s())

    async def _clean_once(self, query: str, nodes: Collection[str] = ()) -> list[str]:
        """Return the nodes that were unreachable; none if the record is gone, or the query is not over."""
        record = await self._records.read(query)
        if record is None or record.state in LIVE:
            return []
        missed, sink = await self._hosts.destroy(record, nodes)
        if sink is not None and sink.rows is not None and record.last is not None:
            delivered = {"rows": sink.rows, "delivery": delivery_of(self._context, sink)}
            await self._change(query, lambda now: with_last(now, **delivered))
            await self._hosts.confirm(record)
        # Parts of a query still in submission may start after this; its submitter ends them.
        if not missed and query not in self._submitting:
            await self._change(query, cleaned)
        return missed


# -- Stops of queries, which the query's leader carries out to their end, even if the node that asked for one dies meanwhile --


class Stops:
    """The stops under way at a query's leader, one for each query.

    ``carry_out`` ends a query and informs its hosts; it runs as one of ``tasks``. ``node`` is this node's name.
    """

    def __init__(self, tasks: Tasks, carry_out: Callable[[str], Awaitable[None]], node: str) -> None:
        self._tasks, self._carry_out, self._node = tasks, carry_out, node
        self._under_way: dict[str, asyncio.Future[None]] = {}

    async def stop(self, query: str) -> None:
        """Wait until the query is stopped. The stop goes on if the caller gives up.

        Raises :class:`SbonError`: the failure of the stop, or ``stopping`` if this node ends first.
        """
        if query not in self._under_way:
            ended = self._under_way[query] = asyncio.get_running_loop().create_future()
            self._tasks.start(f"stop {query}", self._run(query, ended))
            if f"stop {query}" not in self._tasks:
                del self._under_way[query]
                raise self._away()
        await asyncio.shield(self._under_way[query])

    async def _run(self, query: str, ended: asyncio.Future[None]) -> None:
        try:
            await self._carry_out(query)
        except BaseException as error:
            if not ended.done():
                ended.set_exception(error if isinstance(error, SbonError) else self._away())
                ended.exception()  # Seen, even if nobody waits any more.
            if not isinstance(error, SbonError):
                raise
        else:
            ended.set_result(None)
        finally:
            self._under_way.pop(query, None)

    def _away(self) -> SbonError:
        return SbonError("stopping", "this node is about to end", where=self._node)


# -- History of running queries: their leader records points of each query's network usage every few seconds ----------


class UsageHistories:
    """Histories by query; ``running`` returns running queries, ``now`` a query's current point, None if it is over."""

    def __init__(
        self, context: Context, running: Callable[[], list[str]], now: Callable[[str], Awaitable[QueryUsagePoint | None]]
    ) -> None:
        self._context, self._running, self._now = context, running, now
        self._kept: dict[str, TimeSeries[QueryUsagePoint]] = {}
        self._last = ""

    def begin_history(self, query: str, *points: QueryUsagePoint) -> None:
        self._kept[query] = TimeSeries(self._context.settings.history_points, *points, complete=True)

    def end_history(self, query: str) -> None:
        self._kept.pop(query, None)

    def points(self, query: str, after_ms: int = -1) -> list[QueryUsagePoint]:
        history = self._kept.get(query)
        return [] if history is None else history.points(after_ms)

    async def run(self) -> None:
        """Record points for ever. Each costs a request to every node with a part; if many queries run, they take turns."""
        settings = self._context.settings
        while True:
            await self._context.clock.sleep(settings.history_interval_s)
            await asyncio.gather(*map(self._record_point, self._next(settings.history_queries)))

    def _next(self, most: int) -> list[str]:
        """Return the next queries in the order of their names."""
        running = sorted(query for query in self._running() if query in self._kept)
        if len(running) <= most:
            return running
        later = [query for query in running if query > self._last]
        chosen = (later + running)[:most]
        self._last = chosen[-1]
        return chosen

    async def _record_point(self, query: str) -> None:
        point = await self._now(query)
        if point is not None and query in self._kept:
            self._kept[query].add(point)


# -- Network usage: bytes x one-way latency on every link, against the consumer baseline ------------------------------

# Bytes x latency is SBON's network usage (section 2.3: rate x latency) integrated over the query's life. The consumer baseline
# sends all rows of every source to the consumer.


def query_usage_of(
    context: Context, record: QueryRecord, described: Description, history: Iterable[QueryUsagePoint] = ()
) -> QueryUsage:
    """Return the query's network usage by link and over time.

    Bytes are of frames as sent (compressed, resent frames included), those that cross once for several readers in equal parts.
    The baseline takes all bytes of each source. Latencies are measured or estimated by the sender, or by
    this node for a source whose node did not answer.
    """
    links = tuple(
        _line(link.stream, link.source_node, link.target_node, link.borne_bytes, link.latency_ms, link.queries)
        for link in described.info.links
    )
    carried: dict[str, int] = {}
    for link in described.info.links:
        carried[link.stream] = max(carried.get(link.stream, 0), link.bytes)
    baseline = []
    for source in (planned.source for planned in record.plan.sources):
        latency_ms = _latency_ms(context, described, source.node, record.consumer)
        baseline.append(_line(source.id, source.node, record.consumer, carried.get(source.id, 0), latency_ms))
    at_ms, byte_ms, baseline_byte_ms = context.clock.wall_ms(), _sum(links), _sum(baseline)
    return QueryUsage(
        query=record.called,
        strategy=record.strategy,
        links=links,
        baseline=tuple(baseline),
        byte_ms=byte_ms,
        baseline_byte_ms=baseline_byte_ms,
        at_ms=at_ms,
        now=_point(described.info, at_ms, byte_ms, baseline_byte_ms),
        skipped=sum(operator.skipped for operator in described.info.operators),
        history=tuple(history),
    )


def _point(info: QueryInfo, at_ms: int, byte_ms: float, baseline_byte_ms: float) -> QueryUsagePoint:
    """Return the sums, and the query's progress by the same description."""
    first = {source.source.id for source in info.sources}
    stats = [operator.stats for operator in info.operators if operator.stats is not None]
    return QueryUsagePoint(
        at_ms=at_ms,
        byte_ms=byte_ms,
        baseline_byte_ms=baseline_byte_ms,
        rows_in=sum(link.rows for link in info.links if link.stream in first),
        rows_out=info.rows,
        lag_ms=slowest_lag_ms(info.sources, info.operators),
        batch_ms=max((operator_stats.batch_ms for operator_stats in stats if operator_stats.batches), default=None),
        held_back=sum(operator.held_back for operator in info.operators),
    )


def _line(stream: str, source_node: str, target_node: str, size: int, latency_ms: float | None, queries: int = 1) -> LinkUsage:
    return LinkUsage(
        stream=stream,
        source_node=source_node,
        target_node=target_node,
        bytes=size,
        latency_ms=latency_ms,
        byte_ms=None if latency_ms is None else size * latency_ms / queries,
        queries=queries,
    )


def _sum(lines: Iterable[LinkUsage]) -> float:
    return sum(line.byte_ms for line in lines if line.byte_ms is not None)


def _latency_ms(context: Context, described: Description, source: str, target: str) -> float | None:
    if source == target:
        return 0.0
    reported = described.latencies_ms.get(source, {}).get(target)
    return context.directory.estimate_rtt_ms(source, target).one_way_ms if reported is None else reported
