"""From a user's SQL to a plan: read, pushed down, cut into stages, each an operator over the streams of those below it.

Where an aggregate can be divided into partial ones, both ways are planned, and the one whose links carry less is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sbon_node.engine.interface import Schema
from sbon_node.errors import SbonError
from sbon_node.query.assembly import Analyse, Assembly, common_schema
from sbon_node.query.catalog import CatalogEntry
from sbon_node.query.decompose import Division, arguments, candidates, division
from sbon_node.query.event_time import lags_ms
from sbon_node.query.fragments import fragment_of
from sbon_node.query.join_window import check_join_window, with_join_window
from sbon_node.query.literals import check_literals
from sbon_node.query.logical import Scan, Select, Union
from sbon_node.query.measured import Measured, Recall, nothing_measured
from sbon_node.query.plan import Decompose, Plan
from sbon_node.query.pushdown import push_down
from sbon_node.query.reader import read_query
from sbon_node.query.settings import QuerySettings
from sbon_node.query.stages import Stage, cut, read


async def plan_query(
    text: str,
    catalog: Mapping[str, CatalogEntry],
    query_id: str,
    analyse: Analyse,
    settings: QuerySettings | None = None,
    recall: Recall = nothing_measured,
    decompose: Decompose = "auto",
    join_window_ms: int | None = None,
) -> Plan:
    """Plans ``text`` over the streams of ``catalog``; operators are named ``<query_id>.b0``, ``.o1`` and so on. Rates are those
    that ``recall`` knows, else estimates. Joins without a bound in time are given one of ``join_window_ms``.

    Raises :class:`SbonError` with line, column, the offending text and a hint, for all that cannot run on streams.
    """
    settings = settings or QuerySettings()
    check_join_window(join_window_ms)
    relation = read_query(text, catalog, settings)
    check_literals(text, relation)
    query = push_down(with_join_window(relation, join_window_ms) if join_window_ms is not None else relation)
    cut(query, text)  # what cannot run is refused before an engine is started
    planning = _Planning(text, query, query_id, _remembering(analyse), settings, _recalling(recall))
    divisions = await planning.divisions()
    plan = await planning.plan(divisions, ())
    chosen: tuple[Division, ...] = ()
    for one in divisions if decompose != "never" else ():
        divided = await planning.plan(divisions, (*chosen, one))
        worth = one.exact and divided.carried_bytes_s < settings.decompose_below * plan.carried_bytes_s
        if worth or decompose == "always":
            plan, chosen = divided, (*chosen, one)
    return plan


def _remembering(analyse: Analyse) -> Analyse:
    """Asks about each fragment once."""
    known: dict[tuple[str, tuple[Schema, ...]], Schema] = {}

    async def remembered(fragment: str, schemas: tuple[Schema, ...]) -> Schema:
        if (fragment, schemas) not in known:
            known[fragment, schemas] = await analyse(fragment, schemas)
        return known[fragment, schemas]

    return remembered


def _recalling(recall: Recall) -> Recall:
    """Asks about each signature once, so that plans that are compared rest on the same answers."""
    asked: set[str] = set()
    known = Measured()

    async def recalled(sources: Mapping[str, str], signatures: Sequence[str]) -> Measured:
        nonlocal known
        new = [signature for signature in signatures if signature not in asked]
        asked.update(new)
        if new:
            more = await recall(sources, new)
            known = Measured(operators={**known.operators, **more.operators}, sources={**more.sources, **known.sources})
        return known

    return recalled


@dataclass(frozen=True, slots=True)
class _Planning:
    """One query, which may be cut in several ways."""

    text: str
    query: Select | Union
    id: str
    analyse: Analyse
    settings: QuerySettings
    recall: Recall

    async def divisions(self) -> list[Division]:
        """The aggregates that can be divided, by the types that the engine finds their arguments to have."""
        found = []
        for candidate in candidates(self.query):
            asked, names = arguments(candidate)
            assert isinstance(asked.child, Scan)
            types: Mapping[str, str] = {}
            if names:
                try:
                    schema = await self.analyse(fragment_of(read(asked)), (asked.child.entry.declaration.schema,))
                except SbonError:
                    continue  # refused, with the text it is part of, when that is planned
                types = {name: one.type for name, one in zip(names, schema, strict=True)}
            if (divided := division(candidate, types)) is not None:
                found.append(divided)
        return found

    async def plan(self, divisions: Sequence[Division], divided: Sequence[Division]) -> Plan:
        """The plan in which these are divided and the others of ``divisions`` are not."""

        def instead(select: Select) -> Select:
            of = next((one for one in divisions if one.select == select), None)
            return select if of is None else of.parts if of in divided else of.whole

        stages = cut(self.query, self.text, instead)
        assembly = Assembly(self.text, self.id, self.analyse, self.settings)
        results = [stream for stage in stages for stream in await assembly.streams(stage)]
        schema = common_schema(self.text, results)
        sources, operators = await assembly.rated(self.recall)
        return Plan(
            text=self.text,
            sources=sources,
            operators=operators,
            outputs=tuple(one.id for one in results),
            schema=schema,
            event_time=_event_time(stages),
        )


def _event_time(stages: Sequence[Stage]) -> str:
    """The output of all stages that follows the watermark most closely, or nothing."""
    lags = [lags_ms(stage.relation) for stage in stages]
    common = [name for name in lags[0] if all(name in of for of in lags)]
    return min(common, key=lambda name: max(of[name] for of in lags), default="")
