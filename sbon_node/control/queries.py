"""The queries this node holds the records of: what they do, what they cost, and how they end."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Any

import msgspec
import structlog

from sbon_node.control import deploy
from sbon_node.control.bill import BillHistory, bill_of
from sbon_node.control.claims import REFUSED
from sbon_node.control.context import Context
from sbon_node.control.describe import Description, delivery_of, describe
from sbon_node.control.listed import listed
from sbon_node.control.measurements import MeasurementBook
from sbon_node.control.over import as_over
from sbon_node.control.records import LIVE, QueryRecord, Records
from sbon_node.control.report import Bill, BillPoint, ForeignPart, QueryInfo, QueryState
from sbon_node.control.telling import tell_of_places, tell_of_query
from sbon_node.errors import SbonError
from sbon_node.net.peers import Caller
from sbon_node.placement.problem import Placement
from sbon_node.tasks import Tasks
from sbon_protocol.calls import (
    Claimed,
    ClaimPart,
    ListQueries,
    QueryDescription,
    QueryRecords,
    ReportState,
    ShowQuery,
    StopQuery,
)

log = structlog.get_logger()

MAX_PARTS = 2048
"""Parts of others' queries told beside a list of all records: it has to fit a message."""


class QueryBook:
    """Records of queries submitted here, and the calls their hosts make about them. ``parts`` gives query, part and the record's
    holder of all that this node hosts, ``delivered`` the rows that a query's sink here has delivered."""

    def __init__(
        self,
        context: Context,
        measurements: MeasurementBook,
        parts: Callable[[], list[tuple[str, str, str]]],
        delivered: Callable[[str], int | None],
    ) -> None:
        self._context, self._measurements = context, measurements
        self._parts, self._delivered = parts, delivered
        self._counted: dict[str, int] = {}
        self._records = Records(context.store, context.settings.max_queries)
        self._submitting: dict[str, None] = {}
        self._histories: dict[str, BillHistory] = {}
        self._tasks = Tasks()
        handle = context.server.handle
        handle(ClaimPart, self._claimed)
        handle(ReportState, self._reported)
        handle(ListQueries, self._listed)
        handle(ShowQuery, self._shown)
        handle(StopQuery, self._stopped)

    def start(self) -> None:
        """A submission that a restart cut short is undone, from now on; an ending that was cut short is finished."""
        for record in self._records.all():
            if record.state == "placing":
                record = self._change(record.id, state="failed", reason="the node restarted while the query was being placed")
            if record.state not in LIVE and not record.cleaned:
                self._tasks.start(f"clean {record.id}", self._clean(record.id))
            if record.state in LIVE:
                self._histories[record.id] = BillHistory()
        self._tasks.start("measure", self._measure())

    async def close(self) -> None:
        await self._tasks.close()

    async def _measure(self) -> None:
        """Has what running operators have done remembered, and what it cost; once more when a query ends (:meth:`_conclude`)."""
        while True:
            await self._context.clock.sleep(self._context.settings.measure_interval_s)
            for query in [record.id for record in self._records.all()]:
                # Asking takes time: the query may be over since the round began, and its record gone.
                record = self._records.get(query)
                if record is not None and record.state == "running":
                    described = await self._described(record)
                    if (history := self._histories.get(query)) is not None:
                        history.add(bill_of(self._context, record, described))
                    await self._measurements.tell(record, described.info.operators)

    def new_id(self, name: str) -> str:
        """The name a user chose, if it is free here, else a short random one; raises ``query-exists``."""
        if name:
            if self._records.get(name) is not None:
                raise SbonError("query-exists", f"there is a query {name!r} already", where="name", hint="choose another name")
            return name
        return _random_id(self._context.rng, self._records)

    def create(self, record: QueryRecord) -> QueryRecord:
        """Raises ``query-exists``, ``too-many-queries``."""
        self.new_id(record.id)
        created = self._records.compare_and_set(0, record)
        self._submitting[record.id] = None
        tell_of_query(self._context.bus, created, created.state)
        return created

    def place(self, query: str, placement: Placement, hosts: dict[str, str], epochs: dict[str, int]) -> QueryRecord:
        """Raises ``query-over`` where the query has been ended meanwhile."""
        self._check_placing(query)
        before = self.record(query)
        record = self._change(query, placement=placement, hosts=hosts, epochs=epochs)
        tell_of_places(self._context.bus, before, record)
        return record

    def begin(self, query: str) -> QueryRecord:
        """All parts run, or have finished already. Raises ``query-over`` where the query has been ended while they started."""
        record = self.record(query)
        if record.state != "finished":
            self._check_placing(query)
            record = self._change(query, state="running", accepted=True)
            self._histories[query] = BillHistory(BillPoint(at_ms=self._context.clock.wall_ms(), byte_ms=0.0, whole_byte_ms=0.0))
        self._submitting.pop(query, None)
        return record

    async def undo(self, query: str, reason: str) -> None:
        """A submission that was refused leaves nothing behind: its record goes too, but where a host has yet to be told, or the
        query was ended meanwhile. It keeps its state until then, so that a restart of this node undoes what is left."""
        missed, _ = await deploy.destroy(self._context, self.record(query))
        self._submitting.pop(query, None)
        self._counted.pop(query, None)
        if self.record(query).state == "placing":
            if not missed:
                tell_of_query(self._context.bus, self.record(query), "refused", "placing", reason)
                self._records.delete(query)
                return
            self._change(query, state="failed", reason=reason)
        self._tasks.start(f"undo {query}", self._clean(query, missed))

    def _change(self, query: str, **fields: Any) -> QueryRecord:
        record = self.record(query)
        changed = self._records.compare_and_set(record.version, msgspec.structs.replace(record, **fields))
        if changed.state != record.state:
            tell_of_query(self._context.bus, changed, changed.state, record.state, changed.reason)
        return changed

    def over(self, query: str) -> SbonError | None:
        """``query-over``, with the reason, where the query has been ended while it started."""
        record = self.record(query)
        if record.state == "placing":
            return None
        reason = f"{record.state}: {record.reason}" if record.reason else record.state
        return SbonError("query-over", f"the query ended while it started, {reason}", where=query)

    def _check_placing(self, query: str) -> None:
        if (over := self.over(query)) is not None:
            raise over

    def record(self, query: str) -> QueryRecord:
        record = self._records.get(query)
        if record is None:
            raise SbonError("unknown-query", f"there is no query {query!r} here", where="query")
        return record

    def held(self) -> list[QueryRecord]:
        return self._records.all()

    async def describe(self, record: QueryRecord) -> QueryInfo:
        """As it is now; as it was last, where it is over."""
        return as_over(record.last if record.last is not None else (await self._described(record)).info)

    async def _described(self, record: QueryRecord) -> Description:
        """As it is now; rows that can be counted are remembered for lists."""
        described = await describe(self._context, record)
        now = self._records.get(record.id)
        if described.info.rows is not None and now is not None and now.state in LIVE:
            self._counted[record.id] = described.info.rows
        return described

    async def _with_bill(self, record: QueryRecord) -> tuple[QueryInfo, Bill]:
        """Both from one round of questions."""
        if record.last is not None and record.bill is not None:
            return as_over(record.last), record.bill
        described = await self._described(record)
        return as_over(described.info), self._bill(record, described)

    def _bill(self, record: QueryRecord, described: Description) -> Bill:
        history = self._histories.get(record.id)
        return bill_of(self._context, record, described, history.points if history is not None else ())

    async def stop(self, query: str) -> QueryInfo:
        """Ends a running query; one that is over already stays as it is. Hosts out of reach are told when they are back."""
        await self._conclude(query, "stopped", "stopped by a user")
        if not self.record(query).cleaned and (missed := await self._clean_once(query)):
            self._tasks.start(f"clean {query}", self._clean(query, missed))
        return await self.describe(self.record(query))

    async def _conclude(self, query: str, state: QueryState, reason: str) -> None:
        """Takes the last description and the bill while all is there, and stores them with the end."""
        record = self.record(query)
        if record.state not in LIVE:
            return
        described = await describe(self._context, record)
        bill = self._bill(record, described)
        if self.record(query).state in LIVE:
            last = as_over(msgspec.structs.replace(described.info, state=state, reason=reason))
            self._change(query, state=state, reason=reason, last=last, bill=bill)
            self._histories.pop(query, None)
            self._counted.pop(query, None)
            log.info("query-over", query=query, state=state, reason=reason)
            self._tasks.start(f"remember {query}", self._measurements.tell(record, last.operators))

    async def _clean(self, query: str, nodes: Collection[str] = ()) -> None:
        """Has every host, or ``nodes``, forget its parts, however long one of them is away."""
        settings, pause_s = self._context.settings, self._context.settings.retry_s
        while nodes := await self._clean_once(query, nodes):
            await self._context.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, settings.retry_max_s)

    async def _clean_once(self, query: str, nodes: Collection[str] = ()) -> list[str]:
        """The nodes that could not be told; none where the record has made room meanwhile, be it for another of that name."""
        if (record := self._over(query)) is None:
            return []
        missed, sink = await deploy.destroy(self._context, record, nodes)
        if (record := self._over(query)) is None:
            return []
        if sink is not None and sink.rows is not None and record.last is not None:
            last = msgspec.structs.replace(record.last, rows=sink.rows, delivery=delivery_of(self._context, sink))
            self._change(query, last=as_over(last))
        # Of a query that is being submitted still, parts may start after this: whoever submits it ends them.
        if not missed and query not in self._submitting:
            self._change(query, cleaned=True)
        return missed

    def _over(self, query: str) -> QueryRecord | None:
        """The record of a query that is over."""
        record = self._records.get(query)
        return record if record is not None and record.state not in LIVE else None

    async def _claimed(self, call: ClaimPart, caller: Caller) -> Claimed:
        record = self._records.get(call.query)
        if record is None or record.state not in LIVE:
            code = REFUSED if record is not None and record.refused else "query-over"
            raise SbonError(code, f"the query {call.query} is over", where=call.part)
        owner = record.consumer if call.part == record.sink_part else record.hosts.get(call.part)
        known = record.epochs.get(call.part, 0)
        if owner != caller.node or call.epoch > known:
            raise SbonError("not-owner", f"{call.part} belongs to {owner} in epoch {known}", where=call.part)
        # A repeated claim (its answer was lost) takes another epoch: epochs need only grow.
        self._change(call.query, epochs={**record.epochs, call.part: known + 1})
        return Claimed(epoch=known + 1)

    async def _reported(self, call: ReportState, caller: Caller) -> None:
        record = self._records.get(call.query)
        if record is None:
            raise SbonError("query-over", f"the query {call.query} is unknown here", where=call.part)
        owner = record.consumer if call.part == record.sink_part else record.hosts.get(call.part)
        if owner != caller.node:
            raise SbonError("not-owner", f"{call.part} belongs to {owner}", where=call.part)
        if record.state in LIVE:
            reason = "" if call.state == "finished" else f"{call.part} at {caller.node}: {call.reason}"
            # Answered once it is stored: the host does not tell again.
            await self._conclude(record.id, call.state, reason)
            self._tasks.start(f"clean {record.id}", self._clean(record.id))

    async def _listed(self, call: ListQueries, caller: Caller) -> QueryRecords:
        name = self._context.name
        records = [record for record in self._records.all() if call.query in ("", record.id)]
        foreign = [
            ForeignPart(query=query, part=part, node=name, holder=holder)
            for query, part, holder in self._parts()
            if holder != name and call.query in ("", query)
        ]
        return QueryRecords(queries=tuple(map(self._listing, records)), parts=tuple(foreign[:MAX_PARTS]))

    def _listing(self, record: QueryRecord) -> QueryInfo:
        here = self._delivered(record.id) if record.consumer == self._context.name else None
        return listed(self._context, record, self._counted.get(record.id) if here is None else here)

    async def _shown(self, call: ShowQuery, caller: Caller) -> QueryDescription:
        return QueryDescription(query=await self._with_bill(self.record(call.query)))

    async def _stopped(self, call: StopQuery, caller: Caller) -> QueryDescription:
        return QueryDescription(query=await self.stop(call.query))


def _random_id(rng: random.Random, records: Records) -> str:
    while True:
        query = "q" + "".join(rng.choices("abcdefghjkmnpqrstuvwxyz23456789", k=6))
        if records.get(query) is None:
            return query
