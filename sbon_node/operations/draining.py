"""Draining: a node takes no part in queries any more, moves its operators to other nodes, and leaves.

One operator of a query moves at a time, and operators of several queries at once. Sources and sinks are pinned: a node that has
some stays, drained, and so does one with operators that nobody takes. A user removes the reasons, and drains it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

import msgspec
import structlog

from sbon_node.errors import SbonError
from sbon_node.hosting.hosted_operator import HostedOperator
from sbon_node.hosting.moving.moves import Moves
from sbon_node.hosting.operators import OperatorHost
from sbon_node.hosting.sources import SourceHost
from sbon_node.membership.table import GONE
from sbon_node.migration.settings import MigrationSettings
from sbon_node.model.moves import DrainStep, NodeDrained
from sbon_node.model.query_ids import name_of
from sbon_node.operations.leaving import Leaving
from sbon_node.queries.move_targets import MoveTargets
from sbon_node.streams.outbox.signals import Signal
from sbon_node.tasks import Tasks
from sbon_node.workflow.context import Context
from sbon_protocol.moving import MoveOperator, OperatorMove

log = structlog.get_logger()

TARGETS = 5
"""Nodes that are tried for an operator before it stays."""
WAIT_S = 0.5
"""Pause between two reports of a move, and between two looks at what is still here."""
FAREWELL_S = 0.5
"""Time for the last report to reach its readers before the process ends."""
OVER = ("moved", "stays", "planned")


class Parts(NamedTuple):
    """The node's parts, and means to move them away; ``stop`` ends the daemon of a node that has left."""

    operators: OperatorHost
    sources: SourceHost
    moves: Moves
    targets: MoveTargets
    leaving: Leaving
    stop: Callable[[], None]


class _Run:
    """A drain under way: the newest step of each operator, and the end."""

    def __init__(self) -> None:
        self.steps: dict[str, DrainStep] = {}
        self.end: NodeDrained | None = None
        self.failure: SbonError | None = None
        self.changed = Signal()

    def enter(self, step: DrainStep) -> None:
        self.steps[step.operator] = step
        self.changed.notify()

    def close(self, end: NodeDrained) -> None:
        self.end = end
        self.changed.notify()

    def fail(self, error: Exception) -> None:
        internal = SbonError("internal", f"{type(error).__name__}: {error}", where="drain")
        self.failure = error if isinstance(error, SbonError) else internal
        self.changed.notify()

    def is_over(self, operator: str) -> bool:
        return operator in self.steps and self.steps[operator].step in OVER


