"""Calls of hosts and members about queries: any acceptor of a record answers them, and any other node that finds the record."""

import asyncio
from collections.abc import Callable

import msgspec

from sbon_node.context import Context
from sbon_node.hosting.components import HostedComponent
from sbon_node.hosting.operators.shared_operators import is_shared
from sbon_node.model.records import QueryRecord
from sbon_node.net.peers import Caller
from sbon_node.ownership.acceptors import QUERY_OVER, REFUSED
from sbon_node.ownership.operators import OperatorRegisters, check_owner
from sbon_node.ownership.queries import Records
from sbon_node.ownership.store.query_keys import key_of
from sbon_node.ownership.store.registers import UNDECIDED
from sbon_node.queries.describing.lookup import ask_for_queries, stale, summary_of
from sbon_node.queries.driving.deploy import QueryHosts
from sbon_node.queries.driving.leader import QueryLeader
from sbon_node.queries.driving.record_steps import check_live
from sbon_node.queries.sinks.further_sinks import FurtherSinks
from sbon_protocol.api.queries import ForeignComponent, QueryInfo
from sbon_protocol.api.query_ids import name_of
from sbon_protocol.api.states.lifecycle import LOST
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.api.usage import QueryUsage
from sbon_protocol.calls import (
    CheckQueries,
    ClaimComponent,
    Claimed,
    ComponentsDestroyed,
    DestroyComponents,
    ListQueries,
    QueriesChecked,
    QueryDescription,
    QueryRecords,
    ReportState,
    ShowQuery,
    StopQuery,
)
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import ComponentHost, LocateComponent

MAX_COMPONENTS = 2048
"""Most components in a list of all records, which must fit a message."""


