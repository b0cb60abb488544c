"""Reuse by ants (ANTS, section 3.10): scouts weigh the running operators that a new query may read against its own.

The walk along the streams finds the operators that may be read (:mod:`sbon_node.queries.submitting.reuse`). Only these travel
with the scouts, so a peer that lies changes the cost of a placement, and not which operator is read. Nothing is reserved here.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from sbon_node.context import Context
from sbon_node.papers.ants.algorithm.chain import Chain, Running, next_chain
from sbon_node.papers.ants.algorithm.scouting import passed_by, passing
from sbon_node.papers.ants.network.leader import AntLeader, Known, key_of
from sbon_node.placement.model.from_plan import problem_of
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.registry import AUTO, Strategy
from sbon_node.placing import LiveNetworkView
from sbon_node.queries.submitting.reuse import Choice, EqualOperators, Reuse, with_shared
from sbon_protocol.api.adaptation import ANTS, Adapt
from sbon_protocol.api.plan import Plan
from sbon_protocol.api.queries import QuerySpec
from sbon_protocol.papers.ants import MAX_RUNNING, MAX_TASKS


class RunningOperator(NamedTuple):
    """An operator of another query, by its stream, that may be read in place of one to place.

    ``fed_ms`` is that of :class:`~sbon_node.papers.ants.algorithm.chain.Running`.
    """

    stream: str
    node: str
    fed_ms: float


class Weighed(NamedTuple):
    """The streams of running operators that the best scouts pass through, by the operators whose place they take; the reports."""

    passed: dict[str, str]
    reports: Known


class AntReuse:
    """Has ants place new queries, and choose which running operators these read: the hook of submissions."""

    strategy = ANTS

    def __init__(self, context: Context, leader: AntLeader, reuse: Reuse, placement: PlacementSettings) -> None:
        self.place: Strategy = leader.place
        self._context, self._leader, self._reuse, self._placement = context, leader, reuse, placement

    def chooses(self, spec: QuerySpec, adapt: Adapt) -> bool:
        """Return whether ants place the query: by its strategy, or by ``auto`` because ants adapt it."""
        return spec.strategy == ANTS or (spec.strategy == AUTO and adapt == ANTS)

    async def shared(
        self,
        plan: Plan,
        spec: QuerySpec,
        consumer: str,
        without: Collection[str] = (),
        *,
        silent: frozenset[str] = frozenset(),
        sink_follows: bool = False,
    ) -> tuple[Plan, Strategy]:
        """Return the plan with running operators in place of its own where scouts find that cheaper; what else they found counts.

        As :class:`Reuse`, it refers to nothing yet, and leaves out operators ``without``. ``silent`` hosts get no operators.
        """
        offers = await self._reuse.offers(plan, spec, without)
        if not any(offers.by_operator.values()):
            return plan, self.place
        refused = {one.id: silent for one in plan.operators} if silent else {}
        problem = problem_of(plan, consumer, refused, spec, sink_follows=sink_follows)
        running = self._running(offers, fed_counts=not problem.objective.additive)
        weighed = await self._weigh(problem, LiveNetworkView(self._context), running)
        chosen = {
            operator: Choice(next(offer for offer in offers.of(operator) if offer.id == stream))
            for operator, stream in weighed.passed.items()
        }
        place = partial(self._leader.place, known=weighed.reports)
        return with_shared(plan, chosen, offers.streams) if chosen else plan, place

    async def _weigh(
        self, problem: PlacementProblem, view: NetworkView, running: Mapping[str, Sequence[RunningOperator]]
    ) -> Weighed:
        """Let scouts pass through ``running`` operators, by those whose place they may take; nothing is reserved.

        Each is passed once: two equal branches need rows of their own.
        """
        weighed, hosts = Weighed({}, {}), dict[str, str]()
        while (chain := next_chain(problem, hosts)) is not None:
            taken = set(weighed.passed.values())
            left = {
                one.id: [other for other in running.get(one.id, ()) if other.stream not in taken]
                for one in problem.operators
                if one.id not in hosts
            }
            if not any(left.values()):
                break
            chain = self._passable(msgspec.structs.replace(chain, tasks=chain.tasks[:MAX_TASKS]), left)
            reports = await self._leader.found(chain, view, self._placement.ant_tries)
            if not reports:
                break
            passed = passed_by(chain, reports[0].sites)
            if passed is not None:
                operator = chain.tasks[passed.task].operator
                weighed.passed[operator] = next(one.stream for one in left[operator] if one.node == passed.node)
                problem = passing(problem, operator, passed.node)
            own = [report.own() for report in reports if passed_by(report.chain, report.sites) == passed]
            weighed.reports[key_of(own[0].chain)] = own
            hosts |= own[0].hosts()
        return weighed

    def _passable(self, chain: Chain, running: Mapping[str, Sequence[RunningOperator]]) -> Chain:
        """Return the chain with its running tasks: of each node the furthest, those nearest to the destination first."""
        furthest = {
            one.node: Running(number, one.node, one.fed_ms)
            for number, task in enumerate(chain.tasks)
            for one in reversed(running.get(task.operator, ()))
            if not self._context.presence.away(one.node)
        }

        def order(one: Running) -> tuple[int, float, str]:
            return -one.task, self._leader.path_ms(one.node, chain.destination), one.node

        return msgspec.structs.replace(chain, running=tuple(sorted(furthest.values(), key=order)[:MAX_RUNNING]))

    def _running(self, offers: EqualOperators, *, fed_counts: bool) -> dict[str, list[RunningOperator]]:
        """Return the operators that may be read; the way of rows up to them counts if latency is the query's objective."""

        known: dict[str, float] = {}

        def fed_ms(stream: str) -> float:
            if stream not in known:
                node, offer = offers.streams[stream]
                inputs = offer.operator.inputs if offer.operator is not None else ()
                legs = (fed_ms(read) + self._leader.path_ms(offers.streams[read].node, node) for read in inputs)
                known[stream] = max(legs, default=0.0)
            return known[stream]

        return {
            operator: [RunningOperator(one.id, one.node, fed_ms(one.id) if fed_counts else 0.0) for one in fitting]
            for operator, fitting in offers.by_operator.items()
        }
