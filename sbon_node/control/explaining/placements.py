"""Why a query's operators are where they are: what else there was, what that would cost, and what the choice hangs on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from sbon_node.control.context import Context
from sbon_node.control.explaining.held_room import HeldRoomView
from sbon_node.control.explaining.knowledge import Knowledge
from sbon_node.control.explaining.placement_explanation import (
    Alternative,
    BoundCheck,
    PlacementExplanation,
    TurningPoint,
    WeighedOperator,
)
from sbon_node.control.explaining.weigh import Known, alternative, turning_point, weigh
from sbon_node.control.planning import Planning
from sbon_node.control.questions import Questions
from sbon_node.control.records import LIVE
from sbon_node.control.report import Question
from sbon_node.engine.interface import Needs
from sbon_node.errors import SbonError
from sbon_node.placement.bounds import place
from sbon_node.placement.from_plan import problem_of
from sbon_node.placement.geometric import median_places
from sbon_node.placement.goal import Goal
from sbon_node.placement.names import LOOKING_EVERYWHERE
from sbon_node.placement.network_view import Answer
from sbon_node.placement.problem import Assignment, Operator, Placement, PlacementProblem, total
from sbon_node.placement.registry import STRATEGIES
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.relaxation import pinned_places
from sbon_node.query.plan import Plan

MAX_CANDIDATES = 12
"""Of each operator, beside the hosts that any strategy chose."""
MOST_LOOKED_AT = 60_000
"""Nodes times operators up to which strategies that look everywhere are run in passing."""


class _Subject(NamedTuple):
    """What is explained; ``hosts`` where it runs, empty where it does not."""

    plan: Plan
    goal: Goal
    sql: str
    consumer: str
    query: str = ""
    state: str = "planned"
    hosts: Mapping[str, str] = {}


class PlacementExplainer:
    """Explains any query of the cluster, and what would be submitted; reserves and changes nothing.

    Every strategy is run, and asks and measures as if it placed the query; but half of what this node may measure is left for
    queries that are placed, and strategies that take too long, or would, are left out and say so.
    """

    def __init__(
        self, context: Context, planning: Planning, questions: Questions, settings: PlacementSettings, knowledge: Knowledge
    ) -> None:
        self._context, self._planning, self._questions = context, planning, questions
        self._settings, self._knowledge = settings, knowledge

    async def plan(self, question: Question) -> PlacementExplanation:
        """Of what would be submitted."""
        question.check()
        consumer = self._planning.consumer(question.consumer)
        plan = await self._planning.plan(question, "q")
        return await self._explain(_Subject(plan, question, question.sql, consumer))

    async def query(self, query_id: str) -> PlacementExplanation:
        """Of a query of the cluster: as it is placed, against what would be chosen now. Raises ``query-not-placed``."""
        info, _ = await self._questions.show(query_id)
        if info.plan is None or info.placement is None:
            raise SbonError("query-not-placed", f"the query {query_id} has not been placed", where="query", hint="ask again")
        hosts = info.placement.hosts()
        return await self._explain(_Subject(info.plan, info, info.sql, info.consumer, info.id, info.state, hosts))

    async def _explain(self, subject: _Subject) -> PlacementExplanation:
        held = {one.id: one.needs for one in subject.plan.operators} if subject.state in LIVE else {}
        turns = asyncio.Semaphore()
        view = HeldRoomView(self._context, held, turns)
        problem = problem_of(subject.plan, subject.consumer, None, subject.goal)
        asked = await self._placed(problem, view, subject.goal.strategy)
        # Each with a view of its own, so that its questions are its own; what they measure they share.
        others = (self._in_passing(name, problem, HeldRoomView(self._context, held, turns), asked) for name in STRATEGIES)
        placed = dict(zip(STRATEGIES, await asyncio.gather(*others), strict=True))
        chosen = asked.hosts() if isinstance(asked, Placement) else {}
        hosts = dict(subject.hosts) or chosen
        virtual = _virtual(problem, view, asked)
        candidates = self._candidates(problem, view, virtual, [hosts, *_hosts_of(asked, *placed.values())], asked)
        known = await self._known(problem, view, virtual, candidates)
        away = self._away({*problem.pinned.values(), *hosts.values()}, known)
        # Where the host cannot have it any more, others lose against the one that would be taken in its place.
        taken = {name: node if known.answers[name, node].accepted else chosen.get(name, "") for name, node in hosts.items()}
        weighed = await self._context.computing(lambda: weigh(problem, candidates, known, taken))
        now = _compared(subject.goal.strategy, asked, problem, view, known)
        if isinstance(asked, Placement):
            now = replace(now, strategy=asked.strategy)
        best = alternative("best of the candidates", problem, weighed.best, view.latency_ms, known)
        stands = alternative(subject.goal.strategy, problem, hosts, view.latency_ms, known)
        names = [operator.id for operator in problem.operators]
        turning = [turning_point(turn, known, weighed.best, names) for turn in weighed.turning]
        ends = {*problem.pinned.values(), *known.nodes}
        return PlacementExplanation(
            **subject.goal.wishes(),
            query=subject.query,
            sql=subject.sql,
            state=subject.state,
            consumer=subject.consumer,
            pinned=problem.pinned,
            away=away,
            stands=stands if subject.hosts else now,
            now=now,
            now_reason=asked.reason if isinstance(asked, Placement) else "",
            best=best,
            operators=tuple(
                WeighedOperator(
                    id=operator.id,
                    node=hosts.get(operator.id, ""),
                    now=chosen.get(operator.id, ""),
                    reason=_reason_of(asked, operator.id),
                    virtual=virtual.get(operator.id, ()),
                    needs=operator.needs,
                    candidates=tuple(weighed.candidates[operator.id]),
                )
                for operator in problem.operators
            ),
            links=tuple(self._knowledge.links(problem, hosts)),
            strategies=tuple(_compared(name, one, problem, view, known) for name, one in placed.items()),
            checks=tuple(await self._checks(problem, view, stands)),
            turns=tuple(sorted((self._knowledge.dated(turn) for turn in turning if _turns(turn)), key=_change)),
            settled=weighed.looked_at - sum(_turns(turn) for turn in turning),
            nodes=tuple(self._knowledge.node(node) for node in sorted(ends)),
        )

    # -- what the strategies make of it -------------------------------------------------------------------------------

    async def _placed(self, problem: PlacementProblem, view: HeldRoomView, strategy: str) -> Placement | SbonError:
        try:
            return await place(problem, view, self._settings, strategy)
        except SbonError as error:
            return error

    async def _in_passing(
        self, name: str, problem: PlacementProblem, view: HeldRoomView, asked: Placement | SbonError
    ) -> Placement | SbonError:
        """Within its time, and where it is not too large."""
        if isinstance(asked, Placement) and asked.strategy == name:
            return asked
        many, limit_s = len(view.nodes()) * len(problem.operators), self._context.settings.explain_s
        if name in LOOKING_EVERYWHERE and many > MOST_LOOKED_AT:
            return SbonError("not-computed", f"too large: {many:,} places for operators, {MOST_LOOKED_AT:,} are tried in passing")
        try:
            async with self._context.clock.timeout(limit_s):
                return await self._strategy(name, problem, view)
        except TimeoutError:
            return SbonError("not-computed", f"not done after {limit_s:g} s (control.explain_s)")

    async def _strategy(self, name: str, problem: PlacementProblem, view: HeldRoomView) -> Placement | SbonError:
        """Where it cannot keep to the bound on delay, what it makes of the query without: told with its cost, and by how much."""
        settings = replace(self._settings, exact_s=min(self._settings.exact_s, self._context.settings.explain_s / 2))
        found = await _attempted(name, problem, view, settings)
        if isinstance(found, SbonError) and found.code == "delay-bound":
            unbounded = replace(problem, bounds=replace(problem.bounds, max_delay_ms=None))
            return await _attempted(name, unbounded, view, settings)
        return found

    # -- what there is to choose from ---------------------------------------------------------------------------------

    def _candidates(
        self,
        problem: PlacementProblem,
        view: HeldRoomView,
        virtual: Mapping[str, Sequence[float]],
        placements: Sequence[Mapping[str, str]],
        asked: Placement | SbonError,
    ) -> dict[str, list[str]]:
        """For each operator every host that some strategy chose, be it away by now, and up to ``MAX_CANDIDATES`` of those the
        strategy itself looked at, the query's endpoints, and whoever is near its virtual place."""
        hosts = set(view.nodes())
        ends = [node for node in dict.fromkeys(problem.pinned.values()) if node in hosts]
        looked_at = {one.operator: [c.node for c in one.candidates] for one in _assignments(asked)}
        found = {}
        for operator in problem.operators:
            chosen = dict.fromkeys(one[operator.id] for one in placements if operator.id in one)
            near = [node for node, _ in view.nearest(virtual[operator.id], MAX_CANDIDATES)] if operator.id in virtual else []
            others = dict.fromkeys((*looked_at.get(operator.id, ())[: MAX_CANDIDATES // 2], *ends, *near, *sorted(hosts)))
            found[operator.id] = [*chosen, *[node for node in others if node not in chosen][:MAX_CANDIDATES]]
        return found

    def _away(self, nodes: Set[str], known: Known) -> dict[str, str]:
        """Those that are not there, or did not answer when they were asked here."""
        silent = {node for (_, node), answer in known.answers.items() if answer.free is None}
        told = {node: self._context.away(node) or ("does not answer" if node in silent else "") for node in sorted(nodes)}
        return {node: how for node, how in told.items() if how}

    async def _known(
        self,
        problem: PlacementProblem,
        view: HeldRoomView,
        virtual: Mapping[str, Sequence[float]],
        candidates: Mapping[str, Sequence[str]],
    ) -> Known:
        nodes = sorted({*problem.pinned.values(), *(node for some in candidates.values() for node in some)})
        answers: dict[tuple[str, str], Answer] = {}
        told: dict[tuple[Needs, str], Answer] = {}
        distances: dict[tuple[str, str], float] = {}
        for operator in problem.operators:
            new = [node for node in candidates[operator.id] if (operator.needs, node) not in told]
            away = {node: how for node in new if (how := self._context.away(node))}
            told |= {(operator.needs, node): Answer(accepted=False, reason=how) for node, how in away.items()}
            there = [node for node in new if node not in away]
            told |= {(operator.needs, node): one for node, one in (await view.ask_all(there, operator.needs)).items()}
            answers |= {(operator.id, node): told[operator.needs, node] for node in candidates[operator.id]}
            if operator.id in virtual:
                near = dict(view.nearest(virtual[operator.id], len(view.nodes())))
                distances |= {(operator.id, node): near[node] for node in candidates[operator.id] if node in near}
        settled = np.zeros((len(nodes), len(nodes)), dtype=np.bool_)
        for row, a in enumerate(nodes):
            settled[row] = [self._knowledge.is_settled(a, b) for b in nodes]
            await view.pause()
        predicted_ms, known_ms = view.known_ms(nodes, nodes, measured=False), view.latencies_ms(nodes, nodes)
        return Known(nodes, predicted_ms, known_ms, settled, answers, distances)

    async def _checks(self, problem: PlacementProblem, view: HeldRoomView, stands: Alternative) -> list[BoundCheck]:
        """The delay's, and the room of each host for all that is, or would be, there."""
        found: list[BoundCheck] = []
        hosts = stands.hosts
        bound, delay_ms = problem.bounds.max_delay_ms, stands.delay_ms
        if bound is not None and delay_ms is not None:
            value, slack = (delay_ms, bound - delay_ms) if math.isfinite(delay_ms) else (None, None)
            found.append(BoundCheck(bound="max_delay_ms", limit=bound, value=value, slack=slack))
        by_id: dict[str, Operator] = {operator.id: operator for operator in problem.operators}
        for node in sorted(set(hosts.values())):
            needs = total([by_id[operator].needs for operator, at in hosts.items() if at == node])
            answer = await view.ask(node, needs)
            for name in Needs.__struct_fields__:
                limit, value = None if answer.free is None else getattr(answer.free, name), getattr(needs, name)
                slack = None if limit is None else limit - value
                found.append(BoundCheck(bound=name, where=node, limit=limit, value=value, slack=slack))
        return found


async def _attempted(
    name: str, problem: PlacementProblem, view: HeldRoomView, settings: PlacementSettings
) -> Placement | SbonError:
    try:
        return await STRATEGIES[name](problem, view, settings)
    except SbonError as error:
        return error


def _virtual(problem: PlacementProblem, view: HeldRoomView, asked: Placement | SbonError) -> dict[str, tuple[float, ...]]:
    """The strategy's own places, and the geometric median where it has none."""
    names = [operator.id for operator in problem.operators]
    try:
        found = median_places(names, problem.edges, pinned_places(problem, view))
    except SbonError:
        return {}
    return found | {one.operator: one.virtual for one in _assignments(asked) if one.virtual}


def _assignments(placed: Placement | SbonError) -> tuple[Assignment, ...]:
    return placed.assignments if isinstance(placed, Placement) else ()


def _reason_of(placed: Placement | SbonError, operator: str) -> str:
    return next((one.reason for one in _assignments(placed) if one.operator == operator), "")


def _hosts_of(*placed: Placement | SbonError) -> list[dict[str, str]]:
    return [one.hosts() for one in placed if isinstance(one, Placement)]


def _compared(
    name: str, placed: Placement | SbonError, problem: PlacementProblem, view: HeldRoomView, known: Known
) -> Alternative:
    if isinstance(placed, SbonError):
        return Alternative(strategy=name, refused=f"{placed.code}: {placed.message}")
    return alternative(name, problem, placed.hosts(), view.latency_ms, known, questions=placed.questions)


def _turns(turn: TurningPoint) -> bool:
    return turn.below_ms is not None or turn.above_ms is not None


def _change(turn: TurningPoint) -> tuple[float, str, str]:
    """By what share the latency would have to differ, at least."""
    now_ms = turn.latency_ms if turn.latency_ms is not None else float("inf")
    shares = [abs(ms - now_ms) / max(now_ms, 1e-3) for ms in (turn.below_ms, turn.above_ms) if ms is not None]
    return min(shares, default=float("inf")), turn.a, turn.b
