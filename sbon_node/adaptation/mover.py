"""How deciders move operators: they ask the host to begin, and watch until it is over.

Six decide that an operator moves: its host, by itself (:mod:`.optimizer`) or with the host of a neighbour (:mod:`.joint`); a node
that is drained (:mod:`.drain.moves`); a user (:mod:`.requested`); and the leader of its query, by the query's strategy
(:mod:`.whole`) or with ants (:mod:`sbon_node.papers.ants`). :mod:`sbon_node.hosting.moving.departures` carries moves out, at the
operator's host.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

from msgspec.structs import replace

from sbon_node.context import Context
from sbon_node.hosting.moving.departures import Departures
from sbon_protocol.api.states import move_states
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import MoveHow, MoveOperator, OperatorMove

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
        """Move an operator of this node; return why it was given up, None once it has moved.

        ``report`` gets each state but that of a move that was given up.
        """
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
