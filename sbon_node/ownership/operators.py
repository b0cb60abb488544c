"""Registers of operators and sinks: who hosts each, in which epoch. A host's claim changes its operator's register alone.

An operator's register is made with its placement, at the acceptors of its query's record, and goes with that record: no host
may hold an operator whose query is over, or whose record no node has. So a copy may be deleted by what its acceptor knows of
the query, without regard to other copies.
"""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from sbon_node.context import Context
from sbon_node.model.records import FurtherSink, MoveLease, OperatorRegister, QueryRecord
from sbon_node.overlay.presence import may_be
from sbon_node.ownership.acceptors import QUERY_OVER
from sbon_node.ownership.consensus.changes import Verdict
from sbon_node.ownership.queries import Records
from sbon_node.ownership.registered import MessagePacked, Registered
from sbon_node.ownership.store.acceptor_store import AcceptorStore
from sbon_node.ownership.store.query_keys import component_of, key_of, operator_key, query_of
from sbon_node.ownership.store.registers import Attached, Registers
from sbon_protocol.api.query_ids import uid_of
from sbon_protocol.api.sharing import MAX_REFERENCES
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.calls import ClaimComponent
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

MOST_SEARCHED = 16
"""Most queries that one round looks for at all members."""


class OperatorRegisters:
    """The registers of operators and sinks, for a node that may or may not be an acceptor of them.

    Calls raise ``no-majority`` as those of :class:`~sbon_node.ownership.store.registers.Registers` do.
    """

    def __init__(self, context: Context, store: AcceptorStore, registers: Registers, records: Records) -> None:
        self._context, self._store, self._registers, self._records = context, store, registers, records
        self._registered = Registered(registers, FORM)

    async def place(self, record: QueryRecord, *, again: bool) -> None:
        """Store the hosts of a query's operators and sink in epoch 1; ``again`` replaces one of which nothing was started."""
        hosts = {**record.hosts, record.sink_component: record.consumer}
        await asyncio.gather(*(self._place(record, component, hosts[component], again) for component in record.components))

    async def _place(self, record: QueryRecord, component: str, host: str, again: bool) -> None:
        key, placed = operator_key(component), self._first(record, component, host)
        value, attached = msgspec.msgpack.encode(placed), Attached((record.definition_digest,))
        before = await self._registers.read(key) if again else None
        if before is None:
            acceptors = self._records.acceptors(record.id)
            outcome = await self._registers.create(key, value, acceptors, attached, alone=not again)
        else:
            outcome = await self._registers.compare_and_set(key, before.version, value, attached=attached)
        if outcome.verdict != Verdict.APPLIED:
            raise SbonError("record-changed", f"the register of {component} was changed meanwhile", where=component)

    def _first(self, record: QueryRecord, component: str, host: str, claim: str = "") -> OperatorRegister:
        """Return the register of an operator or sink in epoch 1; ``host`` is empty for none."""
        instance, digest = self._context.membership.expected(host).instance if host else "", record.definition_digest
        return OperatorRegister(
            id=component, host=host, instance=instance, epoch=1, definition_digest=digest, queries=(record.id,), claim=claim
        )

    def check_hosts(self, record: QueryRecord) -> None:
        """Raise ``wrong-node`` if a host has lost its disk since its operator was placed there: it may report nothing of it.

        For the node that has placed the query, an acceptor of the registers, once all hosts have started their parts.
        """
        for component in record.components:
            state = self._store.state(operator_key(component))
            if state is None:
                continue
            host, instance = FORM.value(state).host, FORM.value(state).instance
            if not may_be(instance, self._context.membership.expected(host).instance):
                message = f"{host} lost its data while the query was being placed"
                raise SbonError("wrong-node", message, where=component, hint="submit it again")

    async def read(self, query: str, component: str) -> OperatorRegister:
        """Return the register at some moment of the call; raise ``record-unknown``, ``not-owner`` for one of another query."""
        register = (await self._registered.held(operator_key(component))).value
        _check_part(register, query)
        return register

    def known(self, component: str) -> OperatorRegister | None:
        """Return the register as this node, one of its acceptors, has accepted it; None at any other node."""
        state = self._store.state(operator_key(component))
        return None if state is None else FORM.value(state)

    async def settled(self, query: str, component: str) -> OperatorRegister:
        """Return the register once a change that another node has left unfinished is decided, for good or off for good.

        Raises as :meth:`read`.
        """
        await self._registers.settle(operator_key(component))
        return await self.read(query, component)

    async def claim(self, call: ClaimComponent, node: str, instance: str) -> int:
        """Give the next epoch to the host, which was restarted; the same one again, if the answer to its claim was lost.

        Raises ``not-owner``, ``record-unknown``, and ``query-over`` if the query ends meanwhile.
        """
        claimed = await self._change(call.query, call.component, lambda register: next_epoch(register, call, node, instance))
        return claimed.epoch

    # -- moves, each driven by the present host ---------------------------------------------------------------------------

    async def begin_move(self, query: str, operator: str, epoch: int, lease: MoveLease) -> None:
        """Note that this node tries to hand the operator over.

        Raises ``not-owner`` if another node hosts it, and ``move-under-way`` while another operator of the query moves. Each
        move is noted before the others are looked for, so of two that begin at once one, or both, see the other.
        """

        def begun(register: OperatorRegister) -> OperatorRegister:
            check_owner(register, self._store.me.node, self._store.me.instance, epoch)
            return msgspec.structs.replace(register, move=lease)

        await self._change(query, operator, begun)
        await self._check_alone(query, operator)

    async def _check_alone(self, query: str, operator: str) -> None:
        """Look for other moves in the query; one whose host is away does not count, since nobody may ever end it."""
        record = await self._records.read(query)
        others = [one.id for one in record.plan.operators if one.id != operator] if record is not None else []
        for register in await asyncio.gather(*(self.read(query, one) for one in others)):
            present = not self._context.presence.away(register.host)
            expected = self._context.membership.expected(register.host).instance if present else ""
            if register.move is not None and may_be(register.instance, expected):
                reason = f"{register.id} is on its way from {register.host} to {register.move.target}"
                raise SbonError("move-under-way", reason, where=operator, hint="try again later")

    async def commit_move(self, query: str, operator: str, epoch: int, lease: MoveLease) -> bool:
        """Make the target of the move the host, in the next epoch; return False if the move is off.

        Raises ``no-majority`` if that cannot be known; :meth:`end_move` tells.
        """

        def committed(register: OperatorRegister) -> OperatorRegister | None:
            if register.move != lease or register.epoch != epoch:
                return None
            return goes_on_at(register, lease.target, lease.instance)

        return (await self._change(query, operator, committed)).host != self._store.me.node

    async def end_move(self, query: str, operator: str, lease: MoveLease) -> bool:
        """Make sure that the move is not committed any more; return False if it has been."""

        def ended(register: OperatorRegister) -> OperatorRegister | None:
            return msgspec.structs.replace(register, move=None) if register.move == lease else None

        return (await self._change(query, operator, ended)).host == self._store.me.node

    # -- backups --------------------------------------------------------------------------------------------------------

    async def set_backup(self, query: str, operator: str, epoch: int, node: str, instance: str) -> None:
        """Name the node that has stored all that this node's operator has shown.

        Raises ``not-owner`` if another node hosts the operator by now, or this one in another epoch.
        """

        def named(register: OperatorRegister) -> OperatorRegister | None:
            check_owner(register, self._store.me.node, self._store.me.instance, epoch)
            if (register.backup, register.backup_instance) == (node, instance):
                return None
            return msgspec.structs.replace(register, backup=node, backup_instance=instance)

        await self._change(query, operator, named)

    async def take_over(self, query: str, operator: str, host: str, epoch: int) -> OperatorRegister:
        """Make this node, the backup, the host in the epoch after ``epoch``; return the register as it is then.

        Repeated after a lost answer, it changes nothing. Raises ``not-owner`` unless ``host`` hosts the operator in ``epoch``
        and this node is its backup.
        """
        return await self._take_over(query, operator, host, epoch, is_sink=False)

    async def take_over_sink(self, query: str, sink: str, host: str, epoch: int) -> int:
        """Make this node the host of a sink in the epoch after ``epoch``; return that epoch.

        Repeated after a lost answer, it changes nothing. Raises ``not-owner`` unless ``host`` hosts the sink in ``epoch``.
        """
        return (await self._take_over(query, sink, host, epoch, is_sink=True)).epoch

    async def _take_over(self, query: str, component: str, host: str, epoch: int, *, is_sink: bool) -> OperatorRegister:
        me = self._store.me

        def taken(register: OperatorRegister) -> OperatorRegister | None:
            if (register.host, register.instance, register.epoch) == (me.node, me.instance, epoch + 1):
                return None
            may_take = is_sink or (register.backup, register.backup_instance) == (me.node, me.instance)
            if not may_take or (register.host, register.epoch) != (host, epoch):
                backup = "" if is_sink else f", with {register.backup or 'no'} backup"
                message = f"{component} belongs to {register.host} in epoch {register.epoch}{backup}"
                raise SbonError("not-owner", message, where=component)
            return goes_on_at(register, me.node, me.instance)

        return await self._change(query, component, taken)

    # -- further sinks ----------------------------------------------------------------------------------------------------

    async def place_sink(self, record: QueryRecord, sink: FurtherSink) -> OperatorRegister:
        """Store the host of a further sink, in epoch 1, or in the next one where an earlier sink had its id.

        Raises ``query-over`` if the sink has been removed, or its id is another sink's.
        """

        def placed(register: OperatorRegister) -> OperatorRegister | None:
            if register.claim == sink.claim and register.host == sink.node:
                return None
            if register.claim == sink.claim or register.host:
                hint = "a host of the query did not answer in time: add it, or follow, again"
                raise SbonError(QUERY_OVER, f"{sink.component} was removed before it was open", where=sink.component, hint=hint)
            instance = self._context.membership.expected(sink.node).instance
            return msgspec.structs.replace(goes_on_at(register, sink.node, instance), claim=sink.claim)

        return await self._change_sink(record, sink, sink.node, placed)

    async def end_sink(self, record: QueryRecord, sink: FurtherSink) -> None:
        """Leave a further sink without a host, so that none of its readers is admitted any more."""

        def ended(register: OperatorRegister) -> OperatorRegister | None:
            return goes_on_at(register, "", "") if register.claim == sink.claim and register.host else None

        await self._change_sink(record, sink, "", ended)

    async def _change_sink(
        self, record: QueryRecord, sink: FurtherSink, host: str, step: Callable[[OperatorRegister], OperatorRegister | None]
    ) -> OperatorRegister:
        """Change the register of a further sink, or make it with that host."""
        key = operator_key(sink.component)
        if await self._registers.read(key) is None:
            made = self._first(record, sink.component, host, sink.claim)
            attached = Attached((record.definition_digest,))
            acceptors = self._records.acceptors(record.id)
            outcome = await self._registers.create(key, msgspec.msgpack.encode(made), acceptors, attached)
            if outcome.verdict == Verdict.APPLIED:
                return made
        return await self._change(record.id, sink.component, step)

    # -- references -----------------------------------------------------------------------------------------------------

    async def refer(self, operator: str, query: str) -> OperatorRegister:
        """Name a query that is to read the operator of another one; return the register as it is then.

        Raises ``too-many-readers``, and as :meth:`read`.
        """

        def referred(register: OperatorRegister) -> OperatorRegister | None:
            if query in register.queries:
                return None
            if len(register.queries) >= MAX_REFERENCES:
                raise SbonError("too-many-readers", f"{len(register.queries)} queries share it", where=operator)
            return msgspec.structs.replace(register, queries=(*register.queries, query))

        return await self._change(uid_of(operator), operator, referred)

    async def release(self, operator: str, query: str) -> None:
        """Remove a query other than the operator's own from the register."""

        def released(register: OperatorRegister) -> OperatorRegister | None:
            left = tuple(one for one in register.queries if one != query)
            return None if left == register.queries else msgspec.structs.replace(register, queries=left)

        await self._change(uid_of(operator), operator, released)

    async def _change(
        self, query: str, operator: str, step: Callable[[OperatorRegister], OperatorRegister | None]
    ) -> OperatorRegister:
        """Change the register of an operator or sink of the query; return it as it is then."""

        def of_query(register: OperatorRegister) -> OperatorRegister | None:
            _check_part(register, query)
            return step(register)

        return (await self._registered.change(operator_key(operator), of_query)).after

    # -- the end ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Delete the registers of queries that are over, for ever."""
        settings, clock = self._context.settings, self._context.clock
        search_at = clock.now()
        while True:
            await clock.sleep(settings.drive_s * self._context.rng.uniform(0.5, 1.0))
            unknown = self._sweep()
            if unknown and clock.now() >= search_at:
                for query in unknown[:MOST_SEARCHED]:
                    try:
                        await self._search(query)
                    except SbonError as error:
                        log.info("registers-kept", query=query, code=error.code, reason=str(error))
                search_at = clock.now() + settings.orphan_check_s

    def _sweep(self) -> list[str]:
        """Delete the registers of queries that this node knows to be over; return queries that it does not know."""
        unknown: dict[str, None] = {}
        for key in self._store.operators():
            query = query_of(key)
            record = self._records.get(query)
            if self._records.end(query) or (record is not None and record.state not in LIVE and record.cleaned):
                self._registers.forget(key)
            elif record is None:
                unknown[query] = None
        return sorted(unknown)

    async def _search(self, query: str) -> None:
        """Delete registers of a query that is over elsewhere, or of which no member has a record, and those that others keep."""
        present = {one.node for one in self._registers.candidates()}
        found = await self._registers.find(key_of(query))
        record = None if found.configuration is None else await self._records.read(query)
        for key in [key for key in self._store.operators() if query_of(key) == query]:
            configuration = self._registers.configuration(key)
            if record is not None and (record.state in LIVE or not record.cleaned):
                await self._registers.catch_up(key)
            elif record is not None:
                self._registers.forget(key)
            elif configuration is not None and not found.silent and all(one.node in present for one in configuration.members):
                log.info("register-deleted", key=key, reason="no node has a record of its query")
                self._registers.forget(key)


