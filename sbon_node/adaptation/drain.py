"""Draining: a node takes no part in queries any more, moves its operators to other nodes, and leaves.

One operator of a query moves at a time, and operators of several queries at once. Sources and sinks are pinned: a node that has
some stays, drained, and so does one with operators that nobody takes. A user removes the reasons, and drains it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from typing import NamedTuple

import structlog
from msgspec.structs import replace

from sbon_node.adaptation.mover import Mover
from sbon_node.base.backoff import Backoff
from sbon_node.base.tasks import Tasks
from sbon_node.context import Context, backoff_of
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.hosting.components import HostedComponent, HostedOperator
from sbon_node.hosting.destroy import ComponentDestroyer
from sbon_node.hosting.moving.arrivals import Moves
from sbon_node.hosting.moving.departures import CANCELLED
from sbon_node.hosting.operators.host import OperatorHost
from sbon_node.hosting.sources.host import SourceHost
from sbon_node.overlay.presence import AS_AWAITED
from sbon_node.ownership.acceptors import RecordAcceptors
from sbon_node.ownership.store.query_keys import query_of
from sbon_node.ownership.store.repair import Repair
from sbon_node.placement.model.from_plan import problem_of
from sbon_node.placement.model.problem import Edge
from sbon_node.placement.solvers.geometric_median import median_positions
from sbon_node.placing import LiveNetworkView
from sbon_node.queries.describing.lookup import QueryLookup
from sbon_node.queries.driving.leader import QueryLeader
from sbon_node.streams.outbox.signals import Signal
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.moves import DrainStep, MoveProgress, NodeDrained
from sbon_protocol.api.queries import QueryInfo
from sbon_protocol.api.query_ids import name_of, shown
from sbon_protocol.api.states import move_states, query_states
from sbon_protocol.api.states.operator_states import SET_ASIDE
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.api.subscribers import component_of
from sbon_protocol.calls import ReportState
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
        """Move the operator to the best node that takes it, unless its query ends or it stays; silent nodes come again last."""
        tries = _Tries(backoff_of(self._context.settings))
        while self._operators.get(hosted.spec.id) is not None:
            if (stays := await self._try(hosted, tries, enter)) is None:
                return
            if stays:
                enter(step_of(hosted, "stays", reason=stays))
                return
        newest = self._mover.departures.newest(hosted.spec.id)  # Somebody else has moved it away, or its query is over.
        if newest is not None and newest.state.step == move_states.MOVED:
            enter(_moving(hosted, newest.lease.target, newest.state))

    async def _try(self, hosted: HostedOperator, tries: _Tries, enter: Callable[[DrainStep], None]) -> str | None:
        """Try the best node that has not refused; return why the operator stays, empty to try again, None once it has moved."""
        for one in self._operators.describe(hosted.spec.query):
            if one.id == hosted.spec.id and one.state in SET_ASIDE:  # It is not started any more.
                return f"it is {one.state}: {one.reason}"
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
            tries.refused = {node: why for node, why in tries.refused.items() if node not in tries.silent}
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


class MoveTargets:
    """Chooses the node to which an operator moves: the least network usage between its present neighbours, with capacity for it.

    It chooses among live nodes as placement does: near the operator's virtual coordinate, then by their answers. The best
    ``candidates`` are asked at a time.
    """

    def __init__(self, context: Context, lookup: QueryLookup, candidates: int) -> None:
        self._context, self._lookup, self._candidates = context, lookup, candidates

    async def choose(self, query: str, operator: str, refused: Collection[str]) -> str:
        """Return the node with capacity whose links to the operator's neighbours cost least: sum rate x latency.

        Neither this node nor those ``refused`` are chosen. Raises :class:`SbonError` ``no-capacity`` with a line for each node
        that was asked, ``peer-unreachable`` with those that gave no answer, if there are any, and as
        :meth:`sbon_node.queries.describing.lookup.QueryLookup.show`.
        """
        info, _ = await self._lookup.show(query)
        if info.plan is None:
            raise SbonError("query-not-placed", f"the query {info.id} has not been placed", where=operator, hint="ask again")
        needs = next((one.needs for one in info.plan.operators if one.id == operator), None)
        if needs is None:
            raise SbonError("operator-unknown", f"{info.id} has no such operator", where=operator)
        view = LiveNetworkView(self._context)
        ranked = [one for one in _ranked(info, operator, view) if one != self._context.name and one not in refused]
        reasons, silent = list[str](), list[str]()
        for first in range(0, len(ranked), self._candidates):
            asked = ranked[first : first + self._candidates]
            answers = await view.ask_all(asked, needs)
            for node in asked:
                if answers[node].accepted:
                    return node
                reasons.append(f"{node}: {answers[node].reason}")
            silent += [node for node in asked if answers[node].free is None]
        if silent:
            message = f"no answer from {', '.join(silent)}"
            raise SbonError("peer-unreachable", message, where=operator, hint="ask again", details=tuple(silent))
        message = "; ".join(reasons[: self._candidates]) or "there is no other node"
        raise SbonError("no-capacity", message, where=operator, hint="add a node, or stop a query", details=tuple(reasons))


def _ranked(info: QueryInfo, operator: str, view: LiveNetworkView) -> list[str]:
    """Return all nodes, those with the least network usage first; without coordinates, those nearest to the median."""
    assert info.plan is not None
    problem = problem_of(info.plan, info.consumer, None, info)
    hosts = {**problem.pinned, **info.hosts()}
    edges = [edge for edge in problem.edges if operator in (edge.source, edge.target)]
    neighbours = {edge.source if edge.target == operator else edge.target for edge in edges}
    points = {one: point for one in sorted(neighbours & set(hosts)) if (point := view.coordinate(hosts[one])) is not None}
    nodes = view.nodes()
    if points:
        virtual = median_positions([operator], edges, points)[operator]
        near = [node for node, _ in view.nearest(virtual, len(nodes)) if node in nodes]
        nodes = [*near, *(node for node in nodes if node not in set(near))]
    usage = {node: _usage(operator, node, edges, hosts, view) for node in nodes}
    return sorted(nodes, key=lambda node: usage[node])


def _usage(operator: str, node: str, edges: list[Edge], hosts: Mapping[str, str], view: LiveNetworkView) -> float:
    """Return the network usage of the operator's links if it ran at ``node``: bytes/s x ms."""
    ends = ((hosts.get(edge.target if edge.source == operator else edge.source), edge.rate_bytes_s) for edge in edges)
    return sum(max(rate, 1.0) * view.latency_ms(node, other) for other, rate in ends if other is not None)


