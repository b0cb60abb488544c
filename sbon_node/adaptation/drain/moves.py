"""The moves of a drain: each operator goes to the best node that takes it, or stays with the reason."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from sbon_node.adaptation.drain.targets import MoveTargets
from sbon_node.adaptation.mover import Mover
from sbon_node.base.backoff import Backoff
from sbon_node.context import Context, backoff_of
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.hosting.moving.departures import CANCELLED
from sbon_node.hosting.operators.host import OperatorHost
from sbon_node.hosting.operators.hosted_operator import HostedOperator
from sbon_node.overlay.presence import AS_AWAITED
from sbon_protocol.api.moves import DrainStep, MoveProgress
from sbon_protocol.api.query_ids import name_of
from sbon_protocol.api.states import move_states
from sbon_protocol.api.states.operator_states import SET_ASIDE
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import OperatorMove

PASSING = frozenset({"move-under-way", "no-majority", "not-movable"})
"""Codes of this node's own failures that pass by themselves: another move, too few acceptors, an operator that starts."""
MAX_REASON = 500
"""Most characters of a reason."""


class _Tries:
    """Tries to move one operator: nodes that have ``refused`` it, each with its reason, and ``silent`` ones."""

    def __init__(self, backoff: Backoff) -> None:
        self.refused: dict[str, str] = {}
        self.silent: set[str] = set()
        self.failures, self.backoff = 0, backoff

    def refuse(self, target: str, failure: SbonError) -> None:
        self.refused[target] = failure.message
        if failure.code == "peer-unreachable":
            self.silent.add(target)

    def ask_silent_again(self) -> None:
        self.refused = {node: why for node, why in self.refused.items() if node not in self.silent}

    def lines(self, *more: str) -> str:
        """Return the reasons of all nodes, and more of them."""
        return "; ".join([*(f"{node}: {why}" for node, why in self.refused.items()), *more])


