"""Sinks whose node is lost: the leader of the query asks other nodes, one after another, to go on with them.

The sink's register decides who delivers. The query's record follows it: it names the node at which users look for the rows.
"""

from __future__ import annotations

import msgspec
import structlog

from sbon_node.errors import SbonError
from sbon_node.hosting.sink_takeover import is_lost
from sbon_node.model.records import OperatorRegister, QueryRecord
from sbon_node.model.states import query_states
from sbon_node.queries.deploy import sink_order
from sbon_node.queries.holder import QueryHolder
from sbon_node.queries.notify import notify_of_query
from sbon_node.queries.operator_registers import OperatorRegisters
from sbon_node.queries.query_hosts import QueryHosts
from sbon_node.queries.records import Records
from sbon_node.tasks import Tasks, check_cancelled
from sbon_node.workflow.context import Context
from sbon_protocol.failover import TakeOverSink

log = structlog.get_logger()

MOST_ASKED = 8
"""Nodes that one look asks; the next look begins with the nearest again."""


class SinkFailovers:
    """Looks from time to time at the sinks, of queries that this node leads, which other nodes may take over."""

    def __init__(
        self, context: Context, records: Records, book: QueryHolder, operators: OperatorRegisters, hosts: QueryHosts
    ) -> None:
        self._context, self._records, self._book, self._operators, self._hosts = context, records, book, operators, hosts
        self._lost_since: dict[str, float] = {}
        self._tasks = Tasks()

    def start(self) -> None:
        self._tasks.start("looks", self._run())

    async def close(self) -> None:
        await self._tasks.close()

    async def _run(self) -> None:
        context = self._context
        while True:
            await context.clock.sleep(min(context.settings.drive_s, 1.0) * context.rng.uniform(0.5, 1.0))
            led = [one for one in self._book.records() if one.state == query_states.RUNNING and one.sink.failover]
            led = [one for one in led if self._book.driver(one.id) == context.name]
            lost = {one.id: self._lost_since.get(one.id, context.clock.now()) for one in led if self._is_due(one)}
            self._lost_since = lost
            for query, since_s in lost.items():
                if context.clock.now() - since_s >= context.settings.sink_failover_s:
                    self._tasks.start(f"failover {query}", self._look(query))

    def _is_due(self, record: QueryRecord) -> bool:
        """Return whether the sink's host seems to be lost, or to be another node than the record says."""
        register = self._operators.known(record.sink_component)
        if register is None:
            return is_lost(self._context, record.consumer, "")
        return register.host != record.consumer or is_lost(self._context, register.host, register.instance)

    async def _look(self, query: str) -> None:
        """Find the sink a host, if it needs one, and write that down."""
        try:
            record = await self._book.read(query)
            if record.state != query_states.RUNNING:
                return
            register = await self._operators.read(query, record.sink_component)
            host = register.host
            if is_lost(self._context, host, register.instance):
                host = await self._find(record, register)
            elif host != record.consumer:
                await self._ask(record, register, host)  # It may have been restarted amid the change.
            if host and host != record.consumer:
                before, after = await self._records.change(query, lambda now: _at(now, host))
                notify_of_query(self._context.bus, after, before.state)
                log.warning("sink-moved", query=query, before=before.consumer, host=host)
        except SbonError as error:
            check_cancelled()
            log.warning("sink-failover-waits", query=query, code=error.code, reason=str(error))

    async def _find(self, record: QueryRecord, register: OperatorRegister) -> str:
        """Ask the nodes nearest to the sink's inputs; return the one that has taken the sink over, empty if none has."""
        for node in self._candidates(record)[:MOST_ASKED]:
            try:
                await self._ask(record, register, node)
            except SbonError as error:
                check_cancelled()
                log.info("sink-not-taken-over", query=record.id, node=node, code=error.code, reason=str(error))
            else:
                return node
        return ""

    def _candidates(self, record: QueryRecord) -> list[str]:
        context, hosts = self._context, self._hosts.known(record)
        feeding = [hosts[stream] for stream in record.plan.outputs]

        def distance_ms(node: str) -> float:
            latencies = [context.directory.estimate_rtt_ms(node, host).one_way_ms for host in feeding if host != node]
            return sum(latency if latency is not None else 1e6 for latency in latencies)

        nodes = [one.name for one in context.membership.members() if not context.away(one.name)]
        return sorted(nodes, key=lambda node: (distance_ms(node), node))

    async def _ask(self, record: QueryRecord, register: OperatorRegister, node: str) -> None:
        order = sink_order(record, self._hosts.known(record), register.epoch)
        call = TakeOverSink(sink=order, acceptors=self._records.acceptors(record.id))
        await self._context.call(node, call, timeout_s=self._context.settings.call_timeout_s * 3)


def _at(record: QueryRecord, node: str) -> QueryRecord | None:
    """Return the record with its sink at ``node``; None where nothing is to be changed."""
    if record.state != query_states.RUNNING or record.consumer == node:
        return None
    return msgspec.structs.replace(record, consumer=node)
