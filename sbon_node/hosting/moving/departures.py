"""The moves of operators away from this node: begun, watched, cancelled, and resumed after a restart.

Their host drives each (:mod:`sbon_node.hosting.moving.driver`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import structlog

from sbon_node.base.tasks import Tasks
from sbon_node.engine.copies.sender import CopySender
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.settings import EngineSettings
from sbon_node.hosting.hosted_operator import HostedOperator
from sbon_node.hosting.moving.departure import Departure, StoredDeparture
from sbon_node.hosting.moving.driver import MoveDriver
from sbon_node.hosting.operators import OperatorHost
from sbon_node.model.records import MoveLease
from sbon_node.net.peers import Caller
from sbon_node.ownership.acceptors import QUERY_OVER
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.workflow.context import Context
from sbon_protocol.api.queries import MoveInfo
from sbon_protocol.api.states import move_states
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import CancelMove, MoveOperator, OperatorMove

log = structlog.get_logger()

CANCELLED = "move-cancelled"
"""Code of a move that a user has given up."""


class Departures:
    """The moves that this node drives."""

    def __init__(
        self,
        context: Context,
        operators: OperatorHost,
        engine: MovingEngine,
        sender: CopySender,
        owners: OperatorRegisters,
        settings: EngineSettings,
        migration: MigrationSettings,
    ) -> None:
        self._context, self._operators, self._settings = context, operators, settings
        self._remembered = migration.remembered
        self._known: dict[str, Departure] = {}
        """By attempt."""
        self._driver = MoveDriver(context, operators, engine, sender, owners, settings, migration, self._is_newest)
        self._tasks = Tasks()
        context.server.handle(MoveOperator, self._handle)
        context.server.handle(CancelMove, self._handle_cancel)
        operators.leaving = self

    async def close(self) -> None:
        await self._tasks.close()
        await self._driver.close()

    async def _handle(self, call: MoveOperator, caller: Caller) -> OperatorMove:
        return await self.move(call, call.why or "a user moved it")

    async def move(self, call: MoveOperator, why: str = "") -> OperatorMove:
        """Begin the move, or return how far it is: after ``wait_s`` seconds, or at once when it is over. ``why`` is for users.

        Raises :class:`SbonError` for a move that cannot begin now; nothing has changed then.
        """
        departure = self._known.get(call.attempt)
        if departure is None:
            if not call.start:
                raise SbonError("move-unknown", "no such move is known here", where=call.operator, hint="see where it runs now")
            departure = self._begin(call, why)
        await self._until_over(departure, min(call.wait_s, self._context.settings.call_timeout_s))
        return departure.state

    async def _until_over(self, departure: Departure, limit_s: float) -> None:
        """Wait until the move is over, or for so long."""
        try:
            async with self._context.clock.timeout(limit_s):
                while not departure.is_over:
                    await departure.changed.wait()
        except TimeoutError:
            pass

    def _begin(self, call: MoveOperator, why: str) -> Departure:
        context, operator = self._context, call.operator
        hosted = self._operators.get(operator)
        if hosted is None or hosted.spec.query != call.query:
            raise SbonError("operator-unknown", f"{context.name} does not host it", where=operator)
        if call.target == context.name:
            raise SbonError("already-there", f"it runs at {context.name} already", where=operator)
        if away := context.presence.away(call.target):
            raise SbonError("node-away", f"{call.target} {away}", where=call.target, hint="choose another node")
        if self._under_way(operator) is not None:
            raise SbonError("move-under-way", "another move of it is under way", where=operator, hint="try again later")
        self._operators.check_running(operator)
        instance = context.membership.expected(call.target).instance
        departure = Departure(hosted, MoveLease(attempt=call.attempt, target=call.target, instance=instance), call.how, why=why)
        self._known[call.attempt] = departure
        for attempt in [attempt for attempt, one in self._known.items() if one.is_over][: -self._remembered]:
            del self._known[attempt]
        self._tasks.start(_task(departure), self._driver.drive(departure))
        return departure

    # -- what is known of them ----------------------------------------------------------------------------------------

    def under_way(self, operator: str) -> MoveInfo | None:
        """Return the move of an operator of this node, for users; None while there is none."""
        departure = self._under_way(operator)
        return None if departure is None else departure.info()

    def failure(self, attempt: str) -> SbonError | None:
        """Return why a move was given up, with the target's name as ``where`` if the target has failed; else None."""
        departure = self._known.get(attempt)
        return None if departure is None else departure.failure

    def newest(self, operator: str) -> Departure | None:
        """Return the newest move of an operator, under way or remembered."""
        return next((one for one in reversed(self._known.values()) if one.hosted.spec.id == operator), None)

    def _under_way(self, operator: str) -> Departure | None:
        moves = (one for one in self._known.values() if one.hosted.spec.id == operator and not one.is_over)
        return next(moves, None)

    def _is_newest(self, departure: Departure) -> bool:
        """Return whether no later move of the operator is known."""
        return self.newest(departure.hosted.spec.id) in (departure, None)

    # -- moves that nobody wants any more -----------------------------------------------------------------------------

    async def _handle_cancel(self, call: CancelMove, caller: Caller) -> OperatorMove:
        """Let a move be given up, and return how far it is: after ``wait_s`` seconds, or at once when it is over."""
        departure = self._known.get(call.attempt) if call.attempt else self._under_way(call.operator)
        if departure is None or (departure.hosted.spec.query, departure.hosted.spec.id) != (call.query, call.operator):
            raise SbonError("move-unknown", "no move of it is under way", where=call.operator, hint="see sbon query show")
        if departure.state.step == move_states.SWITCHING:
            reason = f"its move to {departure.lease.target} is being committed: it is too late to cancel it"
            raise SbonError("move-committed", reason, where=call.operator, hint="move it back when it runs there")
        departure.withdraw(SbonError(CANCELLED, "a user has cancelled the move", where=call.operator))
        await self._until_over(departure, min(call.wait_s, self._context.settings.call_timeout_s))
        return departure.state

    async def withdraw(self, operator: str, why: SbonError) -> OperatorMove | None:
        """Give up the move of an operator that goes on here, unless it may be committed; return its end.

        If it does not end in time, return how far it is; None if there is no move.
        """
        departure = self._under_way(operator)
        if departure is None:
            return None
        departure.withdraw(why)
        await self._until_over(departure, 2 * (self._settings.settle_s + self._context.settings.call_timeout_s))
        if not departure.is_over:
            log.warning("move-not-withdrawn", operator=operator, step=departure.state.step)
        return departure.state

    async def end_with_query(self, query: str, operators: Iterable[str]) -> None:
        """Stop the moves of operators that end here with their query; leave those of other queries alone."""
        named = tuple(operators)
        ending = [one for one in self._known.values() if one.hosted.spec.query == query and one.hosted.spec.id in named]
        for departure in ending:
            await self._tasks.stop(_task(departure))
            if not departure.is_over:
                state = msgspec.structs.replace(
                    departure.state, step=move_states.GIVEN_UP, code=QUERY_OVER, reason="its query is over"
                )
                departure.enter(state)
        hosted = [one for one in map(self._operators.get, named) if one is not None and one.spec.query == query]
        for operator in dict.fromkeys([*(one.hosted.spec.id for one in ending), *(one.spec.id for one in hosted)]):
            self.forget(operator)

    # -- after a restart ----------------------------------------------------------------------------------------------

    def resume(self, hosted: HostedOperator) -> bool:
        """Hand over an operator that this node has lost to the target of a stored move; return False if there is none."""
        stored = self._context.store.get("departure", hosted.spec.id, StoredDeparture)
        if stored is None:
            return False
        departure = self._known[stored.lease.attempt] = Departure(hosted, stored.lease, resumed=True)
        self._tasks.start(_task(departure), self._driver.hand_over(departure))
        return True

    def forget(self, operator: str) -> None:
        """Forget a stored move of an operator that was claimed after a restart, or whose query is over: it moves no more."""
        if self._context.store.get("departure", operator, StoredDeparture) is not None:
            self._context.store.delete("departure", operator)


def _task(departure: Departure) -> str:
    return f"move {departure.hosted.spec.id} {departure.lease.attempt}"
