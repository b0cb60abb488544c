"""Deployment of a placed plan, or its undoing: reserve everywhere, open the sink, start the operators.

Source: docs/design.md, section 10.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import structlog

from sbon_node.context import Context
from sbon_node.hosting.components import SinkOrder
from sbon_node.hosting.operators.shared_operators import is_shared
from sbon_node.model.records import FurtherSink, OperatorRegister, QueryRecord
from sbon_node.overlay.presence import AS_FORMER_HOST
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.ownership.store.registers import UNDECIDED
from sbon_node.queries.describing.describe import Description, describe
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.durability import LOCAL, BackupInfo
from sbon_protocol.api.plan import PlannedOperator
from sbon_protocol.api.queries import OperatorInfo, Progress
from sbon_protocol.api.states import backup_states
from sbon_protocol.api.states.lifecycle import LOST, UNREACHABLE
from sbon_protocol.calls import ComponentsDestroyed, DestroyComponents, InstantiateOperator, OpenSink, ReserveOperator
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

NOT_STARTED = frozenset({"peer-unreachable", "engine-failed", "java-missing"})
"""Errors of a host that say nothing of the operator."""
LATE = "its engine starts still, or does not answer; try again, or see engine.log there and control.start_timeout_s"


class NotStartedError(SbonError):
    """The engine of the node ``where`` does not start, or not in time; another node may start the operator."""


async def reserve(context: Context, record: QueryRecord) -> dict[str, SbonError]:
    """Ask every chosen host to reserve capacity; return the refusals by operator. After one, no capacity stays reserved."""

    async def reserve_at_host(operator: PlannedOperator) -> SbonError | None:
        call = ReserveOperator(
            query=record.id,
            operator=operator.id,
            cores=operator.needs.cores,
            memory_mb=operator.needs.memory_mb,
            bandwidth_bytes_s=operator.needs.bandwidth_bytes_s,
            hold_s=context.settings.reservation_s,
        )
        try:
            await context.call(record.hosts[operator.id], call)
        except SbonError as error:
            return error
        return None

    operators = record.plan.operators
    answers = await asyncio.gather(*(reserve_at_host(o) for o in operators))
    refused = {o.id: error for o, error in zip(operators, answers, strict=True) if error is not None}
    if refused:
        # Without the sink, whose end is the query's: hosts refuse later calls of a query that is over.
        release = DestroyComponents(query=record.id, components=tuple(o.id for o in operators))
        await _destroy_at_all(context, {record.hosts[o.id] for o in operators}, release)
    return refused


async def start(context: Context, record: QueryRecord, acceptors: tuple[Acceptor, ...]) -> AsyncGenerator[Progress, None]:
    """Open the sink, then start the operators from the consumer's side on; raise the first refusal."""
    order = sink_order(record, record.hosts)
    yield Progress(step="starting", message=f"opening the sink at {record.consumer}")
    try:
        await context.call(record.consumer, OpenSink(sink=order, acceptors=acceptors))
    except SbonError as error:
        if error.code != "peer-unreachable":
            raise
        where, message = f"{record.consumer} at {error.where}", f"opening the sink failed: {error.message}"
        hint = "see whether this node is alive: sbon members; then submit again, or name another consumer"
        raise SbonError(error.code, message, where=where, hint=hint) from error
    starts = {
        asyncio.create_task(_instantiate(context, record, operator, acceptors)): operator
        for operator in reversed(record.plan.operators)
    }
    for operator in reversed(record.plan.operators):
        yield Progress(step="starting", message=f"starting {operator.id} at {record.hosts[operator.id]}")
    try:
        pending = set(starts)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda t: starts[t].id):
                task.result()
                operator = starts[task]
                yield Progress(step="running", message=f"{operator.id} runs at {record.hosts[operator.id]}")
    finally:
        for task in starts:
            task.cancel()
        await asyncio.gather(*starts, return_exceptions=True)


