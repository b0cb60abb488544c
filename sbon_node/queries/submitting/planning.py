"""Planning of a query over this node's catalogue and its placement on the live network. Reserves and changes nothing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from sbon_node.base.clock import Clock
from sbon_node.connectors.sources.event_time import LAST_MS
from sbon_node.context import Context
from sbon_node.engine.interface import Engine
from sbon_node.hosting.sources.measurements import MeasurementStore
from sbon_node.model.measurements import nothing_measured
from sbon_node.model.running_computation import RunningComputation
from sbon_node.overlay.membership.views import unknown_node
from sbon_node.ownership.catalogue import Catalogue
from sbon_node.placement.model.from_plan import problem_of, with_capacity_to_send
from sbon_node.placement.selection.bounds import place
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.registry import Strategies, Strategy
from sbon_node.placing import LiveNetworkView
from sbon_node.planning.process.planner import Analyse, PlanRequest
from sbon_protocol.api.adaptation import OFF, Adapt, adapted
from sbon_protocol.api.catalogue import CatalogEntry
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.durability import Durability
from sbon_protocol.api.placement import Placement
from sbon_protocol.api.plan import Plan, PlannedSource, ProposedPlan
from sbon_protocol.api.queries import QuerySpec
from sbon_protocol.api.sharing import StreamOffer
from sbon_protocol.api.strategies import Goal
from sbon_protocol.calls import AskStreams, StreamOffers
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError


class Planning:
    """Planning shared by submission and explanation. Every method raises :class:`SbonError` for a request that it refuses."""

    def __init__(
        self,
        context: Context,
        catalogue: Catalogue,
        measurements: MeasurementStore,
        engine: Engine,
        placement: PlacementSettings,
        strategies: Strategies,
        adapt: Adapt,
        durability: Durability,
    ) -> None:
        """Create it; ``adapt`` and ``durability`` are those of queries that name none."""
        self._context, self._catalogue, self._measurements = context, catalogue, measurements
        self._engine, self._placement, self._strategies = engine, placement, strategies
        self._adapt, self._durability = adapt, durability

    @property
    def engine_runs(self) -> bool:
        return self._engine.status == "running"

    def consumer(self, wished: str) -> str:
        """Return the node that the rows go to, by default this node."""
        consumer = wished or self._context.name
        self._check_alive(consumer, "consumer")
        return consumer

    def check_new(self, stream: str) -> None:
        """Raise ``stream-exists`` if a stream or view has that name."""
        self._catalogue.check_new(stream)

    def adaptation(self, spec: QuerySpec) -> Adapt:
        """Return how the query will be adapted."""
        return adapted(spec.adapt or self._adapt, spec.strategy)

    def durability(self, spec: QuerySpec) -> Durability:
        """Return where the state of the query's operators will be kept."""
        return spec.durability or self._durability

    async def plan(self, spec: QuerySpec, query: str, times: StepTimes | None = None, *, without: str = "") -> Plan:
        """Plan the query by operators of its own; as :meth:`propose`."""
        return (await self.propose(spec, query, times, without=without)).without_alternatives()

    async def reads(self, sql: str, name: str) -> bool:
        """Return whether the text of a view reads the stream or view of that name: whether it is refused otherwise without it."""
        return await self._refusal(sql, without=name) != await self._refusal(sql, without="")

    async def _refusal(self, sql: str, *, without: str) -> tuple[str, str, str] | None:
        """Return code, message and place of the error by which the text cannot be planned; None if it can."""
        request = PlanRequest(text=sql, catalog=self._streams(without=without), query="q")
        try:
            await self._context.planner.plan(request, _unanalysed, nothing_measured)
        except SbonError as error:
            return error.code, error.message, error.where
        return None

    def _streams(self, *, without: str) -> dict[str, CatalogEntry]:
        return {name: entry for name, entry in self._catalogue.entries.items() if name != without}

    async def propose(
        self,
        spec: QuerySpec,
        query: str,
        times: StepTimes | None = None,
        offers: tuple[RunningComputation, ...] = (),
        *,
        without: str = "",
    ) -> ProposedPlan:
        """Plan the query with remembered measurements of equal sub-plans.

        Operator needs respect the requested throughput. ``times`` takes the times of planning and of the engine's analysis.
        ``offers`` are running operators from which the plan's alternatives are made. The query cannot read the stream or view
        ``without``.
        Raises :class:`SbonError` if the node of a source is not alive.
        """
        times = StepTimes(self._context.clock) if times is None else times
        request = PlanRequest(
            text=spec.sql,
            catalog=self._streams(without=without),
            query=query,
            decompose=spec.decompose,
            join_window_ms=spec.join_window_ms,
            on_error=spec.on_error,
            state_provider=spec.state_provider,
            offers=offers if spec.begin != "now" else (),
        )
        analyse: Analyse = self._engine.analyse
        if spec.on_error != "fail":
            analyse = partial(self._engine.analyse, on_error=spec.on_error)

        async def analysed(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
            with times.step("analyse"):
                return await analyse(fragment, inputs)

        with times.step("plan"):
            plan = await self._context.planner.plan(request, analysed, self._measurements.measured)
            if spec.begin == "now":
                since_ms, starts = await beginning_now(self._context, self._catalogue, plan)
                request = replace(request, since_ms=since_ms, offers=offers)
                plan = await self._context.planner.plan(request, analysed, self._measurements.measured)
                plan = replace(plan, since_ms=since_ms, starts=dict(starts))
        for planned in plan.sources:
            self._check_alive(planned.source.node, f"source {planned.source.name!r} of {planned.source.stream}")
        return with_capacity_to_send(plan, spec.min_throughput_bytes_s)

    async def place(
        self,
        plan: Plan,
        goal: Goal,
        consumer: str,
        refused: Mapping[str, frozenset[str]] | None = None,
        *,
        adapt: Adapt = OFF,
        sink_follows: bool = False,
        instead: Mapping[str, Strategy] = MappingProxyType({}),
    ) -> Placement:
        """Place the plan within the goal's bounds; exclude the nodes ``refused`` for each operator.

        ``adapt`` is how the query will be adapted. With ``sink_follows`` the sink goes to the node of the operator that feeds it,
        whatever ``consumer`` is. Strategies ``instead`` of those of their names, also for ``auto``, may reserve what they choose.
        """
        problem = problem_of(plan, consumer, refused, goal, adapt, sink_follows=sink_follows)
        strategy = self._strategies.named(goal.strategy, instead)
        return await place(problem, LiveNetworkView(self._context), self._placement, strategy)

    def _check_alive(self, node: str, what: str) -> None:
        if not self._context.presence.away(node):
            return
        members = self._context.membership
        member = members.get(node)
        if member is None:
            raise unknown_node(node, (self._context.name, *members.alive()), what)
        raise SbonError("node-away", f"the node {node!r} is {member.state}", where=what, hint="wait for it, or choose another")


async def _unanalysed(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
    """Refuse: all streams of the text are known by now."""
    raise SbonError("engine-failed", "no engine is asked", where=fragment)


# -- Where a query from now on begins: after all that its sources have when they are asked ----------------------------

RESULT = "query"
"""The connector of results of queries, whose watermark says nothing of the rows that they have had."""


class Beginning(NamedTuple):
    """The earliest event time that counts, None for any, and the last frame of each source, by id, that is not read."""

    since_ms: int | None
    starts: Mapping[str, int]


async def beginning_now(context: Context, catalogue: Catalogue, plan: Plan) -> Beginning:
    """Ask the nodes of the plan's sources for their newest frames; raise :class:`SbonError` if one does not answer."""
    offers = await asyncio.gather(*(_ask(context, planned) for planned in plan.sources))
    times, starts = list[int](), dict[str, int]()
    for planned, offer in zip(plan.sources, offers, strict=True):
        source = planned.source
        if offer.watermark_ms is not None:
            times.append(offer.watermark_ms + catalogue.entry(source.stream).declaration.delay_ms)
        if offer.greatest_ms is not None:
            times.append(offer.greatest_ms)
        if source.connector != RESULT:
            starts[source.id] = max(0, offer.latest - offer.ended)
    if not times and any(offer.ended for offer in offers):
        times = [LAST_MS]
    return Beginning(min(max(times) + 1, LAST_MS) if times else None, starts)


async def _ask(context: Context, planned: PlannedSource) -> StreamOffer:
    source = planned.source
    answer = await context.ask(source.node, AskStreams(streams=(source.id,)), StreamOffers)
    offers: list[StreamOffer] = [decode_record(value, StreamOffer) for value in answer.offers]
    found = next((offer for offer in offers if offer.stream == source.id), None)
    if found is None:
        reason = f"{source.node} does not run {source.stream}/{source.name} yet"
        raise SbonError("source-starting", reason, where="begin", hint="try again in a moment")
    return found


# -- Times of the steps of a submission -------------------------------------------------------------------------------


class StepTimes:
    """Adds up the seconds of named steps. A step inside another counts for itself only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the body. Bodies nest, but do not run side by side."""
        began_s = self._clock.now()
        self._inside.append(0.0)
        try:
            yield
        finally:
            took_s = self._clock.now() - began_s
            self._seconds[name] += took_s - self._inside.pop()
            if self._inside:
                self._inside[-1] += took_s

    def seconds(self) -> dict[str, float]:
        return dict(self._seconds)