class RecordCalls:
    """Answers for the records that this node keeps.

    ``components`` returns all that this node hosts, ``delivered`` the rows that a query's sink on this node has delivered.
    """

    def __init__(
        self,
        context: Context,
        records: Records,
        leader: QueryLeader,
        operators: OperatorRegisters,
        hosts: QueryHosts,
        sinks: FurtherSinks,
        components: Callable[[], list[HostedComponent]],
        delivered: Callable[[str], int | None],
    ) -> None:
        self._context, self._records, self._leader, self._operators = context, records, leader, operators
        self._hosts, self._sinks, self._components, self._delivered = hosts, sinks, components, delivered
        handle = context.server.handle
        handle(ClaimComponent, self._claim)
        handle(LocateComponent, self._locate)
        handle(ReportState, self._report)
        handle(CheckQueries, self._check_queries)
        handle(ListQueries, self._list)
        handle(ShowQuery, self._show)
        handle(StopQuery, self._stop)

    async def _claim(self, call: ClaimComponent, caller: Caller) -> Claimed:
        record = await self._record(call.query)
        if not await self._is_shared(record, call.component):
            check_live(record, call.component)
        return Claimed(epoch=await self._operators.claim(call, caller.node, caller.instance))

    async def _is_shared(self, record: QueryRecord, component: str) -> bool:
        """Return whether a component of a query that is over goes on for others."""
        try:
            return record.state not in LIVE and is_shared(await self._operators.read(record.id, component), record.id)
        except SbonError as error:
            if error.code != "record-unknown":
                raise
            return False

    async def _locate(self, call: LocateComponent, caller: Caller) -> ComponentHost:
        register = await self._operators.read(call.query, call.component)
        move = "" if register.move is None else register.move.attempt
        return ComponentHost(node=register.host, instance=register.instance, epoch=register.epoch, move=move)

    async def _report(self, call: ReportState, caller: Caller) -> None:
        record = await self._record(call.query)
        if record.state in LIVE:
            register = await self._operators.read(call.query, call.component)
            check_owner(register, caller.node, caller.instance, call.epoch or register.epoch)
            await self._sinks.ended(record, call, caller.node)

    async def _record(self, query: str) -> QueryRecord:
        record = await self._records.read(query)
        if record is None:
            raise self._records.missing(key_of(query))
        return record

    async def _check_queries(self, call: CheckQueries, caller: Caller) -> QueriesChecked:
        """Say which of the queries are over, by a majority or as this node remembers it, and which are unknown here."""
        known = {query: self._records.get(query) for query in call.queries}
        ended = [query for query, record in known.items() if record is not None and record.state not in LIVE]
        confirmed = [record for record in await asyncio.gather(*map(self._leader.latest, ended)) if record is not None]
        ends = {record.id: REFUSED if record.refused else QUERY_OVER for record in confirmed if record.state not in LIVE}
        missing = [query for query, record in known.items() if record is None]
        ends |= {query: end for query in missing if (end := self._records.end(query))}
        return QueriesChecked(
            over=tuple(query for query, end in ends.items() if end == QUERY_OVER),
            refused=tuple(query for query, end in ends.items() if end == REFUSED),
            unknown=tuple(query for query in missing if query not in ends),
        )

    async def _list(self, call: ListQueries, caller: Caller) -> QueryRecords:
        records = [record for record in self._leader.records() if call.query in ("", record.id, record.called)]
        hosted = [
            ForeignComponent(
                query=query, component=component, node=self._context.name, acceptors=tuple(one.node for one in acceptors)
            )
            for query, component, acceptors in self._components()
            if self._records.get(query) is None and call.query in ("", query, name_of(query))
        ]
        return QueryRecords(queries=tuple(map(self._listing, records)), components=tuple(hosted[:MAX_COMPONENTS]))

    def _listing(self, record: QueryRecord) -> QueryInfo:
        here = self._delivered(record.id) if record.consumer == self._context.name else None
        counted = self._leader.counted.get(record.id) if here is None else here
        hosts = self._hosts.known(record)
        summary = summary_of(self._context, record, hosts.values(), counted, self._leader.reasons.text(record.id))
        acceptors = tuple(one.node for one in self._records.acceptors(record.id))
        return msgspec.structs.replace(
            summary, node=self._leader.leader_of(record.id), acceptors=acceptors, version=record.version
        )

    async def _show(self, call: ShowQuery, caller: Caller) -> QueryDescription:
        """Describe a query; without a majority, as this node knows it, which may have changed since."""
        known = self._records.get(call.query)
        try:
            # The caller waits for the hosts' answers as well.
            async with self._context.clock.timeout(self._context.settings.component_timeout_s):
                record = await self._leader.read_record(call.query)
        except (SbonError, TimeoutError) as error:
            if known is None or (isinstance(error, SbonError) and error.code not in UNDECIDED):
                raise
            names = ", ".join(one.node for one in self._records.acceptors(call.query))
            info, usage = await self._leader.with_query_usage(known, call.history_after_ms)
            return QueryDescription(query=(stale(info, f"too few of {names} answer, which keep its record"), usage))
        described: tuple[QueryInfo, QueryUsage] = await self._leader.with_query_usage(record, call.history_after_ms)
        return QueryDescription(query=described)

    async def _stop(self, call: StopQuery, caller: Caller) -> QueryDescription:
        known = self._records.find(call.query)
        query = call.query if known is None else known.id
        if known is None and await self._records.read(query) is None:
            return QueryDescription(query=await end_components(self._context, query))
        return QueryDescription(query=await self._leader.stop(query))


# -- End the components of a query whose record its acceptors have lost with their data directories -------------------

# A host does not end them by itself: a missing record is no proof that the query is over. A user's stop is.


async def end_components(context: Context, query: str) -> QueryInfo:
    """Ask all hosts that answer to end their components of ``query``, a uid or name, whose record this node kept.

    Raises :class:`SbonError` ``unknown-query`` if there are none. A host that does not answer keeps its components until the
    query is stopped again.
    """
    nodes = [member.name for member in context.membership.members() if member.state != "left"]
    ended = []
    for node, _, listed in await asyncio.gather(*(ask_for_queries(context, node, query) for node in nodes)):
        components = [one for one in listed if query in (one.query, name_of(one.query)) and context.name in one.acceptors]
        for uid in dict.fromkeys(component.query for component in components):
            ids = tuple(component.component for component in components if component.query == uid)
            call = DestroyComponents(query=uid, components=ids)
            await context.ask(node, call, ComponentsDestroyed, timeout_s=context.settings.call_timeout_s * 3)
            ended += [f"{one} at {node}" for one in ids]
    if not ended:
        raise SbonError("unknown-query", f"there is no query {query!r} here", where="query")
    reason = f"its record was lost; ended {', '.join(ended)}"
    return QueryInfo(id=name_of(query), sql="", state=LOST, reason=reason, node=context.name, consumer="")
