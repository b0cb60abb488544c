"""A query planned over this node's catalogue and placed on the living network; nothing of it is reserved or changed."""

from __future__ import annotations

from collections.abc import Mapping

from sbon_node.control.catalogue import Catalogue
from sbon_node.control.context import Context
from sbon_node.control.measurements import MeasurementBook
from sbon_node.control.report import Question
from sbon_node.control.view import LiveNetworkView
from sbon_node.engine.interface import Engine
from sbon_node.errors import SbonError
from sbon_node.placement.bounds import place
from sbon_node.placement.from_plan import problem_of, with_room_to_send
from sbon_node.placement.goal import Goal
from sbon_node.placement.problem import Placement
from sbon_node.placement.settings import PlacementSettings
from sbon_node.query.plan import Plan
from sbon_node.query.settings import QuerySettings


class Planning:
    """What submission and explanation share. Every method raises :class:`SbonError` for what it refuses."""

    def __init__(
        self,
        context: Context,
        catalogue: Catalogue,
        measurements: MeasurementBook,
        engine: Engine,
        query: QuerySettings,
        placement: PlacementSettings,
    ) -> None:
        self._context, self._catalogue, self._measurements = context, catalogue, measurements
        self._engine, self._query, self._placement = engine, query, placement

    @property
    def engine_runs(self) -> bool:
        return self._engine.status == "running"

    def consumer(self, wished: str) -> str:
        """The node the rows go to, by default this one."""
        consumer = wished or self._context.name
        self._check_alive(consumer, "consumer")
        return consumer

    async def plan(self, asked: Question, query: str) -> Plan:
        """With what is remembered of equal sub-plans, and needs that keep to the throughput asked for; all its sources are
        alive."""
        # SQL's libraries take 12 MB, which a node that plans nothing does without.
        from sbon_node.query.planner import plan_query

        plan = await plan_query(
            asked.sql,
            self._catalogue.entries,
            query,
            self._engine.analyse,
            self._query,
            recall=self._measurements.measured,
            decompose=asked.decompose,
            join_window_ms=asked.join_window_ms,
        )
        for planned in plan.sources:
            self._check_alive(planned.source.node, f"source {planned.source.name!r} of {planned.source.stream}")
        return with_room_to_send(plan, asked.min_throughput_bytes_s)

    async def place(
        self, plan: Plan, goal: Goal, consumer: str, refused: Mapping[str, frozenset[str]] | None = None
    ) -> Placement:
        """Within the goal's bounds; ``refused`` are nodes to leave out, by operator."""
        problem = problem_of(plan, consumer, refused, goal)
        return await place(problem, LiveNetworkView(self._context), self._placement, goal.strategy)

    def _check_alive(self, node: str, what: str) -> None:
        members = self._context.membership
        if node == self._context.name or members.is_alive(node):
            return
        member = members.get(node)
        if member is None:
            known = ", ".join(sorted({self._context.name, *members.alive()}))
            raise SbonError("unknown-node", f"there is no node {node!r}", where=what, hint=f"known: {known}")
        raise SbonError("node-away", f"the node {node!r} is {member.state}", where=what, hint="wait for it, or choose another")