def sink_order(record: QueryRecord, hosts: Mapping[str, str], epoch: int = 1) -> SinkOrder:
    """Return the order to open the query's sink, or to take it over; ``hosts`` are those of its operators and sources by id."""
    return SinkOrder(
        query=record.id,
        component=record.sink_component,
        inputs=tuple((stream, hosts[stream]) for stream in record.plan.outputs),
        schema=record.plan.schema,
        spec=record.sink,
        epoch=epoch,
        by_position=record.plan.renamed_outputs(),
    )


async def _instantiate(context: Context, record: QueryRecord, operator: PlannedOperator, acceptors: tuple[Acceptor, ...]) -> None:
    readers = record.plan.readers(operator.id, record.sink_component)
    spec = msgspec.structs.replace(
        operator.spec(record.id, record.hosts, readers=readers),
        adapt=record.adapt,
        durability=record.durability,
        max_delay_ms=record.max_delay_ms,
        min_throughput_bytes_s=record.min_throughput_bytes_s,
    )
    if record.plan.starts:
        started = (msgspec.structs.replace(one, after=record.plan.starts.get(one.stream, 0)) for one in spec.inputs)
        spec = msgspec.structs.replace(spec, inputs=tuple(started))
    if record.restarted_from:
        whole = (msgspec.structs.replace(one, whole=is_source(one.stream)) for one in spec.inputs)
        spec = msgspec.structs.replace(spec, inputs=tuple(whole))
    host, call = record.hosts[operator.id], InstantiateOperator(spec=spec, acceptors=acceptors)
    began_s, limit_s = context.clock.now(), context.settings.start_timeout_s
    try:
        await context.call_while_there(host, call, timeout_s=limit_s)
    except SbonError as error:
        if error.code not in NOT_STARTED:
            raise
        is_lost = error.code == "peer-unreachable" and context.clock.now() < began_s + limit_s
        hint = error.hint if error.code == "java-missing" else LATE
        kind = SbonError if is_lost else NotStartedError
        raise kind(error.code, f"{operator.id} did not start: {error.message}", where=host, hint=hint) from error


class Destroyed(NamedTuple):
    """Result of :func:`destroy`.

    ``missed`` are the nodes that must be asked again later, because they were unreachable or keep shared operators. ``sink`` is
    the answer of the consumer's node, if it was asked.
    """

    missed: list[str]
    sink: ComponentsDestroyed | None


async def destroy(
    context: Context, record: QueryRecord, hosts: Mapping[str, str], nodes: Collection[str], shared: Collection[str] = ()
) -> Destroyed:
    """Ask ``nodes`` to end all parts of the query; ``hosts`` are those of its operators and sources, by id.

    Nodes that have left for good are skipped. Its own operators that are ``shared`` go on with their inputs as long as their
    hosts keep them for other queries: only these hosts are told of the end, and have to be asked again.

    A running operator subscribes again if its source has just removed its subscription. So the sources' nodes are asked once more
    when no operator is left.
    """
    parts = tuple(one for one in record.parts if one not in shared)
    call = DestroyComponents(query=record.id, components=parts, refused=record.refused)
    kept_at = {node: [one for one in shared if hosts.get(one) == node] for node in nodes}
    answers = await _destroy_at_all(context, nodes, call, kept_at)
    missed = {node for node, answer in answers.items() if answer is None or answer.kept}
    sink = answers.get(hosts.get(record.sink_component, record.consumer))
    running = {hosts[o.id] for o in record.plan.operators if o.id in hosts}
    if not running & set(nodes):
        return Destroyed(sorted(missed), sink)
    again = {hosts[i.stream] for o in record.plan.operators for i in o.inputs if o.id in hosts}
    if not running & missed:
        answers = await _destroy_at_all(context, again - missed, call)
        again = {node for node, answer in answers.items() if answer is None}
    return Destroyed(sorted(missed | again), sink)


