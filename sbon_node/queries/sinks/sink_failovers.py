"""Sinks whose node is lost: the leader of the query asks other nodes, one after another, to go on with them.

The sink's register decides who delivers. The query's record follows it: it names the node at which users look for the rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import structlog

from sbon_node.base.backoff import Backoff
from sbon_node.base.tasks import Loop, check_cancelled
from sbon_node.context import Context, backoff_of
from sbon_node.model.records import OperatorRegister, QueryRecord
from sbon_node.overlay.presence import AS_SINK
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.ownership.queries import Records
from sbon_node.queries.driving.deploy import QueryHosts, sink_order
from sbon_node.queries.driving.leader import QueryLeader
from sbon_node.queries.driving.record_steps import notify_of_query
from sbon_protocol.api.states import query_states
from sbon_protocol.calls import TakeOverSink
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

MOST_ASKED = 8
"""Nodes that one look asks; the next one goes on with those after them."""
MOST_LOOKS = 16
"""Looks at the same time: a lost node may have had many sinks."""


@dataclass
class _Watched:
    """A sink that this node looks after: when it was first missed, and when to look again."""

    backoff: Backoff
    check_at_s: float
    missed_s: float | None = None
    look_at_s: float = 0.0
    asked: int = 0
    reason: str = ""
    """Why the last look failed; empty if it did not."""


class SinkFailovers(Loop):
    """Looks from time to time at the sinks, of queries that this node leads, which other nodes may take over."""

    def __init__(
        self, context: Context, records: Records, leader: QueryLeader, operators: OperatorRegisters, hosts: QueryHosts
    ) -> None:
        super().__init__("looks")
        self._context, self._records, self._leader, self._operators, self._hosts = context, records, leader, operators, hosts
        self._watched: dict[str, _Watched] = {}
        self._looking = set[str]()

    async def _run(self) -> None:
        clock, settings = self._context.clock, self._context.settings
        while True:
            await clock.sleep(min(settings.drive_s, 1.0))
            led = [one for one in self._leader.records() if one.state == query_states.RUNNING and one.sink.failover]
            led = [one for one in led if self._leader.leader_of(one.id) == self._context.name]
            known, check_at_s = self._watched, clock.now() + settings.orphan_check_s
            self._watched = {one.id: known.get(one.id) or _Watched(backoff_of(settings), check_at_s) for one in led}
            for query in known.keys() - self._watched.keys():
                self._hosts.refusals.pop(query, None)
            for record in led:
                watched = self._watched[record.id]
                may_begin = len(self._looking) < MOST_LOOKS and record.id not in self._looking
                if self._is_due(record, watched) and may_begin:
                    self._looking.add(record.id)
                    self._tasks.start(f"failover {record.id}", self._look(record.id, watched))

    def _is_due(self, record: QueryRecord, watched: _Watched) -> bool:
        """Return whether to look at a sink: it is missed for so long, its host is another than recorded, or it is time."""
        now_s, register = self._context.clock.now(), self._operators.known(record.sink_component)
        host, instance = (register.host, register.instance) if register is not None else (record.consumer, "")
        if not self._context.presence.gone(AS_SINK, host, instance):
            watched.missed_s = None
            self._hosts.refusals.pop(record.id, None)
            return now_s >= watched.look_at_s and (host != record.consumer or now_s >= watched.check_at_s)
        watched.missed_s = now_s if watched.missed_s is None else watched.missed_s
        return now_s >= max(watched.missed_s + self._context.settings.sink_failover_s, watched.look_at_s)

    async def _look(self, query: str, watched: _Watched) -> None:
        """See to it that the sink has a host, and that the record names it."""
        clock = self._context.clock
        try:
            await self._settle(query, watched)
        except SbonError as error:
            check_cancelled()
            watched.look_at_s = clock.now() + watched.backoff.next_s()
            if (reason := str(error)) != watched.reason:
                log.warning("sink-failover-waits", query=query, code=error.code, reason=reason)
            watched.reason = reason
            if watched.missed_s is not None and query in self._watched:
                self._hosts.refusals[query] = error.message
        else:
            watched.reason = ""
            self._hosts.refusals.pop(query, None)
            watched.backoff.reset()
            watched.check_at_s = clock.now() + self._context.settings.orphan_check_s
        finally:
            self._looking.discard(query)

    async def _settle(self, query: str, watched: _Watched) -> None:
        record = await self._leader.read_record(query)
        if record.state != query_states.RUNNING:
            return
        register = await self._operators.read(query, record.sink_component)
        host = register.host
        if self._context.presence.gone(AS_SINK, host, register.instance):
            host = await self._find(record, register, watched)
        elif not self._context.presence.away(host):
            await self._ask(record, register, host)  # It may have been restarted amid the change.
        if host == record.consumer:
            return
        before, after = await self._records.change(query, lambda now: _at(now, host))
        notify_of_query(self._context.bus, after, before.state)
        log.warning("sink-moved", query=query, before=before.consumer, host=host)

    async def _find(self, record: QueryRecord, register: OperatorRegister, watched: _Watched) -> str:
        """Ask the nodes nearest to the sink's inputs, then those after them; return the one that has taken the sink over.

        Raises all refusals as one, with the code of the last.
        """
        nodes = self._candidates(record)
        first = watched.asked % max(1, len(nodes))
        refusals: dict[str, SbonError] = {}
        for node in [*nodes[first:], *nodes[:first]][:MOST_ASKED]:
            watched.asked += 1
            try:
                await self._ask(record, register, node)
            except SbonError as error:
                check_cancelled()
                log.info("sink-not-taken-over", query=record.id, node=node, code=error.code, reason=str(error))
                refusals[node] = error
            else:
                return node
        raise _all_refused(refusals, record.id)

    def _candidates(self, record: QueryRecord) -> list[str]:
        context, hosts = self._context, self._hosts.known(record)
        feeding = [hosts[stream] for stream in record.plan.outputs]

        def distance_ms(node: str) -> float:
            latencies = [context.directory.estimate_rtt_ms(node, host).one_way_ms for host in feeding if host != node]
            return sum(latency if latency is not None else 1e6 for latency in latencies)

        nodes = [one.name for one in context.membership.members() if not context.presence.away(one.name)]
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


def _all_refused(refusals: Mapping[str, SbonError], query: str) -> SbonError:
    """Return the refusals of all nodes as one error; nodes with the same reason share it."""
    if not refusals:
        return SbonError("peer-unreachable", "no node is there", where=query)
    nodes: dict[str, list[str]] = {}
    for node in sorted(refusals):
        error = refusals[node]
        nodes.setdefault(f"{error.message} ({error.code})", []).append(node)
    last = list(refusals.values())[-1]
    message = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in nodes.items())
    return SbonError(last.code, message, where=query, hint=last.hint)
