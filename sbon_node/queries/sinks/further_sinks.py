"""Sinks that are added to queries while these run, and removed again: by an acceptor of the query's record.

The record has each from before it is opened until it is ended, so that the query's leader completes what a node has left undone
(docs/design.md, section 10). The sink's register decides who reads for it; one without a host is over.
"""

from functools import partial

import msgspec
import structlog

from sbon_node.base.tasks import Loop, check_cancelled
from sbon_node.connectors.access.secrets import check_no_secrets
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.registry import check_sink
from sbon_node.context import UNREACHABLE, Context
from sbon_node.hosting.components import SinkOrder, new_claim
from sbon_node.model.records import FurtherSink, QueryRecord
from sbon_node.net.peers import Caller
from sbon_node.overlay.presence import AS_SINK
from sbon_node.ownership.acceptors import QUERY_OVER, in_turn
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.ownership.queries import Records
from sbon_node.queries.describing.describe import recorded_sink
from sbon_node.queries.describing.lookup import QueryAcceptors, QueryLookup, decoded
from sbon_node.queries.driving import deploy, record_steps
from sbon_node.queries.driving.deploy import QueryHosts
from sbon_node.queries.driving.leader import QueryLeader
from sbon_node.queries.submitting.planning import Planning
from sbon_protocol.api.queries import SinkInfo, SinkRequest
from sbon_protocol.api.states import further_sink_states, query_states
from sbon_protocol.api.states.further_sink_states import READS
from sbon_protocol.api.states.lifecycle import LOST
from sbon_protocol.calls import AddQuerySink, AddSink, QuerySink, RemoveQuerySink, ReportState, SinkAdded
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

OPENING_CALLS = 4
"""An opening may take so many times ``control.call_timeout_s``."""


