"""Explanation of a query's placement: reasons, alternatives, their costs, and the latencies that decide."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Container, Mapping, Sequence, Set
from typing import NamedTuple, TypeVar

import numpy as np
from msgspec.structs import asdict, replace

from sbon_node.context import Context
from sbon_node.placement.model.from_plan import measured_plan, measured_work, problem_of
from sbon_node.placement.model.network_view import Answer, loads_above_least
from sbon_node.placement.model.problem import Operator, PlacementProblem, total
from sbon_node.placement.selection.bounds import place
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers.geometric_median import median_positions
from sbon_node.placement.strategies.registry import Strategies, Strategy
from sbon_node.placement.strategies.sbon.relaxation import pinned_positions
from sbon_node.placing import LiveNetworkView
from sbon_node.queries.describing.lookup import QueryLookup
from sbon_node.queries.explaining.compare import Known, alternative, turning_point, weigh
from sbon_node.queries.submitting.planning import Planning
from sbon_node.queries.submitting.reuse import Reuse
from sbon_protocol.api.adaptation import OFF, Adapt
from sbon_protocol.api.explanations import (
    Alternative,
    BoundCheck,
    KnownNode,
    PlacementExplanation,
    TurningPoint,
    WeighedLink,
    WeighedOperator,
)
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.placement import Assignment, Placement
from sbon_protocol.api.plan import Plan
from sbon_protocol.api.queries import OperatorInfo, QuerySpec
from sbon_protocol.api.query_ids import uid_of
from sbon_protocol.api.states.lifecycle import PLANNED
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.api.strategies import LOOKING_EVERYWHERE, Goal
from sbon_protocol.errors import SbonError

MAX_CANDIDATES = 12
"""Most candidates of each operator, beside the hosts that any strategy chose."""
MOST_LOOKED_AT = 60_000
"""Most nodes x operators for which an explanation runs strategies that look everywhere."""


class _Subject(NamedTuple):
    """The explained query; ``hosts`` is empty if it does not run."""

    plan: Plan
    goal: Goal
    sql: str
    consumer: str
    query: str = ""
    state: str = PLANNED
    hosts: Mapping[str, str] = {}
    adapt: Adapt = OFF
    measured: Sequence[OperatorInfo] = ()
    """Its running operators, whose measured work replaces estimates."""


class PlacementExplainer:
    """Explains the placement of any query or submission; reserves and changes nothing.

    Every strategy runs, and asks and measures as if it placed the query. Half of this node's measurement limit stays for queries
    that are placed. Strategies that take too long, or would, are left out with a message.
    """

    def __init__(
        self,
        context: Context,
        planning: Planning,
        lookup: QueryLookup,
        reuse: Reuse,
        settings: PlacementSettings,
        strategies: Strategies,
        knowledge: Knowledge,
    ) -> None:
        self._context, self._planning, self._lookup, self._reuse = context, planning, lookup, reuse
        self._settings, self._strategies, self._knowledge = settings, strategies, knowledge

    async def plan(self, question: QuerySpec) -> PlacementExplanation:
        """Explain the placement of a query that could be submitted."""
        question.check()
        consumer = self._planning.consumer(question.consumer)
        plan = await self._planning.plan(question, "q")
        plan = await self._reuse.shared(plan, question, "q", consumer)
        return await self._explain(_Subject(plan, question, question.sql, consumer, adapt=self._planning.adaptation(question)))

    async def query(self, query_id: str) -> PlacementExplanation:
        """Compare the placement of a cluster's query with the strategy's current choice. Raises ``query-not-placed``.

        The rates and the work that its operators have measured count, where there are some.
        """
        info, _ = await self._lookup.show(query_id)
        if info.plan is None or info.placement is None:
            raise SbonError("query-not-placed", f"the query {query_id} has not been placed", where="query", hint="ask again")
        hosts = info.hosts()
        plan = measured_plan(info.plan, info.operators, info.shared)
        return await self._explain(
            _Subject(plan, info, info.sql, info.consumer, info.id, info.state, hosts, info.adapt, info.operators)
        )

    async def _explain(self, subject: _Subject) -> PlacementExplanation:
        beside = uid_of(subject.plan.operators[0].id) if subject.state in LIVE else ""
        turns = asyncio.Semaphore()
        view = DryRunView(self._context, beside, turns)
        problem = problem_of(subject.plan, subject.consumer, None, subject.goal, subject.adapt)
        problem = measured_work(problem, subject.measured)
        choice = await self._placed(problem, view, subject.goal.strategy)
        # Each strategy has its own view, so that its requests are counted separately; measurements are shared.
        others = (self._in_passing(name, problem, DryRunView(self._context, beside, turns), choice) for name in self._strategies)
        outcomes = dict(zip(self._strategies, await asyncio.gather(*others), strict=True))
        chosen = choice.hosts() if isinstance(choice, Placement) else {}
        hosts = dict(subject.hosts) or chosen
        virtual = _virtual(problem, view, choice)
        placements = [hosts, *(one.hosts() for one in (choice, *outcomes.values()) if isinstance(one, Placement))]
        candidates = self._candidates(problem, view, virtual, placements, choice)
        known = await self._known(problem, view, virtual, candidates)
        away = self._away({*problem.pinned.values(), *hosts.values()}, known)
        # If the host can no longer take the operator, candidates are compared with the strategy's current choice instead.
        taken = {name: node if known.answers[name, node].accepted else chosen.get(name, "") for name, node in hosts.items()}
        weighed = await self._context.computing(lambda: weigh(problem, candidates, known, taken))
        now = _compared(subject.goal.strategy, choice, problem, view, known)
        if isinstance(choice, Placement):
            now = replace(now, strategy=choice.strategy)
        best = alternative("best of the candidates", problem, weighed.best, view.latency_ms, known)
        current = alternative(subject.goal.strategy, problem, hosts, view.latency_ms, known)
        reasons = {assignment.operator: assignment.reason for assignment in _assignments(choice)}
        names = [operator.id for operator in problem.operators]
        turning = [turning_point(turn, known, weighed.best, names) for turn in weighed.turning]
        ends = {*problem.pinned.values(), *known.nodes}
        measured = {one.source.id for one in subject.plan.sources if one.rate.measured}
        measured |= {one.id for one in subject.plan.operators if one.rate.measured}
        return PlacementExplanation(
            **subject.goal.goal_options(),
            query=subject.query,
            sql=subject.sql,
            state=subject.state,
            consumer=subject.consumer,
            pinned=problem.pinned,
            away=away,
            current=current if subject.hosts else now,
            now=now,
            now_reason=choice.reason if isinstance(choice, Placement) else "",
            best=best,
            operators=tuple(
                WeighedOperator(
                    id=operator.id,
                    node=hosts.get(operator.id, ""),
                    now=chosen.get(operator.id, ""),
                    reason=reasons.get(operator.id, ""),
                    virtual=virtual.get(operator.id, ()),
                    needs=operator.needs,
                    candidates=tuple(weighed.candidates[operator.id]),
                )
                for operator in problem.operators
            ),
            links=tuple(self._knowledge.links(problem, hosts, measured)),
            strategies=tuple(
                replace(_compared(name, outcome, problem, view, known), **asdict(self._strategies.profiles[name]))
                for name, outcome in outcomes.items()
            ),
            checks=tuple(await self._checks(problem, view, current)),
            turns=tuple(sorted((self._knowledge.dated(turn) for turn in turning if _turns(turn)), key=_change)),
            settled=weighed.looked_at - sum(_turns(turn) for turn in turning),
            nodes=tuple(self._knowledge.node(node) for node in sorted(ends)),
        )

    # -- placements by the strategies ---------------------------------------------------------------------------------

    async def _placed(self, problem: PlacementProblem, view: DryRunView, strategy: str) -> Placement | SbonError:
        try:
            return await place(problem, view, self._settings, self._strategies.named(strategy))
        except SbonError as error:
            return error

    async def _in_passing(
        self, name: str, problem: PlacementProblem, view: DryRunView, choice: Placement | SbonError
    ) -> Placement | SbonError:
        """Run a strategy within its time limit, unless the problem is too large."""
        if isinstance(choice, Placement) and choice.strategy == name:
            return choice
        many, limit_s = len(view.nodes()) * len(problem.operators), self._context.settings.explain_s
        if name in LOOKING_EVERYWHERE and many > MOST_LOOKED_AT:
            return SbonError("not-computed", f"too large: {many:,} places for operators, {MOST_LOOKED_AT:,} are tried in passing")
        try:
            async with self._context.clock.timeout(limit_s):
                return await self._strategy(name, problem, view)
        except TimeoutError:
            return SbonError("not-computed", f"not done after {limit_s:g} s (control.explain_s)")

    async def _strategy(self, name: str, problem: PlacementProblem, view: DryRunView) -> Placement | SbonError:
        """Run a strategy; if it cannot keep the delay bound, return its placement without the bound.

        The explanation then shows its cost, and by how much it breaks the bound.
        """
        settings = replace(self._settings, exact_s=min(self._settings.exact_s, self._context.settings.explain_s / 2))
        strategy = self._strategies[name]
        outcome = await _attempted(strategy, problem, view, settings)
        if isinstance(outcome, SbonError) and outcome.code == "delay-bound":
            unbounded = replace(problem, bounds=replace(problem.bounds, max_delay_ms=None))
            return await _attempted(strategy, unbounded, view, settings)
        return outcome

    # -- candidates ---------------------------------------------------------------------------------------------------

    def _candidates(
        self,
        problem: PlacementProblem,
        view: DryRunView,
        virtual: Mapping[str, Sequence[float]],
        placements: Sequence[Mapping[str, str]],
        choice: Placement | SbonError,
    ) -> dict[str, list[str]]:
        """Return the candidates of each operator.

        They are every host that some strategy chose, even if it is away by now, and up to ``MAX_CANDIDATES`` others: nodes that
        the strategy examined, the query's endpoints, and nodes near the virtual coordinate.
        """
        hosts = set(view.nodes())
        ends = [node for node in dict.fromkeys(problem.pinned.values()) if node in hosts]
        looked_at = {assignment.operator: [c.node for c in assignment.candidates] for assignment in _assignments(choice)}
        candidates = {}
        for operator in problem.operators:
            chosen = dict.fromkeys(hosts_of[operator.id] for hosts_of in placements if operator.id in hosts_of)
            near = [node for node, _ in view.nearest(virtual[operator.id], MAX_CANDIDATES)] if operator.id in virtual else []
            others = dict.fromkeys((*looked_at.get(operator.id, ())[: MAX_CANDIDATES // 2], *ends, *near, *sorted(hosts)))
            candidates[operator.id] = [*chosen, *[node for node in others if node not in chosen][:MAX_CANDIDATES]]
        return candidates

    def _away(self, nodes: Set[str], known: Known) -> dict[str, str]:
        """Return nodes that are away or did not answer here, each with the reason."""
        unanswered = {node for (_, node), answer in known.answers.items() if answer.free is None}
        reasons = {
            node: self._context.presence.away(node) or ("does not answer" if node in unanswered else "") for node in sorted(nodes)
        }
        return {node: how for node, how in reasons.items() if how}

    async def _known(
        self,
        problem: PlacementProblem,
        view: DryRunView,
        virtual: Mapping[str, Sequence[float]],
        candidates: Mapping[str, Sequence[str]],
    ) -> Known:
        nodes = sorted({*problem.pinned.values(), *(node for some in candidates.values() for node in some)})
        answers: dict[tuple[str, str], Answer] = {}
        by_needs: dict[tuple[Needs, str], Answer] = {}
        distances: dict[tuple[str, str], float] = {}
        for operator in problem.operators:
            new = [node for node in candidates[operator.id] if (operator.needs, node) not in by_needs]
            away = {node: how for node in new if (how := self._context.presence.away(node))}
            by_needs |= {(operator.needs, node): Answer(accepted=False, reason=how) for node, how in away.items()}
            present = [node for node in new if node not in away]
            by_needs |= {(operator.needs, node): answer for node, answer in (await view.ask_all(present, operator.needs)).items()}
            answers |= {(operator.id, node): by_needs[operator.needs, node] for node in candidates[operator.id]}
            if operator.id in virtual:
                near = dict(view.nearest(virtual[operator.id], len(view.nodes())))
                distances |= {(operator.id, node): near[node] for node in candidates[operator.id] if node in near}
        settled = np.zeros((len(nodes), len(nodes)), dtype=np.bool_)
        for row, a in enumerate(nodes):
            settled[row] = [self._knowledge.is_settled(a, b) for b in nodes]
            await view.pause()
        predicted_ms, known_ms = view.latencies_ms(nodes, nodes, measured=False), view.latencies_ms(nodes, nodes)
        return Known(nodes, predicted_ms, known_ms, settled, answers, distances, loads_above_least(view, nodes))

    async def _checks(self, problem: PlacementProblem, view: DryRunView, current: Alternative) -> list[BoundCheck]:
        """Check the delay, and each host's capacity for all operators placed there."""
        checks: list[BoundCheck] = []
        hosts = current.hosts
        bound, delay_ms = problem.bounds.max_delay_ms, current.delay_ms
        if bound is not None and delay_ms is not None:
            value, slack = (delay_ms, bound - delay_ms) if math.isfinite(delay_ms) else (None, None)
            checks.append(BoundCheck(bound="max_delay_ms", limit=bound, value=value, slack=slack))
        by_id: dict[str, Operator] = {operator.id: operator for operator in problem.operators}
        for node in sorted(set(hosts.values())):
            needs = total([by_id[operator].needs for operator, at in hosts.items() if at == node])
            answer = await view.ask(node, needs)
            for name in Needs.__struct_fields__:
                limit, value = None if answer.free is None else getattr(answer.free, name), getattr(needs, name)
                slack = None if limit is None else limit - value
                checks.append(BoundCheck(bound=name, where=node, limit=limit, value=value, slack=slack))
        return checks