class Draining:
    """Drains this node, in the background: it goes on if the caller leaves, and a later caller watches the same drain."""

    def __init__(self, context: Context, settings: MigrationSettings, parts: Parts) -> None:
        self._context, self._settings, self._parts = context, settings, parts
        self._tasks = Tasks()
        self._run: _Run | None = None

    async def close(self) -> None:
        await self._tasks.close()

    async def drain(self, *, dry_run: bool = False) -> AsyncGenerator[DrainStep | NodeDrained, None]:
        """Yield each operator's steps; the last item is the end. A ``dry_run`` only names the targets.

        A drained node stays drained, also if it cannot leave.
        """
        if dry_run:
            async for step in self._planned():
                yield step
            return
        if self._run is None:
            self._context.drained.mark(self._context.clock.wall_ms())
            self._run = _Run()
            self._tasks.start("drain", self._drain(self._run))
        async for event in _watched(self._run):
            yield event

    async def _planned(self) -> AsyncGenerator[DrainStep | NodeDrained, None]:
        steps: dict[str, DrainStep] = {}
        for hosted in self._hosted():
            try:
                target = await self._parts.targets.choose(hosted.spec.query, hosted.spec.id, ())
                step = _step(hosted, "planned", target=target)
            except SbonError as error:
                step = _step(hosted, "stays", reason=error.message)
            steps[hosted.spec.id] = step
            yield step
        planned = tuple(_line(step) for step in steps.values() if step.step == "planned")
        stays = tuple(line for line in _with_reasons(self._pinned(), steps) if not line.startswith(planned))
        yield NodeDrained(node=self._context.name, has_left=False, stays=stays)

    # -- the drain ----------------------------------------------------------------------------------------------------

    async def _drain(self, run: _Run) -> None:
        try:
            await self._move_in_time(run)
            has_left, stays = await self._leave(run)
        except Exception as error:
            run.fail(error)
            if isinstance(error, SbonError):
                return
            raise
        finally:
            self._run = None
        moved = tuple(step.operator for step in run.steps.values() if step.step == "moved")
        run.close(NodeDrained(node=self._context.name, has_left=has_left, moved=moved, stays=stays))
        log.warning("node-drained", left=has_left, moved=len(moved), stays=stays)
        if has_left:
            await self._context.clock.sleep(FAREWELL_S)
            self._parts.stop()

    async def _move_in_time(self, run: _Run) -> None:
        limit_s = self._settings.drain_s
        try:
            async with self._context.clock.timeout(limit_s):
                await self._move_all(run)
        except TimeoutError:
            for hosted in self._hosted():
                run.enter(_step(hosted, "stays", reason=f"it has not moved within {limit_s:g} s"))

    async def _move_all(self, run: _Run) -> None:
        """Move operators until none is here, nor may come, but those that stay."""
        turns = asyncio.Semaphore(self._settings.drain_queries)

        async def move_all_of(operators: list[HostedOperator]) -> None:
            async with turns:
                for hosted in operators:
                    await self._move(run, hosted)

        while True:
            queries: dict[str, list[HostedOperator]] = {}
            for hosted in self._hosted():
                if not run.is_over(hosted.spec.id):
                    run.enter(_step(hosted, "waiting"))
                    queries.setdefault(hosted.spec.query, []).append(hosted)
            if queries:
                await asyncio.gather(*(move_all_of(operators) for operators in queries.values()))
            elif not self._may_come(run):
                return
            else:
                await self._context.clock.sleep(WAIT_S)

    def _may_come(self, run: _Run) -> bool:
        """Whether an operator is about to come here, or to leave: it was promised a place, or is amid a move."""
        parts = self._parts
        leaving = [one for one in parts.operators.hosted() if run.is_over(one) and run.steps[one].step != "stays"]
        return bool(leaving or parts.operators.promised() or list(parts.moves.arrivals.components()))

    async def _move(self, run: _Run, hosted: HostedOperator) -> None:
        """Move an operator to the best node that takes it; nodes that gave no answer are tried again where no other is left."""
        operator, refused, silent = hosted.spec.id, dict[str, str](), set[str]()
        while len(refused) < TARGETS:
            if self._parts.operators.get(operator) is None:
                return  # Its query is over.
            try:
                target = await self._parts.targets.choose(hosted.spec.query, operator, refused)
            except SbonError as error:
                silent |= set(error.details) if error.code == "peer-unreachable" else set()
                if error.code == "no-capacity" and not any(map(self._may_answer, silent)):
                    reasons = [f"{node}: {why}" for node, why in refused.items()]
                    run.enter(_step(hosted, "stays", reason="; ".join([*reasons, error.message])))
                    return
                run.enter(_step(hosted, "waiting", reason=str(error)))
                await self._context.clock.sleep(self._context.settings.retry_s)
                refused = {node: why for node, why in refused.items() if node not in silent}
                continue
            state, reason = await self._move_to(run, hosted, target)
            if state == "moved":
                return
            if state in ("refused", "silent"):
                refused[target] = reason
                silent |= {target} if state == "silent" else set()
            else:
                await self._context.clock.sleep(self._context.settings.retry_s)
        run.enter(_step(hosted, "stays", reason="; ".join(f"{node}: {why}" for node, why in refused.items())))

    def _may_answer(self, node: str) -> bool:
        """Whether a node that gave no answer has not been found dead: it may have been restarted."""
        member = self._context.membership.get(node)
        return member is not None and member.state not in GONE

    async def _move_to(self, run: _Run, hosted: HostedOperator, target: str) -> tuple[str, str]:
        """Try a target; return ``moved``, ``refused``, ``silent`` for a target without an answer, or ``waits``, if it cannot move
        at all now; with the reason.
        """
        spec, departures = hosted.spec, self._parts.moves.departures
        attempt = f"{self._context.rng.getrandbits(64):016x}"
        call = MoveOperator(query=spec.query, operator=spec.id, target=target, attempt=attempt)
        try:
            state = await departures.move(call)
        except SbonError as error:
            run.enter(_step(hosted, "waiting", target=target, reason=error.message))
            return "refused" if error.code == "node-away" else "waits", error.message
        call = msgspec.structs.replace(call, start=False, wait_s=WAIT_S)
        while state.step not in ("moved", "given-up"):
            run.enter(_moving(hosted, target, state))
            try:
                state = await departures.move(call)
            except SbonError as error:
                run.enter(_step(hosted, "waiting", target=target, reason=error.message))
                return "waits", error.message
        if state.step == "moved":
            run.enter(_moving(hosted, target, state))
            return "moved", ""
        run.enter(_step(hosted, "waiting", target=target, reason=state.reason))
        reason = state.reason.removeprefix(f"{target}: ")
        if state.code == "peer-unreachable":
            return "silent", reason
        return ("waits" if state.code in _OWN else "refused"), reason

    # -- what is here -------------------------------------------------------------------------------------------------

    def _hosted(self) -> list[HostedOperator]:
        known = (self._parts.operators.get(one) for one in self._parts.operators.hosted())
        return [hosted for hosted in known if hosted is not None]

    def _pinned(self) -> list[str]:
        """Return a line for each part that would be missed, and for each source."""
        sources = [f"has the source {report.source.id}" for report in self._parts.sources.reports()]
        return [*self._parts.leaving.needed_for(), *sources]

    async def _leave(self, run: _Run) -> tuple[bool, tuple[str, ...]]:
        """Leave if nothing is here any more; return whether it has, else what stays."""
        stays = self._pinned()
        if not stays:
            try:
                await self._parts.leaving.leave(force=False)
                return True, ()
            except SbonError as error:
                if error.code != "node-in-use":
                    raise
                stays = list(error.details)
        return False, tuple(_with_reasons(stays, run.steps))


