"""Requests about an operator that moves are served by its register: its host may move it, and the move's target follow it."""

from __future__ import annotations

from collections.abc import Iterable, Sized

from sbon_node.base.caller_checks import CallerChecks
from sbon_node.context import Context
from sbon_node.engine.alignment import Cut
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.model.records import MoveLease, OperatorRegister
from sbon_node.net.peers import Caller
from sbon_node.ownership.operators import OperatorRegisters, hosted_by
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.outbox.ledger import Tail
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.query_ids import uid_of
from sbon_protocol.api.subscribers import BACKUP, attempt_of, component_of
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.messages import Hello


class HostCheck:
    """Reads registers for callers that say they host or follow an operator, a bounded number at once.

    The caller may not name the register's acceptors: they could be its accomplices.
    """

    def __init__(self, context: Context, registers: OperatorRegisters, settings: MigrationSettings) -> None:
        self._context, self._registers = context, registers
        self._checks = CallerChecks(settings.checks, "migration.checks")

    async def may_move(self, spec: OperatorSpec, attempt: str, caller: Caller) -> None:
        """Raise ``not-owner`` unless the caller hosts the operator in its epoch, and moves it here in this attempt."""
        register = await self.hosts_in(spec, caller)
        me = self._context.membership.expected(self._context.name)
        if register.move != MoveLease(attempt=attempt, target=me.node, instance=me.instance):
            raise self._refused(f"its register has no move {attempt} to {me.node}", spec.id, caller)

    async def may_follow(self, follower: str, hello: Hello) -> None:
        """Raise ``not-owner`` unless the subscriber's operator moves to the node in that attempt, or has its backup there."""
        operator, attempt = component_of(follower), attempt_of(follower)
        register = await self._read(uid_of(operator), operator, hello)
        if attempt == BACKUP:
            if (register.backup, register.backup_instance) != (hello.node, hello.instance):
                raise self._refused(f"its register does not name {hello.node} as the backup", operator, hello)
            return
        if register.move != MoveLease(attempt=attempt, target=hello.node, instance=hello.instance):
            raise self._refused(f"its register has no move {attempt} to {hello.node}", operator, hello)

    async def hosts_in(self, spec: OperatorSpec, caller: Caller) -> OperatorRegister:
        """Return the operator's register; raise ``not-owner`` unless the caller hosts it in its epoch."""
        register = await self._read(spec.query, spec.id, caller)
        if not hosted_by(register, caller.node, caller.instance) or register.epoch != spec.epoch:
            raise self._refused(f"{caller.node} does not host it in epoch {spec.epoch}", spec.id, caller)
        return register

    async def is_host(self, operator: str, caller: Caller) -> None:
        """Raise ``not-owner`` unless the caller hosts the operator."""
        if not hosted_by(await self._read(uid_of(operator), operator, caller), caller.node, caller.instance):
            raise self._refused(f"{caller.node} does not host it", operator, caller)

    async def _read(self, query: str, operator: str, caller: Caller | Hello) -> OperatorRegister:
        with self._checks.one(caller.node, operator):
            try:
                return await self._registers.read(query, operator)
            except SbonError as error:
                if error.code in ("record-unknown", "not-owner"):
                    raise self._refused(error.message, operator, caller) from error
                raise

    def _refused(self, reason: str, operator: str, caller: Caller | Hello) -> SbonError:
        self._context.counters.refuse("move-refused", peer=caller.node, operator=operator, reason=reason)
        return SbonError("not-owner", reason, where=operator, hint="ask the node that hosts it to move it")


# -- Bounds of the positions in calls of a move, by the inputs of the operator and the limits of this node. Pure -------


def check_tail(spec: OperatorSpec, tail: Tail, field: str = "tail") -> None:
    """Raise :class:`ProtocolError` unless the tail has an offset for each input of the operator."""
    _check_width(spec, f"{field}.offsets", tail.offsets)


def check_cut(spec: OperatorSpec, cut: Cut, batches: Iterable[Sized] = ()) -> None:
    """Raise :class:`ProtocolError` unless the cut and each of the batches after it have an entry for each input."""
    _check_width(spec, "cut.offsets", cut.offsets)
    for batch in batches:
        _check_width(spec, "batches", batch)


def check_stream(spec: OperatorSpec, stream: StreamState, *, max_subscribers: int) -> None:
    """Raise :class:`ProtocolError` for a tail of another width than the inputs, or for too many subscriptions."""
    check_tail(spec, stream.tail, "stream.tail")
    if (count := len(stream.subscriptions)) > max_subscribers:
        raise ProtocolError("invalid", f"stream.subscriptions: {count} entries, at most {max_subscribers} are allowed")


def _check_width(spec: OperatorSpec, field: str, inputs: Sized) -> None:
    if len(inputs) != len(spec.inputs):
        raise ProtocolError("invalid", f"{field}: {len(inputs)} entries, {spec.id} has {len(spec.inputs)} inputs")
