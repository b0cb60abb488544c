"""Placing running queries again as a whole, for queries with ``--adapt full``: their strategy's periodic adaptation.

From time to time the leader of a query has its strategy place it anew, with measured rates and new measurements of latency, as
SAND's coordinators do (SAND, section 3) and as ANTS does by its ants. If the placement that is found saves enough, or keeps a
bound on delay that the present one breaks, its operators move there one by one. Between these, the hosts of operators move them
by themselves, as with ``--adapt local``: a host sees only the neighbours of its operators, and so finds no placement that differs
in several of them at once.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set
from typing import ClassVar, Generic, NamedTuple, TypeVar

import structlog

from sbon_node.adaptation import rules
from sbon_node.adaptation.decisions import LeaderDecisions
from sbon_node.adaptation.look import LookView
from sbon_node.adaptation.mover import RequestedMoves
from sbon_node.adaptation.rules import Link, Offer, Why
from sbon_node.adaptation.settings import AdaptationSettings
from sbon_node.base.tasks import Loop
from sbon_node.context import Context
from sbon_node.model.records import QueryRecord
from sbon_node.placement.model.from_plan import measured_problem
from sbon_node.placement.model.network_view import loads_above_least
from sbon_node.placement.model.objective import cost, longest_delay_ms, network_usage, processing_ms
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.selection.bounds import place
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.registry import Strategies
from sbon_node.queries.driving.leader import QueryLeader
from sbon_protocol.api.adaptation import FULL, MOVES, STAYS, Adapt
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.moves import MoveRequest
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.queries import OperatorInfo, QueryInfo
from sbon_protocol.api.states import operator_states, query_states
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

Memory = TypeVar("Memory")


class LeaderParts(NamedTuple):
    """Parts that look after the queries that this node leads, and move their operators."""

    context: Context
    leader: QueryLeader
    mover: RequestedMoves
    decisions: LeaderDecisions
    placement: PlacementSettings


class LedQueries(Loop, Generic[Memory]):
    """Looks from time to time at the running queries that this node leads and that are adapted in this way.

    Each look is a task of its own. It may raise :class:`SbonError`; the next look comes all the same.
    """

    adapt: ClassVar[Adapt]
    """How the queries are adapted."""

    def __init__(self, parts: LeaderParts, every_s: float) -> None:
        super().__init__("looks")
        self._context, self._leader, self._mover, self._decisions, self._placement = parts
        self._every_s = every_s
        self._known: dict[str, Memory] = {}

    @abstractmethod
    def _begin(self, now_s: float) -> Memory:
        """Return what looks at a query remember from the beginning of its leadership."""

    @abstractmethod
    async def _look(self, record: QueryRecord, memory: Memory) -> None:
        """Look at a query, and move its operators if that pays."""

    def ids(self) -> list[str]:
        """Return the running queries that are adapted in this way and that this node leads."""
        records = (one for one in self._leader.records() if one.state == query_states.RUNNING and one.adapt == self.adapt)
        return [record.id for record in records if self._leader.leader_of(record.id) == self._context.name]

    async def _run(self) -> None:
        clock, rng = self._context.clock, self._context.rng
        while True:
            await clock.sleep(self._every_s * rng.uniform(0.75, 1.25))
            led = self.ids()
            for query in [one for one in self._known if one not in led]:
                del self._known[query]
                self._decisions.forget(query)
            for query in led:
                if query not in self._known:
                    self._known[query] = self._begin(clock.now())
                    self._decisions.begin(query)
                self._tasks.start(f"look {query}", self._look_at(query))

    async def _look_at(self, query: str) -> None:
        record = self._leader.find(query)
        if record is None:
            return
        try:
            await self._look(record, self._known[query])
        except SbonError as error:
            log.info("query-not-adapted", query=query, code=error.code, reason=str(error))

    async def _move_operators(self, query: str, hosts: Mapping[str, str], found: Mapping[str, str], why: str) -> None:
        """Move operators one after another; the first that cannot move ends it, and a later look begins anew."""
        for operator, node in found.items():
            if hosts[operator] != node:
                try:
                    async for _ in self._mover.move(query, MoveRequest(operator=operator, to=node), why=why[:MAX_REASON]):
                        pass
                except SbonError as error:
                    self._decisions.failed(query, operator, error)
                    raise
                log.info("operator-adapted", operator=operator, target=node)


def settled_hosts(info: QueryInfo) -> dict[str, str] | None:
    """Return the host of each operator; None while one of them moves or does not run."""
    if any(one.move is not None or one.state != operator_states.RUNNING for one in info.operators):
        return None
    return {one.id: one.node for one in info.operators}


LOOKS = 4
"""Looks at whether a query is due in the time between two placements."""
SAME, KEEPS_BOUND = "same-placement", "keeps-bound"


class _Remembered:
    """Memory of a query that this node leads: when it is placed again, for the first time after a whole pause."""

    def __init__(self, now_s: float) -> None:
        self.since_s, self.due_s = now_s, 0.0


class Replacements(LedQueries[_Remembered]):
    """Places the queries again that this node leads and that are adapted in full."""

    adapt = FULL

    def __init__(self, parts: LeaderParts, settings: AdaptationSettings, strategies: Strategies) -> None:
        super().__init__(parts, settings.replace_s / LOOKS)
        self._settings, self._strategies = settings, strategies

    def _begin(self, now_s: float) -> _Remembered:
        return _Remembered(now_s)

    async def _look(self, record: QueryRecord, kept: _Remembered) -> None:
        """Place the query anew if that is due, and move its operators if that pays."""
        context, settings, now_s = self._context, self._settings, self._context.clock.now()
        if now_s < (kept.due_s or kept.since_s + settings.replace_s):
            return None
        info = await self._leader.describe(record)
        hosts = settled_hosts(info)
        if not hosts or hosts.keys() != {one.id for one in record.plan.operators}:
            return None
        if (why := self._waits(info.operators)) is not None:
            return self._decisions.enter(info, STAYS, why.code, why.text)
        kept.due_s = now_s + settings.replace_s * context.rng.uniform(0.75, 1.25)
        now_ms = context.clock.wall_ms()
        refused = {one.id: rules.left_lately(one.past_moves, now_ms, settings) - {one.node} for one in info.operators}
        problem = measured_problem(record.plan, info.operators, record.consumer, refused, record, record.adapt, info.shared)
        view = LookView(context, record.id, settings.replace_s / LOOKS)
        await view.measure_links(problem, hosts)
        try:
            found = (await place(problem, view, self._placement, self._strategies.named(record.strategy))).hosts()
        except SbonError as error:
            return self._decisions.enter(info, STAYS, error.code, f"{record.strategy} finds no placement: {error}")
        if found == hosts:
            return self._decisions.enter(info, STAYS, SAME, f"{record.strategy} places it where it is")
        await view.measure_links(problem, found)
        cores = await self._cores(problem, view, {*hosts.values(), *found.values()})
        why = self._why(problem, hosts, found, view, info.operators, cores)
        if why.code not in rules.MOVING | {KEEPS_BOUND}:
            return self._decisions.enter(info, STAYS, why.code, why.text)
        self._decisions.enter(info, MOVES, why.code, why.text, found)
        return await self._move_operators(record.id, hosts, found, f"placed again by {record.strategy}: {why.text}")

    def _waits(self, operators: Sequence[OperatorInfo]) -> Why | None:
        """Return why an operator may not move now, or is not measured yet; None if all may move."""
        now_ms = self._context.clock.wall_ms()
        for one in operators:
            seconds = one.measures.seconds if one.measures is not None else 0.0
            if (why := rules.waits(seconds, one.past_moves, now_ms, self._settings)) is not None:
                return Why(why.code, f"{one.id}: {why.text}")
        return None

    async def _cores(self, problem: PlacementProblem, view: LookView, nodes: Set[str]) -> dict[str, float]:
        """Return the cores that nodes have left beside this query, where a bound on delay counts and they answer."""
        if problem.bounds.max_delay_ms is None:
            return {}
        answers = await view.ask_all(sorted(nodes), Needs())
        return {node: answer.capacity.cores for node, answer in answers.items() if answer.accepted}

    def _why(
        self,
        problem: PlacementProblem,
        hosts: Mapping[str, str],
        found: Mapping[str, str],
        view: LookView,
        operators: Sequence[OperatorInfo],
        cores: Mapping[str, float],
    ) -> Why:
        """Return why the operators move to the placement that was found, or why they stay."""
        settings, bound_ms = self._settings, problem.bounds.max_delay_ms
        delay_ms, delay_there_ms = (
            longest_delay_ms(problem, at, view.latency_ms, processing_ms(problem, at, cores)) for at in (hosts, found)
        )
        if bound_ms is not None and delay_there_ms <= bound_ms < delay_ms:
            takes = f"take {delay_ms:.1f} ms" if math.isfinite(delay_ms) else "wait at a host that cannot keep up"
            return Why(KEEPS_BOUND, f"its rows {takes}, {delay_there_ms:.1f} ms there; the bound is {bound_ms:g} ms")
        moved = [one for one in operators if found[one.id] != one.node]
        names = ", ".join(sorted({found[one.id] for one in moved}))
        past = tuple(move for one in moved for move in one.past_moves)
        load_ms = loads_above_least(view, {*hosts.values(), *found.values()}).__getitem__
        usage, usage_there = (network_usage(problem, at, view.latency_ms, load_ms) for at in (hosts, found))
        if problem.objective.usage:
            offer = Offer(names, usage_there, delay_there_ms, 0.0)
            price = sum(self._price(problem, one, found, view) for one in moved)
            return rules.decide(usage, delay_ms, offer, price, past, self._context.clock.wall_ms(), settings)
        # Without network usage in the objective, a move cannot be paid.
        value, value_there = (cost(problem, at, view.latency_ms, load_ms=load_ms) for at in (hosts, found))
        share = 1.0 - value_there / value if value > 0 else 0.0
        least = self._settings.least_saving * (1 + rules.moves_within(past, self._context.clock.wall_ms(), rules.HOUR_MS))
        text = f"{names} saves {share:.1%} of the objective, {value:,.1f}"
        return Why(rules.SAVES, text) if share >= least else Why(rules.SAVES_LITTLE, f"{text}, less than {least:.0%}")

    def _price(self, problem: PlacementProblem, moved: OperatorInfo, found: Mapping[str, str], view: LookView) -> float:
        """Return the cost of an operator's move, in bytes in transit x seconds."""
        at = {**problem.pinned, **found}
        links = tuple(
            Link(other, at[other], edge.rate_bytes_s, other == edge.source)
            for edge in problem.edges
            if moved.id in (edge.source, edge.target)
            for other in ((edge.source if edge.target == moved.id else edge.target),)
        )
        node = found[moved.id]
        latencies_ms = {link.node: view.latency_ms(node, link.node) if link.node != node else 0.0 for link in links}
        usage_there, path_ms = rules.usage_of(links, latencies_ms), view.latency_ms(moved.node, node)
        state_bytes = (moved.measures.state_bytes or 0) if moved.measures is not None else 0
        return rules.cost_of_move(links, state_bytes, Offer(node, usage_there, 0.0, path_ms))
