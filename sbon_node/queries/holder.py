"""The queries whose records this node holds: their state, their cost and their end."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from sbon_node.errors import SbonError
from sbon_node.hosting.claims import REFUSED
from sbon_node.hosting.measurements import MeasurementStore
from sbon_node.model.placement import Placement
from sbon_node.model.queries import ForeignComponent, QueryInfo
from sbon_node.model.records import QueryRecord
from sbon_node.model.states import query_states
from sbon_node.model.states.query_states import LIVE, QueryState
from sbon_node.model.usage import QueryUsage, QueryUsagePoint
from sbon_node.net.peers import Caller
from sbon_node.queries import deploy
from sbon_node.queries.describe import Description, delivery_of, describe
from sbon_node.queries.lost_records import end_components
from sbon_node.queries.network_usage import query_usage_of
from sbon_node.queries.notify import notify_of_placement, notify_of_query
from sbon_node.queries.records import Records
from sbon_node.queries.stops import Stops
from sbon_node.queries.summary import summary_of
from sbon_node.queries.terminal_description import as_terminal
from sbon_node.queries.usage_history import UsageHistories
from sbon_node.tasks import Tasks
from sbon_node.workflow.context import Context
from sbon_node.workflow.retry import backoff_of
from sbon_protocol.calls import (
    ClaimComponent,
    Claimed,
    ListQueries,
    QueryDescription,
    QueryRecords,
    ReportState,
    ShowQuery,
    StopQuery,
)

log = structlog.get_logger()

MAX_COMPONENTS = 2048
"""Most parts of other holders' queries in a list of all records, which must fit a message."""