class FurtherSinks(Loop):
    """The further sinks of the queries whose records this node keeps. As their leader it looks after them from time to time."""

    def __init__(
        self, context: Context, records: Records, leader: QueryLeader, operators: OperatorRegisters, hosts: QueryHosts
    ) -> None:
        super().__init__("looks")
        self._context, self._records, self._leader, self._operators, self._hosts = context, records, leader, operators, hosts
        self._since_s: dict[tuple[str, str], float] = {}
        """When this leader has first seen a sink in its present trouble, by claim and trouble."""
        self._opening: dict[str, None] = {}
        """The claims of sinks that this node opens."""
        context.server.handle(AddQuerySink, self._add)
        context.server.handle(RemoveQuerySink, self._remove)

    # -- users' requests ----------------------------------------------------------------------------------------------

    async def _add(self, call: AddQuerySink, caller: Caller) -> QuerySink:
        request: SinkRequest = decode_record(call.request, SinkRequest)
        request.check()
        self._opening[call.claim] = None
        try:
            step = partial(record_steps.added, request=request, node=request.consumer or caller.node, claim=call.claim)
            await self._records.change(call.query, step)
            try:
                await self._open(call.query, call.claim)
            except SbonError as error:
                await self._end(call.query, call.claim, str(error))  # Cut short, it is left to the query's leader.
                raise
        finally:
            del self._opening[call.claim]
        record = await self._leader.read_record(call.query)
        one = record_steps.by_claim(record, call.claim)
        if one is None:
            raise SbonError(QUERY_OVER, "the sink was removed meanwhile", where=call.query)
        return QuerySink(sink=await self._info(record, one))

    async def _open(self, query: str, claim: str) -> None:
        record = await self._leader.read_record(query)
        one = record_steps.by_claim(record, claim)
        if one is None or one.state == further_sink_states.REMOVING or record.state != query_states.RUNNING:
            raise SbonError(QUERY_OVER, "the sink was removed, or its query has ended, while it was opened", where=query)
        register = await self._operators.place_sink(record, one)
        order = self._order(record, one, register.epoch)
        call = AddSink(sink=order, acceptors=self._records.acceptors(query))
        timeout_s = self._context.settings.call_timeout_s * OPENING_CALLS
        try:
            begun = await self._context.ask(one.node, call, SinkAdded, timeout_s=timeout_s)
        except SbonError as error:
            if error.code not in UNREACHABLE:
                raise
            absence = self._context.presence.absence(one.node)
            message = f"sink {one.part} at {one.node} was not opened: {error.message}{absence and f'; {one.node} {absence}'}"
            hint = "start it again, or restore the network to it" if absence else "see its log, and add the sink again"
            raise SbonError("consumer-unreachable", message, where="consumer", hint=hint) from error
        after = (await self._records.change(query, partial(record_steps.opened, claim=claim, rows=begun.rows))).after
        if after.state != query_states.RUNNING:
            raise SbonError(QUERY_OVER, "the query has ended while the sink was opened", where=query)
        log.info("sink-added", sink=one.component, node=one.node, begins_after=begun.rows)

    def _order(self, record: QueryRecord, one: FurtherSink, epoch: int) -> SinkOrder:
        """Return the order of a further sink: that of the first one, to another end."""
        return msgspec.structs.replace(
            deploy.sink_order(record, self._hosts.known(record), epoch),
            component=one.component,
            spec=one.spec,
            claim=one.claim,
            begin=one.begin,
            temporary=one.temporary,
        )

    async def _remove(self, call: RemoveQuerySink, caller: Caller) -> QuerySink:
        record = await self._leader.read_record(call.query)
        one = record_steps.named(record, call.sink)
        if call.claim not in ("", one.claim):
            raise SbonError("unknown-sink", f"that sink {call.sink} has gone", where="sink")
        shown = QuerySink(sink=await self._info(record, one))
        await self._records.change(
            call.query, partial(record_steps.sink_ended, claim=one.claim, state=further_sink_states.REMOVING, reason="removed")
        )
        log.info("sink-removed", sink=one.component)
        await self._clear(call.query, one.claim)
        return shown

    async def _info(self, record: QueryRecord, one: FurtherSink) -> SinkInfo:
        info = await self._leader.describe(record)
        return next((shown for shown in info.sinks if shown.id == one.part), recorded_sink(one))

    # -- ends ---------------------------------------------------------------------------------------------------------

    async def ended(self, record: QueryRecord, call: ReportState, node: str) -> None:
        """Store that a component at ``node`` has finished or failed; a query ends with its last sink, or with an error."""
        further = record_steps.by_component(record, call.component)
        is_first = call.component == record.sink_component
        if further is None and (not is_first or call.state != query_states.FINISHED or not record.more_sinks):
            await self._leader.finish(record, call, node)
            return
        step = record_steps.first_finished
        if further is not None:
            step = partial(record_steps.sink_ended, claim=further.claim, state=call.state, reason=call.reason)
        after = (await self._records.change(record.id, step)).after
        if further is not None:
            log.info("further-sink-ended", sink=call.component, state=call.state, reason=call.reason)
        await self._finish(after)
        if further is not None and call.state == further_sink_states.FAILED:
            self._tasks.start(f"clear {further.claim}", self._clear_later(record.id, further.claim))

    async def _finish(self, record: QueryRecord) -> None:
        if record_steps.is_done(record):
            done = ReportState(query=record.id, component=record.sink_component, state=further_sink_states.FINISHED, reason="")
            await self._leader.finish(record, done, record.consumer)

    async def _end(self, query: str, claim: str, reason: str) -> None:
        """Remove a sink that was not opened, or that nobody follows any more."""
        log.info("sink-ends", query=query, reason=reason)
        step = partial(record_steps.sink_ended, claim=claim, state=further_sink_states.REMOVING, reason=reason)
        try:
            await self._records.change(query, step)
        except SbonError as error:
            check_cancelled()
            log.info("sink-end-waits", query=query, code=error.code, reason=str(error))
        else:
            await self._clear_later(query, claim)

    async def _clear_later(self, query: str, claim: str) -> None:
        """End a sink that has failed or is being removed; the leader tries again where that fails."""
        try:
            await self._clear(query, claim)
        except SbonError as error:
            check_cancelled()
            log.info("sink-end-waits", query=query, code=error.code, reason=str(error))

    async def _clear(self, query: str, claim: str) -> None:
        """Take its register from a sink that is over, end it at its node, and have its rows kept no more.

        Hosts that do not answer learn of it by the register.
        """
        record = await self._leader.read_record(query)
        one = record_steps.by_claim(record, claim)
        if one is None or record.state != query_states.RUNNING:
            return
        await self._operators.end_sink(record, one)
        hosts = self._hosts.known(record)
        nodes = {one.node, *(hosts[stream] for stream in record.plan.outputs)}
        await deploy.end_sink(self._context, record, one, nodes)
        after = (await self._records.change(query, partial(record_steps.cleared, claim=claim))).after
        await self._finish(after)

    # -- the leader's looks -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        clock, settings = self._context.clock, self._context.settings
        while True:
            await clock.sleep(settings.drive_s)
            led = [one for one in self._leader.records() if one.state == query_states.RUNNING and one.more_sinks]
            led = [one for one in led if self._leader.leader_of(one.id) == self._context.name]
            claims = {one.claim for record in led for one in record.more_sinks}
            self._since_s = {key: since for key, since in self._since_s.items() if key[0] in claims}
            for record in led:
                self._tasks.start(f"look {record.id}", self._look(record))

    async def _look(self, record: QueryRecord) -> None:
        try:
            for one in record_steps.to_clear(record):
                await self._clear(record.id, one.claim)
            for one in record.more_sinks:
                await self._look_after(record, one)
            await self._finish(await self._leader.read_record(record.id))
        except SbonError as error:
            check_cancelled()
            log.info("further-sinks-wait", query=record.id, code=error.code, reason=str(error))

    async def _look_after(self, record: QueryRecord, one: FurtherSink) -> None:
        settings = self._context.settings
        patience_s = settings.call_timeout_s * OPENING_CALLS * 2
        if self._lasts(one, "opening", one.state == further_sink_states.OPENING and one.claim not in self._opening, patience_s):
            await self._end(record.id, one.claim, "the node that added it was gone")
            return
        register = self._operators.known(one.component)
        instance = register.instance if register is not None else ""
        gone = self._context.presence.gone(AS_SINK, one.node, instance) if one.state in READS else ""
        if one.temporary and self._lasts(one, "gone", gone != "", settings.follower_grace_s):
            await self._end(record.id, one.claim, f"{one.node}, at which it was followed, is gone")
            return
        if self._lasts(one, "lost", gone in ("left", "lost-disk") or await self._is_lost(record, one), settings.call_timeout_s):
            step = partial(record_steps.sink_ended, claim=one.claim, state=further_sink_states.FAILED)
            await self._records.change(record.id, partial(step, reason=f"{one.node} has left, or has lost its data"))
            await self._clear(record.id, one.claim)

    async def _is_lost(self, record: QueryRecord, one: FurtherSink) -> bool:
        """Return whether the sink's node says that it does not know it; asked for seldom."""
        now, asked = self._context.clock.now(), (one.claim, "asked")
        pause_s = 0.0 if (one.claim, "lost") in self._since_s else self._context.settings.orphan_check_s
        if one.state != further_sink_states.RUNNING or now - self._since_s.setdefault(asked, now) < pause_s:
            return False
        self._since_s[asked] = now
        info = await self._leader.describe(record)
        return any(shown.id == one.part and shown.state == LOST for shown in info.sinks)

    def _lasts(self, one: FurtherSink, trouble: str, holds: bool, for_s: float) -> bool:
        """Return whether this leader has seen the sink in that trouble for so long."""
        if not holds:
            self._since_s.pop((one.claim, trouble), None)
            return False
        now = self._context.clock.now()
        return now - self._since_s.setdefault((one.claim, trouble), now) >= for_s


