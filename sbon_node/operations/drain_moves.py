"""The moves of a drain: each operator goes to the best node that takes it, or stays with the reason."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sbon_node.errors import SbonError
from sbon_node.hosting.hosted_operator import HostedOperator
from sbon_node.hosting.moving.departures import CANCELLED
from sbon_node.hosting.moving.moves import Moves
from sbon_node.hosting.operators import OperatorHost
from sbon_node.membership.table import GONE
from sbon_node.migration.settings import MigrationSettings
from sbon_node.model.moves import DrainStep, MoveProgress
from sbon_node.model.query_ids import name_of
from sbon_node.model.states import move_states
from sbon_node.model.states.operator_states import QUARANTINED
from sbon_node.queries.move_targets import MoveTargets
from sbon_node.workflow.context import Context
from sbon_node.workflow.retry import backoff_of
from sbon_protocol.codec import decode_record
from sbon_protocol.moving import MoveOperator, OperatorMove

PASSING = frozenset({"move-under-way", "no-majority", "not-movable"})
"""Codes of this node's own failures that pass by themselves: another move, too few acceptors, an operator that starts."""
MAX_REASON = 500
"""Most characters of a reason."""


class DrainMoves:
    """Moves operators of this node, and calls ``enter`` with each step.

    Failures of a target count against the target, so another one is tried; those of this node or of the operator's register
    would be the same with any target, and are tried again.
    """

    def __init__(
        self, context: Context, settings: MigrationSettings, operators: OperatorHost, moves: Moves, targets: MoveTargets
    ) -> None:
        self._context, self._settings = context, settings
        self._operators, self._departures, self._targets = operators, moves.departures, targets

    async def move(self, hosted: HostedOperator, enter: Callable[[DrainStep], None]) -> None:
        """Move the operator to the best node that takes it, unless its query ends or it stays.

        Nodes that gave no answer are tried again where no other is left.
        """
        operator, refused, silent = hosted.spec.id, dict[str, str](), set[str]()
        failures, backoff = 0, backoff_of(self._context.settings)
        while len(refused) < self._settings.drain_targets:
            if self._operators.get(operator) is None:
                return  # Its query is over.
            if reason := self._quarantined(hosted):
                enter(step_of(hosted, "stays", reason=reason))
                return
            try:
                target = await self._targets.choose(hosted.spec.query, operator, refused)
            except SbonError as error:
                silent |= set(error.details) if error.code == "peer-unreachable" else set()
                if error.code == "no-capacity" and not any(map(self._may_answer, silent)):
                    enter(step_of(hosted, "stays", reason="; ".join([*_lines(refused), error.message])))
                    return
                enter(step_of(hosted, "waiting", reason=str(error)))
                await self._context.clock.sleep(self._context.settings.retry_s)
                refused = {node: why for node, why in refused.items() if node not in silent}
                continue
            failure = await self._move_to(hosted, target, enter)
            if failure is None:
                return
            if failure.where == target:
                refused[target] = failure.message
                silent |= {target} if failure.code == "peer-unreachable" else set()
                continue
            failures += failure.code not in PASSING
            if failure.code == CANCELLED or failures >= self._settings.drain_tries:
                enter(step_of(hosted, "stays", reason=failure.message))
                return
            passes = failure.code in PASSING
            await self._context.clock.sleep(self._context.settings.retry_s if passes else backoff.next_s())
        enter(step_of(hosted, "stays", reason="; ".join(_lines(refused))))

    async def withdraw(self, hosted: HostedOperator, last: DrainStep | None, reason: str) -> DrainStep:
        """Give the operator's move up because of ``reason``; return its end, with the reason of its ``last`` step."""
        state = await self._departures.withdraw(hosted.spec.id, SbonError("drain-over", reason, where=self._context.name))
        if state is not None and state.step == move_states.MOVED:
            return _moving(hosted, last.target if last is not None else "", state)
        if state is not None and state.step != move_states.GIVEN_UP:
            reason = f"{reason}, and its move goes on: {state.step}"
        elif last is not None:
            was = last.reason or (f"{last.step} to {last.target}" if last.target else "")
            reason = f"{reason}; at last: {was}" if was else reason
        return step_of(hosted, "stays", target=last.target if last is not None else "", reason=reason)

    def _quarantined(self, hosted: HostedOperator) -> str:
        """Return why the operator is not started any more; empty if it is."""
        infos = (one for one in self._operators.describe(hosted.spec.query) if one.id == hosted.spec.id)
        return next((f"it is {one.state}: {one.reason}" for one in infos if one.state == QUARANTINED), "")

    def _may_answer(self, node: str) -> bool:
        """Whether a node that gave no answer has not been found dead: it may have been restarted."""
        member = self._context.membership.get(node)
        return member is not None and member.state not in GONE

    async def _move_to(self, hosted: HostedOperator, target: str, enter: Callable[[DrainStep], None]) -> SbonError | None:
        """Try a target; return the failure, None for a move that has happened."""
        spec, departures = hosted.spec, self._departures
        attempt = f"{self._context.rng.getrandbits(64):016x}"
        call = MoveOperator(query=spec.query, operator=spec.id, target=target, attempt=attempt)
        try:
            state = await departures.move(call)
            call = msgspec.structs.replace(call, start=False, wait_s=self._settings.report_s)
            while state.step not in move_states.OVER:
                enter(_moving(hosted, target, state))
                state = await departures.move(call)
            failure = departures.failure(attempt)
        except SbonError as error:
            failure = error
        if failure is None:
            enter(_moving(hosted, target, state))
        else:
            enter(step_of(hosted, "waiting", target=target, reason=failure.message))
        return failure


def step_of(hosted: HostedOperator, step: str, *, target: str = "", reason: str = "") -> DrainStep:
    query = name_of(hosted.spec.query)
    return DrainStep(query=query, operator=hosted.spec.id, step=step, target=target, reason=reason[:MAX_REASON])


def _lines(refused: dict[str, str]) -> list[str]:
    return [f"{node}: {why}" for node, why in refused.items()]


def _moving(hosted: HostedOperator, target: str, state: OperatorMove) -> DrainStep:
    progress: MoveProgress = decode_record(state.progress, MoveProgress)
    return msgspec.structs.replace(step_of(hosted, state.step, target=target), progress=progress)
