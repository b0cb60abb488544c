"""Present hosts of a query's operators, which may have moved since its placement; and what asks all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
import structlog

from sbon_node.context import Context
from sbon_node.hosting.operators.shared_operators import is_shared
from sbon_node.model.records import OperatorRegister, QueryRecord
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.ownership.store.registers import UNDECIDED
from sbon_node.queries.describing.describe import Description, describe
from sbon_node.queries.driving import deploy
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.durability import LOCAL, BackupInfo
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.api.states import backup_states
from sbon_protocol.api.states.lifecycle import LOST, UNREACHABLE
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

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
                registers = await self._read(record, missing)
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

    async def destroy(self, record: QueryRecord, nodes: Collection[str] = ()) -> deploy.Destroyed:
        """Ask ``nodes``, by default every node that has a part or is about to get one, to end all parts of the query."""
        parts = [*record.operators, *_movable_sink(record)]
        # Without its register it cannot be known whether other queries share an operator.
        registers = await self._read(record, parts, insist=True) if record.placement is not None else []
        hosts = self.known(record) | {register.id: register.host for register in registers}
        targets = {register.move.target for register in registers if register.move is not None}
        sinks = {record.consumer, *(one.node for one in record.more_sinks)}
        everywhere = {*record.hosts.values(), *hosts.values(), *sinks, *targets}
        own = frozenset(record.components)
        shared = [register.id for register in registers if register.id in own and is_shared(register, record.id)]
        return await deploy.destroy(self._context, record, hosts, nodes or everywhere, shared)

    async def confirm(self, record: QueryRecord) -> None:
        await deploy.confirm(self._context, record, self.known(record).get(record.sink_component, record.consumer))

    async def _read(self, record: QueryRecord, operators: Iterable[str], *, insist: bool = False) -> list[OperatorRegister]:
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