class DrainMoves:
    """Moves operators of this node, and calls ``enter`` with each step.

    Failures of a target count against the target, so another one is tried; those of this node or of the operator's register
    would be the same with any target, and are tried again.
    """

    def __init__(
        self, context: Context, settings: MigrationSettings, operators: OperatorHost, mover: Mover, targets: MoveTargets
    ) -> None:
        self._context, self._settings = context, settings
        self._operators, self._mover, self._targets = operators, mover, targets

    async def move(self, hosted: HostedOperator, enter: Callable[[DrainStep], None]) -> None:
        """Move the operator to the best node that takes it, unless its query ends or it stays.

        Nodes that gave no answer are tried again where no other is left.
        """
        tries = _Tries(backoff_of(self._context.settings))
        while self._operators.get(hosted.spec.id) is not None:
            if (stays := await self._try(hosted, tries, enter)) is None:
                return
            if stays:
                enter(step_of(hosted, "stays", reason=stays))
                return
        self._enter_end(hosted, enter)

    async def _try(self, hosted: HostedOperator, tries: _Tries, enter: Callable[[DrainStep], None]) -> str | None:
        """Try the best node that has not refused; return why the operator stays, empty to try again, None once it has moved."""
        if reason := self._set_aside(hosted):
            return reason
        if len(tries.refused) >= self._settings.drain_targets:
            return tries.lines()
        try:
            target = await self._targets.choose(hosted.spec.query, hosted.spec.id, tries.refused)
        except SbonError as error:
            if error.code == "peer-unreachable":
                tries.silent.update(error.details)
            if error.code == "no-capacity" and all(self._is_gone(node) for node in tries.silent):
                return tries.lines(error.message)
            if reason := self._blocked(error):
                return reason
            enter(step_of(hosted, "waiting", reason=str(error)))
            await self._context.clock.sleep(self._context.settings.retry_s)
            tries.ask_silent_again()
            return ""
        failure = await self._move_to(hosted, target, enter)
        if failure is None:
            return None
        if failure.where == target:
            tries.refuse(target, failure)
            return ""
        return self._blocked(failure) or await self._after_own(failure, tries)

    async def _after_own(self, failure: SbonError, tries: _Tries) -> str:
        """Wait after a failure that is not the target's; return why the operator stays, empty to try again."""
        if failure.code in PASSING:
            await self._context.clock.sleep(self._context.settings.retry_s)
            return ""
        tries.failures += 1
        if failure.code == CANCELLED or tries.failures >= self._settings.drain_tries:
            return failure.message
        await self._context.clock.sleep(tries.backoff.next_s())
        return ""

    async def withdraw(self, hosted: HostedOperator, last: DrainStep | None, reason: str) -> DrainStep:
        """Give the operator's move up because of ``reason``; return its end, with the reason of its ``last`` step."""
        state = await self._mover.departures.withdraw(hosted.spec.id, SbonError("drain-over", reason, where=self._context.name))
        if state is not None and state.step == move_states.MOVED:
            return _moving(hosted, last.target if last is not None else "", state)
        if state is not None and state.step != move_states.GIVEN_UP:
            reason = f"{reason}, and its move goes on: {state.step}"
        elif last is not None:
            was = last.reason or (f"{last.step} to {last.target}" if last.target else "")
            reason = f"{reason}; at last: {was}" if was else reason
        return step_of(hosted, "stays", target=last.target if last is not None else "", reason=reason)

    def _enter_end(self, hosted: HostedOperator, enter: Callable[[DrainStep], None]) -> None:
        """Enter that the operator has moved, where somebody else has moved it away; else its query is over."""
        newest = self._mover.departures.newest(hosted.spec.id)
        if newest is not None and newest.state.step == move_states.MOVED:
            enter(_moving(hosted, newest.lease.target, newest.state))

    def _set_aside(self, hosted: HostedOperator) -> str:
        """Return why the operator is not started any more; empty if it is."""
        infos = (one for one in self._operators.describe(hosted.spec.query) if one.id == hosted.spec.id)
        return next((f"it is {one.state}: {one.reason}" for one in infos if one.state in SET_ASIDE), "")

    def _blocked(self, failure: SbonError) -> str:
        """Return why no move can begin until nodes that were found dead return; empty for a failure that may pass."""
        dead = [node for node in failure.details if self._is_gone(node)]
        if failure.code != "no-majority" or 2 * len(dead) < len(failure.details) or not dead:
            return ""
        return f"{failure.message}; not there: {', '.join(dead)}"

    def _is_gone(self, node: str) -> bool:
        """Whether a node that gave no answer has been found dead: else it may have been restarted."""
        return self._context.presence.gone(AS_AWAITED, node) != ""

    async def _move_to(self, hosted: HostedOperator, target: str, enter: Callable[[DrainStep], None]) -> SbonError | None:
        """Try a target; return the failure, None for a move that has happened."""
        spec, mover = hosted.spec, self._mover
        call, why = mover.call(spec.query, spec.id, target), f"{self._context.name} was drained"
        failure = await mover.move(call, why, self._settings.report_s, lambda state: enter(_moving(hosted, target, state)))
        if failure is not None:
            other = mover.departures.under_way(spec.id)
            reason = failure.message if other is None else f"it moves to {other.target} already: {other.step}"
            enter(step_of(hosted, "waiting", target=target if other is None else "", reason=reason))
        return failure


def step_of(hosted: HostedOperator, step: str, *, target: str = "", reason: str = "") -> DrainStep:
    query = name_of(hosted.spec.query)
    return DrainStep(query=query, operator=hosted.spec.id, step=step, target=target, reason=reason[:MAX_REASON])


def _moving(hosted: HostedOperator, target: str, state: OperatorMove) -> DrainStep:
    progress: MoveProgress = decode_record(state.progress, MoveProgress)
    return replace(step_of(hosted, state.step, target=target), progress=progress)