async def _attempted(
    strategy: Strategy, problem: PlacementProblem, view: DryRunView, settings: PlacementSettings
) -> Placement | SbonError:
    try:
        return await strategy(problem, view, settings)
    except SbonError as error:
        return error


def _virtual(problem: PlacementProblem, view: DryRunView, choice: Placement | SbonError) -> dict[str, tuple[float, ...]]:
    """Return the strategy's virtual coordinates, or the geometric median where it has none."""
    names = [operator.id for operator in problem.operators]
    try:
        medians = median_positions(names, problem.edges, pinned_positions(problem, view))
    except SbonError:
        return {}
    return medians | {assignment.operator: assignment.virtual for assignment in _assignments(choice) if assignment.virtual}


def _assignments(outcome: Placement | SbonError) -> tuple[Assignment, ...]:
    return outcome.assignments if isinstance(outcome, Placement) else ()


def _compared(
    name: str, outcome: Placement | SbonError, problem: PlacementProblem, view: DryRunView, known: Known
) -> Alternative:
    if isinstance(outcome, SbonError):
        return Alternative(strategy=name, refused=f"{outcome.code}: {outcome.message}")
    return alternative(name, problem, outcome.hosts(), view.latency_ms, known, probes=outcome.probes)


def _turns(turn: TurningPoint) -> bool:
    return turn.below_ms is not None or turn.above_ms is not None