def _check_part(register: OperatorRegister, query: str) -> None:
    if query not in register.queries:
        raise SbonError("not-owner", f"{register.id} is no part of {query}", where=register.id)


def _missing(key: str) -> SbonError:
    component = component_of(key)
    return SbonError("record-unknown", f"no node that answers has a register of {component}", where=component)


def _deleted(key: str) -> SbonError:
    component = component_of(key)
    return SbonError(QUERY_OVER, f"{uid_of(component)} is over, and nodes have deleted its registers", where=component)


FORM = MessagePacked(OperatorRegister, _missing, _deleted)


def next_epoch(register: OperatorRegister, call: ClaimComponent, node: str, instance: str) -> OperatorRegister | None:
    """Return the register with the claimed epoch; None if the claim is a repeated one, whose answer was lost."""
    if call.epoch == register.epoch - 1 and call.epoch > 0:
        check_owner(register, node, instance, register.epoch)
        return None
    check_owner(register, node, instance, call.epoch)
    return msgspec.structs.replace(register, epoch=register.epoch + 1, instance=instance, move=None)


def goes_on_at(register: OperatorRegister, node: str, instance: str) -> OperatorRegister:
    """Return the register with another host, in the next epoch. A host is no backup of its own operator."""
    backup = ("", "") if register.backup == node else (register.backup, register.backup_instance)
    moved = msgspec.structs.replace(register, host=node, instance=instance, epoch=register.epoch + 1, move=None)
    return msgspec.structs.replace(moved, backup=backup[0], backup_instance=backup[1])


def hosted_by(register: OperatorRegister, node: str, instance: str) -> bool:
    """Return whether that instance of ``node`` hosts the component; any one does, of a host that was not known by its own."""
    return register.host == node and may_be(register.instance, instance)


def check_owner(register: OperatorRegister, node: str, instance: str, epoch: int) -> None:
    """Raise ``not-owner`` unless that instance of ``node`` hosts the component, in the register's epoch."""
    if register.epoch != epoch or not hosted_by(register, node, instance):
        message = f"{register.id} belongs to {register.host} in epoch {register.epoch}"
        raise SbonError("not-owner", message, where=register.id)
