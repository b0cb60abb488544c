"""How deciders move operators: they ask the host to begin, and watch until it is over.

Six decide that an operator moves: its host, by itself (:mod:`.optimizer`) or with the host of a neighbour (:mod:`.joint`); a node
that is drained (:mod:`.drain`); a user (:class:`RequestedMoves`); and the leader of its query, by the query's strategy
(:mod:`.whole`) or with ants (:mod:`sbon_node.papers.ants`). :mod:`sbon_node.hosting.moving.departures` carries moves out, at the
operator's host.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial

import structlog
from msgspec.structs import replace

from sbon_node.context import Context
from sbon_node.hosting.moving.departures import Departures
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.queries.describing.lookup import QueryLookup
from sbon_protocol.api.moves import MoveCancelled, Moved, MoveProgress, MoveRequest, Moving
from sbon_protocol.api.queries import QueryInfo
from sbon_protocol.api.states import move_states
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import CancelMove, MoveHow, MoveOperator, OperatorMove

Unanswered = Callable[[SbonError], Awaitable[bool]]
"""Handles the error of a host that was asked how far a move is.

Returns whether to ask again; False ends the watch. Raises the error where the move has failed.
"""


class Mover:
    """Begins moves of operators, and watches them; ``departures`` are those from this node."""

    def __init__(self, context: Context, departures: Departures) -> None:
        self._context, self.departures = context, departures

    def attempt(self) -> str:
        """Return a name for a new move."""
        return f"{self._context.rng.getrandbits(64):016x}"

    def call(self, query: str, operator: str, target: str, *, how: MoveHow = "follow", why: str = "") -> MoveOperator:
        """Return the call for a new move; ``why`` is empty if a user wants it."""
        return MoveOperator(query=query, operator=operator, target=target, attempt=self.attempt(), how=how, why=why)

    async def begin(self, call: MoveOperator, *, why: str = "", host: str = "") -> OperatorMove:
        """Begin a move at the operator's ``host``, by default this node, and return its state.

        This node keeps ``why`` for users. The state of a move that has begun already comes after ``wait_s`` seconds of the call,
        or once it is over. Raises :class:`SbonError` for a move that cannot begin now, or a host that gives no answer.
        """
        return await (self._context.ask(host, call, OperatorMove) if host else self.departures.move(call, why))

    async def watch(
        self,
        call: MoveOperator,
        every_s: float,
        *,
        first: OperatorMove | None,
        host: str = "",
        unanswered: Unanswered | None = None,
    ) -> AsyncGenerator[OperatorMove, None]:
        """Yield the states of a move until it is over, one in ``every_s`` seconds at least.

        ``first`` comes first, if it is known. ``host`` drives the move, by default this node. Its errors go to ``unanswered``,
        and are raised without it. A state comes again after an error.
        """
        state, how = first, replace(call, start=False, wait_s=every_s)
        while state is None or state.step not in move_states.OVER:
            if state is not None:
                yield state
            try:
                state = await self.begin(how, host=host)
            except SbonError as error:
                if unanswered is None:
                    raise
                if not await unanswered(error):
                    return
        yield state

    async def move(
        self, call: MoveOperator, why: str, every_s: float, report: Callable[[OperatorMove], None] | None = None
    ) -> SbonError | None:
        """Move an operator of this node; ``report`` its states; return why it was given up, None once it has moved."""
        failure = None
        try:
            first = await self.begin(call, why=why)
            async for state in self.watch(call, every_s, first=first):
                failure = self.departures.failure(call.attempt)
                if report is not None and failure is None:
                    report(state)
        except SbonError as error:
            return error
        return failure


log = structlog.get_logger()

OF_TARGET = frozenset({"no-capacity", "node-away", "node-drained"})
"""Reasons for which a move is given up that another node to move to would not have."""


class RequestedMoves:
    """Moves that users and leaders of queries ask for at any node.

    Finds an operator's host, asks it to move the operator, and reports every ``report_s`` seconds how far it is.
    """

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
        """Return whether a move goes on whose host answered with an ``error``: not if the register names the target.

        Raises :class:`SbonError` if nobody knows how it went on, or it was given up.
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