class QueryHolder:
    """Records of queries submitted here, and the calls that their hosts make about them.

    ``components`` returns query, part and query holder of everything that this node hosts; ``delivered`` returns the rows that a
    query's sink on this node has delivered.
    """

    def __init__(
        self,
        context: Context,
        measurements: MeasurementStore,
        components: Callable[[], list[tuple[str, str, str]]],
        delivered: Callable[[str], int | None],
    ) -> None:
        self._context, self._measurements = context, measurements
        self._components, self._delivered = components, delivered
        self._counted: dict[str, int] = {}
        self._troubles: dict[str, str] = {}
        """Reasons why running queries may not progress, as last described."""
        self._records = Records(context.store, context.settings.max_queries)
        self._submitting: dict[str, None] = {}
        self._histories = UsageHistories(context, self._running, self._point)
        self._tasks = Tasks()
        self._stops = Stops(self._tasks, self._carry_out_stop, context.name)
        handle = context.server.handle
        handle(ClaimComponent, self._handle_claim)
        handle(ReportState, self._handle_report)
        handle(ListQueries, self._handle_list)
        handle(ShowQuery, self._handle_show)
        handle(StopQuery, self._handle_stop)
        # Must precede every answer to a call: a report that a sink has finished must not reach a query that was never accepted.
        for record in self._records.all():
            if record.state == query_states.PLACING:
                self._change(record.id, state=query_states.FAILED, reason="the node restarted while the query was being placed")

    def start(self) -> None:
        """Undo submissions and complete endings that a restart interrupted."""
        for record in self._records.all():
            if record.state not in LIVE and not record.cleaned:
                self._tasks.start(f"clean {record.id}", self._clean(record.id))
            if record.state in LIVE:
                self._histories.begin(record.id)
        self._tasks.start("measure", self._measure())
        self._tasks.start("history", self._histories.run())

    async def close(self) -> None:
        await self._tasks.close()

    async def _measure(self) -> None:
        """Send measurements of running operators to their sources' nodes.

        :meth:`_conclude` sends them once more when a query ends.
        """
        while True:
            await self._context.clock.sleep(self._context.settings.measure_interval_s)
            for query in self._running():
                # Requests take time: the query may have ended since the round began, and its record may be gone.
                record = self._records.get(query)
                if record is not None and record.state == query_states.RUNNING:
                    described = await self._described(record)
                    await self._measurements.distribute(record, described.info.operators)

    def _running(self) -> list[str]:
        return [record.id for record in self._records.all() if record.state == query_states.RUNNING]

    async def _point(self, query: str) -> QueryUsagePoint | None:
        """Return a point of its history; None if it no longer runs."""
        record = self._records.get(query)
        if record is None or record.state != query_states.RUNNING:
            return None
        return query_usage_of(self._context, record, await self._described(record)).now

    def new_id(self, name: str) -> str:
        """Return the name that the user chose, or else a short random name; raise ``query-exists`` if it is taken here."""
        if name:
            if self._records.get(name) is not None:
                raise SbonError("query-exists", f"there is a query {name!r} already", where="name", hint="choose another name")
            return name
        return _random_id(self._context.rng, self._records)

    def create(self, record: QueryRecord) -> QueryRecord:
        """Store a new record; raise ``query-exists`` or ``too-many-queries``."""
        self.new_id(record.id)
        created = self._records.compare_and_set(0, record)
        self._submitting[record.id] = None
        notify_of_query(self._context.bus, created, created.state)
        return created

    def place(self, query: str, placement: Placement, hosts: dict[str, str], epochs: dict[str, int]) -> QueryRecord:
        """Store the placement; raise ``query-over`` if the query has ended meanwhile."""
        self._check_placing(query)
        before = self.record(query)
        record = self._change(query, placement=placement, hosts=hosts, epochs=epochs)
        notify_of_placement(self._context.bus, before, record)
        return record

    def begin(self, query: str) -> QueryRecord:
        """Mark the query as running: all parts run or have finished.

        Raises ``query-over`` if the query has ended while they started.
        """
        record = self.record(query)
        if record.state != query_states.FINISHED:
            self._check_placing(query)
            record = self._change(query, state=query_states.RUNNING, accepted=True)
            self._histories.begin(query, QueryUsagePoint(at_ms=self._context.clock.wall_ms(), byte_ms=0.0, baseline_byte_ms=0.0))
        self._submitting.pop(query, None)
        return record

    async def undo(self, query: str, reason: str) -> None:
        """Undo a refused submission and delete its record.

        The record stays while a host is still to be informed, or if the query was ended meanwhile. It keeps its state until then,
        so that a restart of this node undoes the rest.
        """
        missed, _ = await deploy.destroy(self._context, self.record(query))
        self._submitting.pop(query, None)
        self._counted.pop(query, None)
        self._troubles.pop(query, None)
        try:
            self._refuse(query, reason, missed)
        except SbonError as error:
            # The user gets the reason for the refusal, not the reason why the record stays.
            log.warning("query-not-undone", query=query, code=error.code, reason=str(error))
            self._tasks.start(f"refuse {query}", self._refuse_at_last(query, reason, missed))

    def _refuse(self, query: str, reason: str, missed: Collection[str]) -> None:
        record = self.record(query)
        if record.state == query_states.PLACING:
            if not missed:
                self._records.delete(query)
                notify_of_query(self._context.bus, record, "refused", query_states.PLACING, reason)
                return
            self._change(query, state=query_states.FAILED, reason=reason)
        self._tasks.start(f"undo {query}", self._clean(query, missed))

    async def _refuse_at_last(self, query: str, reason: str, missed: Collection[str]) -> None:
        """Store the refusal as soon as the disk accepts it."""
        backoff = backoff_of(self._context.settings)
        while True:
            await self._context.clock.sleep(backoff.next_s())
            if self._records.get(query) is None:
                return
            with suppress(SbonError):
                self._refuse(query, reason, missed)
                return

    def _change(self, query: str, **fields: Any) -> QueryRecord:
        record = self.record(query)
        changed = msgspec.structs.replace(record, **fields)
        query_states.LIFECYCLE.check(record.state, changed.state, query)
        changed = self._records.compare_and_set(record.version, changed)
        if changed.state != record.state:
            notify_of_query(self._context.bus, changed, changed.state, record.state, changed.reason)
        return changed

    def end_error(self, query: str) -> SbonError | None:
        """Return ``query-over``, with the reason, for a query that has ended while it started."""
        record = self.record(query)
        if record.state == query_states.PLACING:
            return None
        reason = f"{record.state}: {record.reason}" if record.reason else record.state
        return SbonError("query-over", f"the query ended while it started, {reason}", where=query)

    def _check_placing(self, query: str) -> None:
        if (ended := self.end_error(query)) is not None:
            raise ended

    def record(self, query: str) -> QueryRecord:
        record = self._records.get(query)
        if record is None:
            raise SbonError("unknown-query", f"there is no query {query!r} here", where="query")
        return record

    def records(self) -> list[QueryRecord]:
        return self._records.all()

    async def describe(self, record: QueryRecord) -> QueryInfo:
        """Return the query's current state, or its last state if it is over."""
        return as_terminal(record.last if record.last is not None else (await self._described(record)).info)

    async def _described(self, record: QueryRecord) -> Description:
        """Return the current state, and remember countable rows for lists."""
        described = await describe(self._context, record)
        now = self._records.get(record.id)
        if described.info.rows is not None and now is not None and now.state in LIVE:
            self._counted[record.id] = described.info.rows
        if now is not None and now.state in LIVE:
            # Membership knows sooner which nodes a query waits for.
            self._troubles[record.id] = "" if "no answer from" in described.info.reason else described.info.reason
        return described

    async def _with_query_usage(self, record: QueryRecord, after_ms: int) -> tuple[QueryInfo, QueryUsage]:
        """Return description and usage from a single round of requests, with history points later than ``after_ms``."""
        if record.last is not None and record.query_usage is not None:
            later = tuple(point for point in record.query_usage.history if point.at_ms > after_ms)
            return as_terminal(record.last), msgspec.structs.replace(record.query_usage, history=later)
        described = await self._described(record)
        query_usage = query_usage_of(self._context, record, described, self._histories.points(record.id, after_ms))
        return as_terminal(described.info), query_usage

    async def stop(self, query: str) -> QueryInfo:
        """End a running query; leave a query that is over as it is.

        Unreachable hosts are informed when they return. The end goes on if the caller gives up.
        """
        self.record(query)
        await self._stops.stop(query)
        return await self.describe(self.record(query))

    async def _carry_out_stop(self, query: str) -> None:
        await self._conclude(query, query_states.STOPPED, "stopped by a user")
        if not self.record(query).cleaned:
            await self._clean_at_first(query)

    async def _clean_at_first(self, query: str) -> None:
        """Clean once, and go on in the background where that is not enough."""
        try:
            missed = await self._clean_once(query)
        except SbonError as error:
            log.warning("clean-waits", query=query, code=error.code, reason=str(error))
            self._tasks.start(f"clean {query}", self._clean(query))
        else:
            if missed:
                self._tasks.start(f"clean {query}", self._clean(query, missed))

    async def _conclude(self, query: str, state: QueryState, reason: str) -> None:
        """Take the last description and network usage while all parts exist, and store them with the end."""
        record = self.record(query)
        if record.state not in LIVE:
            return
        described = await describe(self._context, record)
        query_usage = query_usage_of(self._context, record, described, self._histories.at_end(query))
        if self.record(query).state in LIVE:
            last = as_terminal(msgspec.structs.replace(described.info, state=state, reason=reason))
            self._change(query, state=state, reason=reason, last=last, query_usage=query_usage)
            self._histories.end(query)
            self._counted.pop(query, None)
            self._troubles.pop(query, None)
            log.info("query-over", query=query, state=state, reason=reason)
            self._tasks.start(f"remember {query}", self._measurements.distribute(record, last.operators))

    async def _clean(self, query: str, nodes: Collection[str] = ()) -> None:
        """Ask every host, or ``nodes``, to delete its parts; retry while hosts are away or this node's disk is full."""
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
        """Return the nodes that were unreachable; none if the record was deleted or replaced meanwhile."""
        if (record := self._ended(query)) is None:
            return []
        missed, sink = await deploy.destroy(self._context, record, nodes)
        if (record := self._ended(query)) is None:
            return []
        if sink is not None and sink.rows is not None and record.last is not None:
            last = msgspec.structs.replace(record.last, rows=sink.rows, delivery=delivery_of(self._context, sink))
            self._change(query, last=as_terminal(last))
            await deploy.confirm(self._context, record)
        # Parts of a query still in submission may start after this; its submitter ends them.
        if not missed and query not in self._submitting:
            self._change(query, cleaned=True)
        return missed

    def _ended(self, query: str) -> QueryRecord | None:
        """Return the record of a query that is over."""
        record = self._records.get(query)
        return record if record is not None and record.state not in LIVE else None

    def _known(self, query: str, component: str) -> QueryRecord:
        """Return the record that a host asks about; only a record is proof that its query is over."""
        record = self._records.get(query)
        if record is None:
            raise SbonError("record-unknown", f"{self._context.name} has no record of {query}", where=component)
        return record

    async def _handle_claim(self, call: ClaimComponent, caller: Caller) -> Claimed:
        record = self._known(call.query, call.component)
        if record.state not in LIVE:
            raise SbonError(REFUSED if record.refused else "query-over", f"{call.query} is over", where=call.component)
        component, known = call.component, record.epochs.get(call.component, 0)
        if call.epoch == known - 1 and record.claimants.get(component) == caller.instance:
            self._check_owner(record, component, caller, known, call.submitted_ms)
            return Claimed(epoch=known)  # A repeated claim, whose answer was lost.
        self._check_owner(record, component, caller, call.epoch, call.submitted_ms)
        epochs, claimants = {**record.epochs, component: known + 1}, {**record.claimants, component: caller.instance}
        self._change(call.query, epochs=epochs, claimants=claimants)
        return Claimed(epoch=known + 1)

    def _check_owner(self, record: QueryRecord, component: str, caller: Caller, epoch: int, submitted_ms: int) -> None:
        """Raise ``not-owner`` unless the caller hosts the component of this submission, in the record's epoch."""
        owner = record.consumer if component == record.sink_component else record.hosts.get(component)
        known = record.epochs.get(component, 0)
        if (owner, known) != (caller.node, epoch) or submitted_ms not in (0, record.submitted_ms):
            raise SbonError("not-owner", f"{component} belongs to {owner} in epoch {known}", where=component)

    async def _handle_report(self, call: ReportState, caller: Caller) -> None:
        record = self._known(call.query, call.component)
        epoch = call.epoch or record.epochs.get(call.component, 0)
        self._check_owner(record, call.component, caller, epoch, call.submitted_ms)
        if record.state in LIVE:
            reason = "" if call.state == query_states.FINISHED else f"{call.component} at {caller.node}: {call.reason}"
            # Answered only after storing: the host does not report again.
            await self._conclude(record.id, call.state, reason)
            self._tasks.start(f"clean {record.id}", self._clean(record.id))

    async def _handle_list(self, call: ListQueries, caller: Caller) -> QueryRecords:
        name = self._context.name
        records = [record for record in self._records.all() if call.query in ("", record.id)]
        foreign = [
            ForeignComponent(query=query, component=component, node=name, holder=holder)
            for query, component, holder in self._components()
            if holder != name and call.query in ("", query)
        ]
        return QueryRecords(queries=tuple(map(self._listing, records)), components=tuple(foreign[:MAX_COMPONENTS]))

    def _listing(self, record: QueryRecord) -> QueryInfo:
        here = self._delivered(record.id) if record.consumer == self._context.name else None
        counted = self._counted.get(record.id) if here is None else here
        return summary_of(self._context, record, counted, self._troubles.get(record.id, ""))

    async def _handle_show(self, call: ShowQuery, caller: Caller) -> QueryDescription:
        return QueryDescription(query=await self._with_query_usage(self.record(call.query), call.history_after_ms))

    async def _handle_stop(self, call: StopQuery, caller: Caller) -> QueryDescription:
        if self._records.get(call.query) is None:
            return QueryDescription(query=await end_components(self._context, call.query))
        return QueryDescription(query=await self.stop(call.query))


def _random_id(rng: random.Random, records: Records) -> str:
    while True:
        query = "q" + "".join(rng.choices("abcdefghjkmnpqrstuvwxyz23456789", k=6))
        if records.get(query) is None:
            return query