def _change(turn: TurningPoint) -> tuple[float, str, str]:
    """Return the least relative change of the latency that would change the placement."""
    now_ms = turn.latency_ms if turn.latency_ms is not None else float("inf")
    shares = [abs(ms - now_ms) / max(now_ms, 1e-3) for ms in (turn.below_ms, turn.above_ms) if ms is not None]
    return min(shares, default=float("inf")), turn.a, turn.b


# -- Network view of strategies in a dry run: changes nothing and yields to real placements ---------------------------

T = TypeVar("T")


class DryRunView(LiveNetworkView):
    """View in which the capacity that the query ``beside`` holds counts as free, if one is named.

    Measurements leave a part of the limit for queries that are placed; ``turns`` lets one of many strategies compute at a time.
    """

    sparing = True

    def __init__(self, context: Context, beside: str, turns: asyncio.Semaphore) -> None:
        super().__init__(context, beside)
        self._turns = turns

    async def compute(self, work: Callable[[], T], /) -> T:
        async with self._turns:
            return await super().compute(work)


# -- Source and age of the coordinates and latencies that placement uses ----------------------------------------------

AGED = 0.5
"""A measurement counts as old after this share of the time for which it is used."""


class Knowledge:
    """Source and age of latencies; a measured pair is used for ``fresh_s`` seconds."""

    def __init__(self, context: Context, fresh_s: float) -> None:
        self._context, self._fresh_s = context, fresh_s

    def is_settled(self, a: str, b: str) -> bool:
        """Return whether the latency between the nodes is measured recently."""
        known, age_s = self.source(a, b)
        return known in ("self", "probes") or (known == "measured" and age_s is not None and age_s <= AGED * self._fresh_s)

    def source(self, a: str, b: str) -> tuple[str, float | None]:
        """Return source and age of the latency estimate; of two coordinates, the older age counts."""
        directory = self._context.directory
        known = directory.estimate_rtt_ms(a, b).source
        if known == "measured" and (measured := directory.known((a, b))) is not None:
            return known, self._context.clock.now() - measured.at
        if known != "coordinates":
            return known, None
        ages = [age_s for node in (a, b) if (age_s := directory.coordinate_age_s(node)) is not None]
        return known, max(ages, default=None)

    def dated(self, turn: TurningPoint) -> TurningPoint:
        known, age_s = self.source(turn.a, turn.b)
        return replace(turn, known=known, age_s=age_s)

    def links(self, problem: PlacementProblem, hosts: Mapping[str, str], measured: Container[str]) -> list[WeighedLink]:
        """Return the links of a placement; ``measured`` are the streams whose rate is."""
        at = {**problem.pinned, **hosts}
        links = []
        for edge in problem.edges:
            if edge.source in at and edge.target in at:
                a, b = at[edge.source], at[edge.target]
                known, age_s = self.source(a, b)
                links.append(
                    WeighedLink(
                        source=edge.source,
                        target=edge.target,
                        source_node=a,
                        target_node=b,
                        rate_bytes_s=edge.rate_bytes_s,
                        rate_measured=edge.source in measured,
                        latency_ms=self._context.directory.estimate_rtt_ms(a, b).one_way_ms,
                        known=known,
                        age_s=age_s,
                    )
                )
        return links

    def node(self, node: str) -> KnownNode:
        coordinate = self._context.directory.coordinate(node)
        if coordinate is None:
            return KnownNode(node=node, vector=None)
        age_s = self._context.directory.coordinate_age_s(node)
        return KnownNode(node=node, vector=coordinate.vector, height_ms=coordinate.height, load_ms=coordinate.load, age_s=age_s)
