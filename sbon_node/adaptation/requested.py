"""Moves of operators at any node, as users and leaders of queries ask for them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

import structlog
from msgspec.structs import replace

from sbon_node.adaptation.mover import Mover
from sbon_node.context import Context
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.queries.describing.lookup import QueryLookup
from sbon_protocol.api.moves import MoveCancelled, Moved, MoveProgress, MoveRequest, Moving
from sbon_protocol.api.queries import QueryInfo
from sbon_protocol.api.states import move_states
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import CancelMove, MoveOperator, OperatorMove

log = structlog.get_logger()

OF_TARGET = frozenset({"no-capacity", "node-away", "node-drained"})
"""Reasons for which a move is given up that another node to move to would not have."""


class RequestedMoves:
    """Finds an operator's host, asks it to move the operator, and reports every ``report_s`` seconds how far it is."""

    def __init__(
        self, context: Context, lookup: QueryLookup, registers: OperatorRegisters, mover: Mover, report_s: float
    ) -> None:
        self._context, self._lookup, self._registers = context, lookup, registers
        self._mover, self._report_s = mover, report_s

    async def move(self, query: str, request: MoveRequest, *, why: str = "") -> AsyncGenerator[Moving | Moved, None]:
        """Yield the steps of the move; the last is :class:`Moved`. It goes on if the caller leaves.

        ``why`` is kept with the move; empty if a user wants it.

        Raises :class:`SbonError`: why the move was refused or given up, ``move-unknown`` if nobody knows how it went on.
        """
        info, operator, origin = await self._hosted(query, request.operator)
        call = self._mover.call(info.uid, operator, request.to, how=request.how, why=why)
        try:
            state = await self._ask(origin, call, hint="start that node again, then move the operator")
        except SbonError as error:
            if error.where == request.to:
                raise SbonError(error.code, error.message, where="to", hint=error.hint) from error
            raise
        goes_on = partial(self._goes_on, origin, call)
        async with aclosing(self._mover.watch(call, self._report_s, first=state, host=origin, unanswered=goes_on)) as states:
            async for state in states:
                if state.step not in move_states.OVER:
                    yield Moving(step=state.step, progress=decode_record(state.progress, MoveProgress))
        if state.step == move_states.GIVEN_UP:
            where = "to" if state.code in OF_TARGET else operator
            raise SbonError(state.code or "move-unknown", state.reason, where=where, hint=f"it goes on at {origin}")
        yield Moved(
            query=info.id,
            operator=operator,
            origin=origin,
            node=request.to,
            copied_bytes=decode_record(state.progress, MoveProgress).copied_bytes,
            pause_ms=state.pause_ms if state.step == move_states.MOVED else None,
        )

    async def cancel(self, query: str, operator: str) -> MoveCancelled:
        """Give up the move of an operator, and return once it goes on where it was.

        Raises :class:`SbonError` ``move-unknown`` without a move, and ``move-committed`` where it is too late.
        """
        info, operator, origin = await self._hosted(query, operator)
        call, hint = CancelMove(query=info.uid, operator=operator, wait_s=self._report_s), "see sbon query show"
        state = await self._ask(origin, call, hint=hint)
        while state.step not in move_states.OVER:
            state = await self._ask(origin, replace(call, attempt=state.attempt), hint=hint)
        return MoveCancelled(query=info.id, operator=operator, node=origin)

    async def _hosted(self, query: str, named: str) -> tuple[QueryInfo, str, str]:
        """Return the query, the operator's id, and its host; raise ``query-over`` and ``operator-unknown``."""
        info, _ = await self._lookup.show(query)
        operator = _operator_of(info, named)
        if info.state not in LIVE:
            raise SbonError("query-over", f"{info.id} is {info.state}: none of its operators runs", where="query")
        return info, operator, (await self._registers.read(info.uid, operator)).host

    async def _ask(self, origin: str, call: MoveOperator | CancelMove, *, hint: str) -> OperatorMove:
        try:
            return await self._context.ask(origin, call, OperatorMove)
        except SbonError as error:
            if error.code != "peer-unreachable":
                raise
            reason = f"{origin}, its host, does not answer: {error}"
            raise SbonError(error.code, reason, where=call.operator, hint=hint) from error

    async def _goes_on(self, origin: str, call: MoveOperator, error: SbonError) -> bool:
        """Return whether a move goes on whose host answered with an ``error``.

        It does not if the register names the target. Raises :class:`SbonError` if nobody knows how it went on, or it was given
        up.
        """
        away = self._context.presence.away(origin)
        read = self._registers.settled if away else self._registers.read
        try:
            register = await read(call.query, call.operator)
        except SbonError as unread:
            if away or error.code != "peer-unreachable":
                raise
            log.info("move-not-asked", operator=call.operator, host=origin, reason=str(unread))
            return True
        if register.host == call.target:
            return False
        if error.code == "move-unknown":
            message = f"{origin} was restarted amid the move, which is given up"
            hint = f"it goes on at {register.host}, see sbon query show; move it again if need be"
            raise SbonError("move-unknown", message, where=call.operator, hint=hint) from error
        if away:
            hint = "start it again; sbon query show says where the operator runs then"
            raise SbonError("node-away", f"{origin} {away}, amid the move", where=call.operator, hint=hint) from error
        log.info("move-not-asked", operator=call.operator, host=origin, reason=str(error))
        await self._context.clock.sleep(self._context.settings.retry_s)
        return True


def _operator_of(info: QueryInfo, named: str) -> str:
    """Return the operator's id; raise ``operator-unknown`` with those that there are."""
    known = [operator.id for operator in info.operators]
    wanted = named if named in known else f"{info.uid}.{named}"
    if wanted not in known:
        hint = f"known: {', '.join(one.removeprefix(f'{info.uid}.') for one in known)}"
        raise SbonError("operator-unknown", f"{info.id} has no operator {named[:100]!r}", where="operator", hint=hint)
    return wanted
