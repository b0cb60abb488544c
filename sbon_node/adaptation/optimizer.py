"""The local optimizer of a node (SBON, section 3.2): moves the operators that it hosts to where they save network usage.

Each operator is looked at by itself, by what its host knows of its neighbours in the query: nobody computes for the whole. Moves
are those of :class:`~sbon_node.hosting.moving.departures.Departures`, so rows stay exact; the operators' registers let one
operator of a query move at a time.
"""

from collections.abc import Callable

import structlog
from msgspec.structs import replace

from sbon_node.adaptation.decisions import DecisionLog, event_of
from sbon_node.adaptation.joint import REFUSED, JointMoves, Proposal
from sbon_node.adaptation.look import ALONE, Deciding, Memory, OptimizerParts
from sbon_node.adaptation.mover import Mover
from sbon_node.adaptation.rules import RELIEVES, Why
from sbon_node.base.tasks import Loop
from sbon_node.hosting.components import HostedOperator
from sbon_node.hosting.moving.arrivals import HostCheck
from sbon_protocol.api.adaptation import BY_HOSTS, MOVES, STAYS, MoveDecision
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.query_ids import name_of
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import MoveOperator, OperatorMove

log = structlog.get_logger()

JITTER = 0.25
"""Share of the period by which decisions come earlier or later, so that hosts of a query seldom decide at once."""
LOOPS = 8
"""Times within a period that the optimizer looks for operators that are due."""
SOON = 1 / LOOPS
"""Share of the period after which a move is tried again that was in another's way."""
BUSY, UNDER_WAY = "node-busy", "move-under-way"
FAILED = "optimizer-failed"
"""Counter and warning of decisions that ended by an error of this program; the next one is a period later."""


class _Remembered:
    """Memory of an operator: when it is due, what its decisions remember, and these."""

    def __init__(self, due_s: float, most: int) -> None:
        self.due_s, self.memory = due_s, Memory()
        self.decisions = DecisionLog(most)


