"""Draining: a node takes no part in queries any more, moves its operators to other nodes, and leaves.

One operator of a query moves at a time, and operators of several queries at once. Sources and sinks are pinned: a node that has
some stays, drained, and so does one with operators that nobody takes. A user removes the reasons, and drains it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import NamedTuple

import structlog

from sbon_node.adaptation.drain.leaving import Leaving
from sbon_node.adaptation.drain.moves import DrainMoves, step_of
from sbon_node.adaptation.drain.targets import MoveTargets
from sbon_node.adaptation.mover import Mover
from sbon_node.base.tasks import Tasks
from sbon_node.context import Context
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.hosting.moving.moves import Moves
from sbon_node.hosting.operators.host import OperatorHost
from sbon_node.hosting.operators.hosted_operator import HostedOperator
from sbon_node.hosting.sources.host import SourceHost
from sbon_node.streams.outbox.signals import Signal
from sbon_protocol.api.moves import DrainStep, NodeDrained
from sbon_protocol.api.query_ids import shown
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

OVER = ("moved", "stays", "planned")
MOVING_SHARE = 0.8
"""Share of ``migration.drain_on_stop_s`` for moves; the rest is for giving them up, or for leaving. That time is a setting."""


class Parts(NamedTuple):
    """The node's parts, and means to move them away."""

    operators: OperatorHost
    sources: SourceHost
    moves: Moves
    mover: Mover
    targets: MoveTargets
    leaving: Leaving


class _Run:
    """A drain under way: the newest step of each operator, and the end. Moves take at most ``limit_s``."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
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
        self._moves = DrainMoves(context, settings, parts.operators, parts.mover, parts.targets)
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
        self._context.drained.mark(self._context.clock.wall_ms())
        async for event in _watched(self._begin(self._settings.drain_s)):
            yield event

    async def before_stop(self) -> None:
        """Drain this node before its process stops, within ``migration.drain_on_stop_s``; leave if nothing stays.

        Parts that stay are logged, and wait for the next start of this node, which is not drained then.
        """
        limit_s = self._settings.drain_on_stop_s
        self._context.drained.mark(self._context.clock.wall_ms(), until_stop=True)
        try:
            async with self._context.clock.timeout(limit_s):
                async for _ in _watched(self._begin(MOVING_SHARE * limit_s)):
                    pass
        except TimeoutError:
            log.warning("not-drained", reason=f"the drain was not over after {limit_s:g} s", stays=self._pinned())
        except SbonError as error:
            log.warning("not-drained", code=error.code, reason=str(error), stays=self._pinned())

    def _begin(self, limit_s: float) -> _Run:
        """Return the drain under way, or begin one."""
        if self._run is None:
            self._run = _Run(limit_s)
            self._tasks.start("drain", self._drain(self._run))
        return self._run

    async def _planned(self) -> AsyncGenerator[DrainStep | NodeDrained, None]:
        steps: dict[str, DrainStep] = {}
        for hosted in self._hosted():
            try:
                target = await self._parts.targets.choose(hosted.spec.query, hosted.spec.id, ())
                step = step_of(hosted, "planned", target=target)
            except SbonError as error:
                step = step_of(hosted, "stays", reason=error.message)
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
            await self._context.clock.sleep(self._settings.farewell_s)
            self._parts.leaving.left.set()

    async def _move_in_time(self, run: _Run) -> None:
        try:
            async with self._context.clock.timeout(run.limit_s):
                await self._move_all(run)
        except TimeoutError:
            await self._withdraw(run, f"it has not moved within {run.limit_s:g} s")
        except ExceptionGroup as failures:
            await self._withdraw(run, "the drain has failed")
            raise failures.exceptions[0] from failures

    async def _withdraw(self, run: _Run, reason: str) -> None:
        """Give up the moves that are under way: nobody watches them any more."""

        async def withdraw(hosted: HostedOperator) -> None:
            run.enter(await self._moves.withdraw(hosted, run.steps.get(hosted.spec.id), reason))

        await asyncio.gather(*(withdraw(hosted) for hosted in self._hosted() if not run.is_over(hosted.spec.id)))

    async def _move_all(self, run: _Run) -> None:
        """Move operators until none is here, nor may come, but those that stay. A failure of our own ends all of it."""
        turns = asyncio.Semaphore(self._settings.drain_queries)

        async def move_all_of(operators: list[HostedOperator]) -> None:
            async with turns:
                for hosted in operators:
                    await self._moves.move(hosted, run.enter)

        while True:
            queries: dict[str, list[HostedOperator]] = {}
            for hosted in self._hosted():
                if not run.is_over(hosted.spec.id):
                    run.enter(step_of(hosted, "waiting"))
                    queries.setdefault(hosted.spec.query, []).append(hosted)
            if queries:
                async with asyncio.TaskGroup() as group:
                    for operators in queries.values():
                        group.create_task(move_all_of(operators))
            elif not self._may_come(run):
                return
            else:
                await self._context.clock.sleep(self._settings.report_s)

    def _may_come(self, run: _Run) -> bool:
        """Whether an operator is about to come here, or to leave: it was promised a place, or is amid a move."""
        parts = self._parts
        leaving = [one for one in parts.operators.hosted() if run.is_over(one) and run.steps[one].step != "stays"]
        return bool(leaving or parts.operators.promised() or list(parts.moves.arrivals.components()))

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
    return f"hosts {shown(step.operator)} of query"


def _with_reasons(lines: list[str], steps: dict[str, DrainStep]) -> list[str]:
    """Return the lines of what needs this node, with the reasons of operators that stay."""
    why = {_line(step): step.reason for step in steps.values() if step.step == "stays"}
    reasons = [next((reason for start, reason in why.items() if line.startswith(start)), "") for line in lines]
    return [f"{line}: {reason}" if reason else line for line, reason in zip(lines, reasons, strict=True)]