async def end_sink(context: Context, record: QueryRecord, sink: FurtherSink, nodes: Collection[str]) -> None:
    """Ask ``nodes`` to end a further sink; one that has never run leaves nothing. Nodes that are away are not asked again."""
    call = DestroyComponents(query=record.id, components=(sink.component,), refused=not sink.opened)
    await _destroy_at_all(context, nodes, call)


async def _destroy_at_all(
    context: Context, nodes: Collection[str], call: DestroyComponents, more: Mapping[str, Collection[str]] = MappingProxyType({})
) -> dict[str, ComponentsDestroyed | None]:
    """Ask all nodes to end the components of the call, and ``more`` by node; the answers are None for unreachable nodes."""

    def at(node: str) -> DestroyComponents:
        return msgspec.structs.replace(call, components=(*call.components, *more.get(node, ())))

    answers = await asyncio.gather(*(_destroy_at(context, node, at(node)) for node in sorted(nodes)))
    return dict(zip(sorted(nodes), answers, strict=True))


async def _destroy_at(context: Context, node: str, call: DestroyComponents) -> ComponentsDestroyed | None:
    if context.presence.gone(AS_FORMER_HOST, node):
        return ComponentsDestroyed()
    try:
        return await context.ask(node, call, ComponentsDestroyed, timeout_s=context.settings.call_timeout_s * 3)
    except SbonError as error:
        log.info("destroy-not-sent", node=node, query=call.query, reason=str(error))
        return None


# -- Present hosts of a query's operators, which may have moved; and what asks all of them ----------------------------

Decided = Callable[[str, Sequence[OperatorInfo]], tuple[OperatorInfo, ...]]
"""Adds to a query's operators, as their hosts describe them, the decisions of this node about them."""