_OWN = (
    "nothing-to-copy",
    "move-under-way",
    "not-settled",
    "move-superseded",
    "checkpoint-superseded",
    "query-over",
    "no-majority",
)
"""Reasons of the operator's own for which a move fails: no other target would do better."""


async def _watched(run: _Run) -> AsyncGenerator[DrainStep | NodeDrained, None]:
    """Yield the steps as they change, then the end; raise the failure."""
    shown: dict[str, DrainStep] = {}
    while True:
        news = [step for operator, step in run.steps.items() if shown.get(operator) != step]
        for step in news:
            shown[step.operator] = step
            yield step
        if news:
            continue
        if run.failure is not None:
            raise run.failure
        if run.end is not None:
            yield run.end
            return
        await run.changed.wait()


def _line(step: DrainStep) -> str:
    """Return the beginning of the line of what needs this node, as of :meth:`Leaving.needed_for`."""
    return f"hosts {step.operator} of query"


def _with_reasons(lines: list[str], steps: dict[str, DrainStep]) -> list[str]:
    """Return the lines of what needs this node, with the reasons of operators that stay."""
    why = {_line(step): step.reason for step in steps.values() if step.step == "stays"}
    reasons = [next((reason for start, reason in why.items() if line.startswith(start)), "") for line in lines]
    return [f"{line}: {reason}" if reason else line for line, reason in zip(lines, reasons, strict=True)]


def _step(hosted: HostedOperator, step: str, *, target: str = "", reason: str = "") -> DrainStep:
    return DrainStep(query=name_of(hosted.spec.query), operator=hosted.spec.id, step=step, target=target, reason=reason[:500])


def _moving(hosted: HostedOperator, target: str, state: OperatorMove) -> DrainStep:
    return msgspec.structs.replace(
        _step(hosted, state.step, target=target),
        copied_bytes=state.copied_bytes,
        total_bytes=state.total_bytes,
        frames_behind=state.frames_behind,
    )