class LocalOptimizer(Loop):
    """Decides for each operator of this node, one after another, and drives its own moves."""

    def __init__(self, parts: OptimizerParts, mover: Mover, host_check: HostCheck, load: Callable[[], float]) -> None:
        super().__init__("optimizer")
        self._context, self._operators, self._settings = parts.context, parts.operators, parts.settings
        self._mover = mover
        self._deciding = Deciding(parts, load)
        self.joint = JointMoves(
            parts, self._deciding, mover, host_check, lambda operator: self._kept(operator).memory, self._busy, self._agreed
        )
        self._known: dict[str, _Remembered] = {}
        self._moving: dict[str, None] = {}

    def decisions(self, operator: str) -> tuple[MoveDecision, ...]:
        """Return the newest decisions about an operator, oldest first."""
        kept = self._known.get(operator)
        return kept.decisions.all() if kept is not None else ()

    async def _run(self) -> None:
        """Decide for ever about operators that are due."""
        clock, settings, rng = self._context.clock, self._settings, self._context.rng
        while True:
            await clock.sleep(settings.period_s / LOOPS * rng.uniform(0.5, 1.5))
            hosted = {one.spec.id: one for one in self._operators.stored()}
            for operator in [one for one in self._known if one not in hosted]:
                del self._known[operator]
            for operator, one in hosted.items():
                if one.spec.adapt not in BY_HOSTS or self._context.drained or operator in self._moving:
                    continue
                due_s = clock.now() + settings.period_s * rng.uniform(1 - JITTER, 1 + JITTER)
                kept = self._kept(operator, due_s)
                if clock.now() >= kept.due_s:
                    kept.due_s = due_s
                    await self._consider(one, kept)

    def _kept(self, operator: str, due_s: float | None = None) -> _Remembered:
        """Return the memory of an operator; a new one is due at ``due_s``, or in a period."""
        later_s = self._context.clock.now() + self._settings.period_s
        return self._known.setdefault(operator, _Remembered(later_s if due_s is None else due_s, self._settings.decisions))

    async def _consider(self, hosted: HostedOperator, kept: _Remembered) -> None:
        """Decide about an operator, and begin the move. An error of this program is kept as a decision to stay."""
        operator, proposal = hosted.spec.id, None
        if self._mover.departures.under_way(operator) is not None:
            return
        try:
            made, members = await self._deciding.decide(hosted, kept.memory)
            if made.verdict == STAYS and made.code in ALONE:
                made, members, proposal = await self._together(hosted, made)
        except SbonError as error:
            reason = "; ".join((error.message, *error.details))[:MAX_REASON]
            made, members = self._deciding.made(hosted, STAYS, Why(error.code, reason)), ()
        except Exception as error:
            made, members = self._deciding.made(hosted, STAYS, Why("internal", f"{type(error).__name__}: {error}")), ()
            if self._context.counters.may_log(FAILED):
                log.exception(FAILED, operator=operator)
        if made.verdict == MOVES and len(self._moving) >= self._settings.moves:
            reason = f"{made.reason}; but this node moves {len(self._moving)} others already"
            made = replace(made, verdict=STAYS, code=BUSY, reason=reason[:MAX_REASON])
            kept.memory.glance = None
        self._enter(hosted, kept, made)
        if made.verdict == MOVES:
            self._moving |= dict.fromkeys(one.spec.id for one in members)
            self._tasks.start(f"move {operator}", self._move_all(members, kept, made, proposal=proposal))
        else:
            self.joint.proposing.pop(operator, None)

    async def _together(
        self, hosted: HostedOperator, made: MoveDecision
    ) -> tuple[MoveDecision, tuple[HostedOperator, ...], Proposal | None]:
        """Return the decision about an operator that stays by itself: with a neighbour at another node it may move."""
        proposal, note = await self.joint.propose(hosted)
        if proposal is not None:
            return proposal.decision, (hosted,), proposal
        return (replace(made, reason=f"{made.reason}; {note}"[:MAX_REASON]) if note else made), (), None

    async def _move_all(
        self,
        members: tuple[HostedOperator, ...],
        kept: _Remembered,
        made: MoveDecision,
        *,
        proposal: Proposal | None = None,
        begun: MoveOperator | None = None,
    ) -> None:
        """Move the operators of a decision, one after another, unless one fails; the neighbour of a ``proposal`` first.

        ``begun`` is the call of a move that is under way already.
        """
        try:
            if proposal is not None and not await self._neighbour_moves(proposal, kept):
                return
            for hosted in members:
                call = begun or self._mover.call(hosted.spec.query, hosted.spec.id, made.target)
                if not await self._move(hosted, kept, made, call):
                    return
            if made.code == RELIEVES:
                self._deciding.relieved_s = self._context.clock.now()
        finally:
            for hosted in members:
                self._moving.pop(hosted.spec.id, None)

    async def _neighbour_moves(self, proposal: Proposal, kept: _Remembered) -> bool:
        """Have the neighbour of a proposal move; a refusal holds until something changes."""
        try:
            await self.joint.carry_out(proposal)
        except SbonError as error:
            log.info("joint-move-failed", operator=proposal.call.neighbour, code=error.code, reason=str(error))
            kept.decisions.failed(error)
            kept.memory.glance = kept.memory.glance if error.code == REFUSED else None
            return False
        return True

    def _busy(self, operator: str) -> str:
        """Return why an operator of this node may not take part in a joint move for what this node does."""
        if operator in self._moving or self._mover.departures.under_way(operator) is not None:
            return "it moves already"
        return f"this node moves {len(self._moving)} others" if len(self._moving) >= self._settings.moves else ""

    async def _agreed(self, hosted: HostedOperator, made: MoveDecision, attempt: str) -> OperatorMove:
        """Begin a move that the host of a neighbour has proposed; return its first state."""
        kept = self._kept(hosted.spec.id)
        call = MoveOperator(query=hosted.spec.query, operator=hosted.spec.id, target=made.target, attempt=attempt)
        state = await self._mover.begin(call, why=made.reason)
        self._enter(hosted, kept, made)
        self._moving[hosted.spec.id] = None
        moving = self._move_all((hosted,), kept, made, begun=replace(call, start=False))
        self._tasks.start(f"agreed move {hosted.spec.id}", moving)
        return state

    def _enter(self, hosted: HostedOperator, kept: _Remembered, made: MoveDecision) -> None:
        """Remember and publish a decision; equal ones in a row are one."""
        if kept.decisions.enter(made):
            self._context.bus.publish("placement", event_of(name_of(hosted.spec.query), made))

    async def _move(self, hosted: HostedOperator, kept: _Remembered, made: MoveDecision, call: MoveOperator) -> bool:
        """Move the operator, and return whether it has moved; after a failure the target is left alone for a while."""
        operator, now_s = hosted.spec.id, self._context.clock.now
        failure = await self._mover.move(call, made.reason, self._settings.period_s)
        if failure is None:
            log.info("operator-adapted", operator=operator, target=made.target, reason=made.reason)
            return True
        log.info("adaptation-failed", operator=operator, target=made.target, code=failure.code, reason=str(failure))
        kept.decisions.failed(failure)
        kept.memory.glance = None
        if failure.where == made.target:
            kept.memory.failed_until_s[made.target] = now_s() + self._settings.return_s
        elif failure.code == UNDER_WAY:
            kept.due_s = now_s() + SOON * self._settings.period_s
        return False