class QueryHosts:
    """The hosts of a query's operators and sources by id: as this node knows them, or as their registers have them."""

    def __init__(self, context: Context, registers: OperatorRegisters, decided: Decided, node_of: Callable[[str], str]) -> None:
        """Create them; ``node_of`` returns the present node of a source by its id, empty for one that is gone."""
        self._context, self._registers, self._decided, self._node_of = context, registers, decided, node_of
        self.refusals: dict[str, str] = {}
        """Why other nodes have not taken over the lost sinks of queries that this node leads, by query."""

    def known(self, record: QueryRecord) -> dict[str, str]:
        """Return the hosts as far as this node knows, without a message."""
        operators = [one for one in record.operators if one in record.hosts]
        known = ((one, self._registers.known(one)) for one in (*operators, *_movable_sink(record)))
        sources = {one: node for one in record.hosts if is_source(one) and (node := self._node_of(one))}
        return {**record.hosts, **sources, **{one: register.host for one, register in known if register is not None}}

    async def describe(self, record: QueryRecord, *, decisions: bool = False) -> Description:
        """Describe the query, with its hosts' ``decisions`` and those of this node if it leads it."""
        described = await self._describe(record, decisions)
        operators = self._decided(record.id, described.info.operators)
        return described._replace(info=msgspec.structs.replace(described.info, operators=operators))

    async def _describe(self, record: QueryRecord, decisions: bool) -> Description:
        """Describe the query; ask again where an operator is said not to be, or nobody answers, and it has moved."""
        hosts = self.known(record)
        refusals = self.refusals.get(record.id, "")
        described = await describe(self._context, record, hosts, refusals=refusals, decisions=decisions)
        every = (*described.info.operators, *described.info.shared)
        missing = [one.id for one in every if one.state in (LOST, UNREACHABLE) and one.id in hosts]
        try:
            async with self._context.clock.timeout(self._context.settings.component_timeout_s / 2):
                registers = await self._read_registers(record, missing)
        except TimeoutError:
            return self._judged(described, {})
        present = hosts | {register.id: register.host for register in registers}
        if present != hosts:
            described = await describe(self._context, record, present, refusals=refusals, decisions=decisions)
        return self._judged(described, {register.id: register for register in registers})

    def _judged(self, described: Description, registers: Mapping[str, OperatorRegister]) -> Description:
        """Tell operators that wait for a node from those whose nodes are all gone for good, which are lost."""
        own, shared = described.info.operators, described.info.shared
        before = (*own, *shared)
        after = tuple(self._judge(one, registers.get(one.id)) for one in before)
        judged = {new.id for old, new in zip(before, after, strict=True) if new is not old and LOST in (old.state, new.state)}
        return described.with_operators(after[: len(own)], after[len(own) :], judged)

    def _judge(self, operator: OperatorInfo, register: OperatorRegister | None) -> OperatorInfo:
        if operator.state not in (LOST, UNREACHABLE):
            return operator
        why_gone = self._context.presence.why_gone
        if register is None:  # Its backup may have it.
            is_judged = operator.state != LOST or operator.durability == LOCAL
            return operator if is_judged else msgspec.structs.replace(operator, state=UNREACHABLE)
        host_gone = operator.reason if operator.state == LOST else why_gone(register.host, register.instance)
        backup_gone = why_gone(register.backup, register.backup_instance) if register.backup else ""
        if not register.backup:
            state, reason = (LOST if host_gone else UNREACHABLE), host_gone or operator.reason
        elif host_gone and backup_gone:
            state, reason = LOST, f"both of its nodes are gone: {host_gone}; and its backup {backup_gone}"
        else:
            why = self._context.presence.absence(register.backup)
            told = f"its backup {backup_gone}" if backup_gone else f"{register.backup} is its backup{why and f', and {why}'}"
            state, reason = UNREACHABLE, f"{host_gone or operator.reason}; {told}"
        backup, epoch = operator.backup, operator.epoch or register.epoch
        if backup is None and state == UNREACHABLE and register.backup and not backup_gone:
            backup = BackupInfo(state=backup_states.CURRENT, node=register.backup)
        return msgspec.structs.replace(operator, state=state, reason=reason, epoch=epoch, backup=backup)

    async def destroy(self, record: QueryRecord, nodes: Collection[str] = ()) -> Destroyed:
        """Ask ``nodes``, by default every node that has a part or is about to get one, to end all parts of the query."""
        parts = [*record.operators, *_movable_sink(record)]
        # Without its register it cannot be known whether other queries share an operator.
        registers = await self._read_registers(record, parts, insist=True) if record.placement is not None else []
        hosts = self.known(record) | {register.id: register.host for register in registers}
        targets = {register.move.target for register in registers if register.move is not None}
        sinks = {record.consumer, *(one.node for one in record.more_sinks)}
        everywhere = {*record.hosts.values(), *hosts.values(), *sinks, *targets}
        own = frozenset(record.components)
        shared = [register.id for register in registers if register.id in own and is_shared(register, record.id)]
        return await destroy(self._context, record, hosts, nodes or everywhere, shared)

    async def confirm(self, record: QueryRecord) -> None:
        """Let the sink's node forget the final count of rows, now that the record has it; if the call is lost, it keeps it."""
        call = DestroyComponents(query=record.id, components=(record.sink_component,), confirmed=True)
        await _destroy_at(self._context, self.known(record).get(record.sink_component, record.consumer), call)

    async def _read_registers(
        self, record: QueryRecord, operators: Iterable[str], *, insist: bool = False
    ) -> list[OperatorRegister]:
        """Return the registers of those operators, without those that do not exist, or cannot be read.

        With ``insist``, an error of :data:`UNDECIDED` is raised.
        """
        reading = (self._read_one(record, one, insist) for one in operators)
        return [one for one in await asyncio.gather(*reading) if one is not None]

    async def _read_one(self, record: QueryRecord, operator: str, insist: bool) -> OperatorRegister | None:
        try:
            return await self._registers.read(record.id, operator)
        except SbonError as error:
            if insist and error.code in UNDECIDED:
                raise
            log.info("host-not-read", operator=operator, code=error.code, reason=str(error))
            return None


def _movable_sink(record: QueryRecord) -> tuple[str, ...]:
    """Return the sink's id if other nodes may take it over."""
    return (record.sink_component,) if record.sink.failover else ()
