"""Planner from a user's SQL to a plan: read, push down, cut into stages, make operators.

Each stage becomes an operator over the streams of the stages below it. If an aggregate can be decomposed into partial
aggregates, the planner makes both plans and keeps the one whose links carry less.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from sbon_node.model.measurements import Measured, Recall, nothing_measured
from sbon_node.model.running_computation import RunningComputation
from sbon_node.planning.sql.relations.added_bounds import check_join_window, with_join_window, with_since
from sbon_node.planning.sql.relations.literals import check_literals
from sbon_node.planning.sql.relations.logical import Scan, Select, Union
from sbon_node.planning.sql.relations.reader import read_query
from sbon_node.planning.sql.rewrite.decompose import Decomposition, arguments, candidates, decompose_aggregate
from sbon_node.planning.sql.rewrite.event_time import lags_ms
from sbon_node.planning.sql.rewrite.pushdown import push_down
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.sharing.containment import alternatives
from sbon_node.planning.sql.stages.assembly import Analyse, Assembly, PlannedStage, common_schema
from sbon_node.planning.sql.stages.cut import Stage, cut, read
from sbon_node.planning.sql.stages.fragments import fragment_of
from sbon_protocol.api.catalogue import CatalogEntry
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import OnError, StateChoice
from sbon_protocol.api.plan import Decompose, ProposedPlan
from sbon_protocol.errors import SbonError


async def plan_query(
    text: str,
    catalog: Mapping[str, CatalogEntry],
    query: str,
    analyse: Analyse,
    settings: QuerySettings | None = None,
    recall: Recall = nothing_measured,
    decompose: Decompose = "auto",
    join_window_ms: int | None = None,
    on_error: OnError = "fail",
    state_provider: StateChoice | None = None,
    since_ms: int | None = None,
    offers: Sequence[RunningComputation] = (),
) -> ProposedPlan:
    """Plan ``text`` over the streams of ``catalog``.

    The fields of :class:`~sbon_node.planning.process.messages.PlanRequest` have the names of these arguments.

    Operators are named ``<query>.b0``, ``.o1`` and so on. Rates come from ``recall``, else they are estimates. Joins without a
    time bound get ``join_window_ms``. ``on_error`` says how an expression treats a row for which it raises an error, and
    ``state_provider`` where operators keep their state, by default as the settings say. Rows with event times before ``since_ms``
    do not count. ``offers`` are running operators of other queries, from which the plan's ``alternatives`` are made.

    Raises :class:`SbonError` with line, column, the offending text and a hint, for queries that cannot run on streams.
    """
    settings = settings or QuerySettings()
    if state_provider is not None:
        settings = replace(settings, state_provider=state_provider)
    check_join_window(join_window_ms)
    relation = read_query(text, catalog, settings)
    check_literals(text, relation)
    if join_window_ms is not None:
        relation = with_join_window(relation, join_window_ms)
    pushed = push_down(relation if since_ms is None else with_since(relation, since_ms))
    cut(pushed, text)  # refuses invalid queries before an engine is started
    planning = _Planning(text, pushed, query, _remembering(analyse), settings, _recalling(recall), on_error)
    decompositions = await planning.decompositions()
    plan, stages = await planning.plan(decompositions, ())
    chosen: tuple[Decomposition, ...] = ()
    for candidate in decompositions if decompose != "never" else ():
        decomposed, its_stages = await planning.plan(decompositions, (*chosen, candidate))
        worth = candidate.exact and decomposed.carried_bytes_s < settings.decompose_below * plan.carried_bytes_s
        if worth or decompose == "always":
            plan, stages, chosen = decomposed, its_stages, (*chosen, candidate)
    return replace(plan, alternatives=await alternatives(stages, offers, planning.analyse, settings)) if offers else plan


def _remembering(analyse: Analyse) -> Analyse:
    """Analyse each fragment only once."""
    known: dict[tuple[str, tuple[Schema, ...]], Schema] = {}

    async def remembered(fragment: str, schemas: tuple[Schema, ...]) -> Schema:
        if (fragment, schemas) not in known:
            known[fragment, schemas] = await analyse(fragment, schemas)
        return known[fragment, schemas]

    return remembered


def _recalling(recall: Recall) -> Recall:
    """Recall each signature and each source's sample only once, so that compared plans use the same answers."""
    signatures_sent: set[str] = set()
    sampled: set[str] = set()
    known = Measured()

    async def recalled(sources: Mapping[str, str], signatures: Sequence[str], columns: Mapping[str, Sequence[str]]) -> Measured:
        nonlocal known
        new = [signature for signature in signatures if signature not in signatures_sent]
        signatures_sent.update(new)
        if new:
            unsampled = {source: names for source, names in columns.items() if source not in sampled}
            sampled.update(unsampled)
            more = await recall(sources, new, unsampled)
            known = Measured(
                operators={**known.operators, **more.operators},
                sources={**more.sources, **known.sources},
                samples={**more.samples, **known.samples},
            )
        return known

    return recalled


@dataclass(frozen=True, slots=True)
class _Planning:
    """A query that may be cut in several ways."""

    text: str
    query: Select | Union
    id: str
    analyse: Analyse
    settings: QuerySettings
    recall: Recall
    on_error: OnError

    async def decompositions(self) -> list[Decomposition]:
        """Return the aggregates that can be decomposed, given the argument types that the engine reports."""
        decompositions = []
        for candidate in candidates(self.query):
            inputs, names = arguments(candidate)
            assert isinstance(inputs.child, Scan)
            types: Mapping[str, str] = {}
            if names:
                try:
                    schema = await self.analyse(fragment_of(read(inputs)), (inputs.child.entry.declaration.schema,))
                except SbonError:
                    continue  # refused, with its text, when that stage is planned
                types = {name: field.type for name, field in zip(names, schema, strict=True)}
            decomposition = decompose_aggregate(candidate, types, exact_overflow=self.on_error != "fail")
            if decomposition is not None:
                decompositions.append(decomposition)
        return decompositions

    async def plan(
        self, decompositions: Sequence[Decomposition], applied: Sequence[Decomposition]
    ) -> tuple[ProposedPlan, list[PlannedStage]]:
        """Return the plan that applies ``applied`` and no others of ``decompositions``, and its stages."""

        def instead(select: Select) -> Select:
            of = next((candidate for candidate in decompositions if candidate.select == select), None)
            return select if of is None else of.decomposed if of in applied else of.undivided

        stages = cut(self.query, self.text, instead)
        assembly = Assembly(self.text, self.id, self.analyse, self.settings, self.on_error)
        results = [stream for stage in stages for stream in await assembly.streams(stage)]
        schema = common_schema(self.text, results)
        sources, operators = await assembly.rated(self.recall)
        plan = ProposedPlan(
            text=self.text,
            sources=sources,
            operators=operators,
            outputs=tuple(result.id for result in results),
            schema=schema,
            event_time=_event_time(stages),
        )
        return plan, assembly.stages(operators)


def _event_time(stages: Sequence[Stage]) -> str:
    """Return the output that follows the watermark of all stages most closely, or an empty name."""
    lags = [lags_ms(stage.relation) for stage in stages]
    common = [name for name in lags[0] if all(name in of for of in lags)]
    return min(common, key=lambda name: max(of[name] for of in lags), default="")