# -- Users' requests: any node takes them, and passes them on to a node that keeps the query's record -----------------

PASSES_ON = UNREACHABLE | {"record-unknown"}
"""Codes of a node after which another one that keeps the record is asked."""


class SinkRequests:
    """Adds sinks to queries of the cluster, and removes them."""

    def __init__(self, context: Context, lookup: QueryLookup, planning: Planning, settings: ConnectorSettings) -> None:
        self._context, self._lookup, self._planning, self._settings = context, lookup, planning, settings

    async def add(self, query: str, request: SinkRequest) -> SinkInfo:
        """Add a sink to a query, by uid or name; return it once it is open. A refusal leaves nothing behind.

        Raises ``query-over``, ``too-many-sinks``, ``not-retained``, ``consumer-unreachable``, ``host-unreachable``, or as submit.
        """
        self._context.drained.check()
        request.check()
        check_no_secrets(request.sink.options)
        consumer = self._planning.consumer(request.consumer)
        if consumer == self._context.name:
            check_sink(request.sink.kind, request.sink.options, self._settings)
        asked = msgspec.structs.replace(request, consumer=consumer)
        acceptors = await self._lookup.acceptors(query)
        return await self._first(acceptors, AddQuerySink(query=acceptors.uid, request=asked, claim=new_claim(self._context.rng)))

    async def remove(self, query: str, sink: str, claim: str = "") -> SinkInfo:
        """Remove a further sink from a query; return its last state. Raises ``unknown-sink``, ``bad-sink``."""
        acceptors = await self._lookup.acceptors(query)
        return await self._first(acceptors, RemoveQuerySink(query=acceptors.uid, sink=sink, claim=claim))

    async def _first(self, acceptors: QueryAcceptors, call: AddQuerySink | RemoveQuerySink) -> SinkInfo:
        """Return the answer of the first node that gives one; a repeated call does no harm."""
        timeout_s = self._context.settings.call_timeout_s * (OPENING_CALLS + 2)

        async def ask(node: str) -> SinkInfo:
            answer = await self._context.ask(node, call, QuerySink, timeout_s=timeout_s)
            return decoded(answer.sink, SinkInfo, node)

        return await in_turn(self._context, acceptors.nodes, ask, is_final=lambda error: error.code not in PASSES_ON)