class Leaving:
    """Leaves for good: refused while others need records, parts or sources of this node; if forced, they are informed first."""

    def __init__(
        self,
        context: Context,
        leader: QueryLeader,
        destroyer: ComponentDestroyer,
        records: RecordAcceptors,
        repair: Repair,
        epochs: Callable[[], dict[str, int]],
    ) -> None:
        self._context, self._leader, self._destroyer, self._epochs = context, leader, destroyer, epochs
        self._records, self._repair = records, repair
        self.left = asyncio.Event()
        """Set when the daemon of a node that has left is to stop."""

    def needed_for(self) -> list[str]:
        """Return a line for each component or source that would be missed."""
        hosted = [f"hosts {shown(one.component)} of query {name_of(one.query)}" for one in self._destroyer.needed()]
        return [*hosted, *self._sources_in_use()]

    async def leave_and_stop(self, *, force: bool = False) -> None:
        """Leave as :meth:`leave` does, and have the daemon stop."""
        await self.leave(force=force)
        self.left.set()

    async def leave(self, *, force: bool) -> None:
        """Leave the cluster; raise ``node-in-use`` if the node is needed and ``force`` is false.

        Other nodes take the records of queries that are here; a record is needed here if none can. If forced, queries with such
        records are stopped, and queries with components here fail, as far as a majority of their acceptors is reachable.
        """
        self._check(self.needed_for(), force=force)
        for component in self._destroyer.needed():
            await self._give_up(component)
        left = {query_of(key) for key in await self._repair.hand_over()}
        kept = [record for record in self._leader.records() if record.id in left]
        needed = [record for record in kept if record.state in LIVE or not record.cleaned]
        ends = ["" if record.state in LIVE else "; some nodes do not know of its end yet" for record in needed]
        lines = [f"keeps the record of query {name_of(record.id)}{end}" for record, end in zip(needed, ends, strict=True)]
        self._check(lines, force=force)
        for record in kept:
            if record.state in LIVE:
                await self._leader.stop(record.id)
        await self._context.membership.leave()

    def _check(self, needed: list[str], *, force: bool) -> None:
        if needed and not force:
            message, hint = f"{self._context.name} {'; '.join(needed)}", "stop those queries first, or force it"
            raise SbonError("node-in-use", message, where="node", hint=hint, details=tuple(needed))

    def _sources_in_use(self) -> list[str]:
        outbox = self._context.outbox
        reasons = []
        for stream in outbox.streams():
            if is_source(stream):
                readers = [component_of(name) for name, link in outbox.link_counts(stream).links.items() if not link.failed]
                reasons += [f"has {stream}, which {shown(reader)} reads" for reader in sorted(set(readers))]
        return reasons

    async def _give_up(self, hosted: HostedComponent) -> None:
        report = ReportState(
            query=hosted.query,
            component=hosted.component,
            state=query_states.FAILED,
            reason=f"{self._context.name} has left the cluster",
            epoch=self._epochs().get(hosted.component, 0),
        )
        try:
            await self._records.call(hosted.query, hosted.acceptors, report)
        except SbonError as error:
            log.warning("leaving-not-sent", query=hosted.query, component=hosted.component, reason=str(error))


log = structlog.get_logger()

OVER = (move_states.MOVED, "stays", "planned")
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
        for hosted in self._parts.operators.stored():
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
        moved = tuple(step.operator for step in run.steps.values() if step.step == move_states.MOVED)
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

        await asyncio.gather(*(withdraw(hosted) for hosted in self._parts.operators.stored() if not run.is_over(hosted.spec.id)))

    async def _move_all(self, run: _Run) -> None:
        """Move operators until none is here, nor may come, but those that stay. A failure of our own ends all of it."""
        turns = asyncio.Semaphore(self._settings.drain_queries)

        async def move_all_of(operators: list[HostedOperator]) -> None:
            async with turns:
                for hosted in operators:
                    await self._moves.move(hosted, run.enter)

        while True:
            queries: dict[str, list[HostedOperator]] = {}
            for hosted in self._parts.operators.stored():
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

    # -- components at this node --------------------------------------------------------------------------------------

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
