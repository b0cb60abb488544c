"""Stages of two queries, of which one offers its operators to the other: what a planner and a host would exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sbon_node.model.running_computation import RunningComputation
from sbon_node.planning.sql.relations.logical import Scan
from sbon_node.planning.sql.relations.reader import read_query
from sbon_node.planning.sql.rewrite.event_time import lags_ms
from sbon_node.planning.sql.rewrite.pushdown import push_down
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.sharing.containment import Residual, SharedStream, SharedView, Wanted, read_offer, residual, through
from sbon_node.planning.sql.stages.cut import Stage, cut
from sbon_node.planning.sql.stages.fragments import fragment_of
from sbon_node.planning.sql.stages.signature import signature
from sbon_protocol.api.catalogue import CatalogEntry
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import Computation, OnError, PlannedInput

Schemas = Callable[[Stage], Schema]
"""The schema of a stage's output, from an engine."""


def stages_of(sql: str, catalog: Mapping[str, CatalogEntry]) -> list[Stage]:
    """All stages of a query, those that others read first."""
    found: list[Stage] = []

    def visit(stage: Stage) -> None:
        for view in stage.views:
            for feed in view.feeds:
                if isinstance(feed.origin, Stage):
                    visit(feed.origin)
        if stage not in found:
            found.append(stage)

    for stage in cut(push_down(read_query(sql, catalog, QuerySettings())), sql):
        visit(stage)
    return found


def signed(origin: Scan | Stage, on_error: OnError = "fail") -> str:
    if isinstance(origin, Scan):
        return origin.entry.declaration.name
    return signature(origin.relation, [[signed(f.origin, on_error) for f in view.feeds] for view in origin.views], on_error)


def schema_of(origin: Scan | Stage, schemas: Schemas) -> Schema:
    return origin.entry.declaration.schema if isinstance(origin, Scan) else schemas(origin)


def stream_of(origin: Scan | Stage) -> SharedStream:
    relation = origin if isinstance(origin, Scan) else origin.relation
    lags = lags_ms(relation)
    return SharedStream(signed(origin), {at: lags[name] for at, name in enumerate(relation.names) if name in lags})


def wanted_of(stage: Stage, schemas: Schemas, on_error: OnError = "fail") -> Wanted:
    views = [
        SharedView(tuple(stream_of(feed.origin) for feed in view.feeds), schema_of(view.feeds[0].origin, schemas))
        for view in stage.views
    ]
    return Wanted.of(stage.relation, views, on_error)


def offer_of(stage: Stage, schemas: Schemas, on_error: OnError = "fail") -> RunningComputation:
    """An operator of that stage, as its host describes it."""
    inputs = [
        (PlannedInput(stream="x", schema=schema_of(feed.origin, schemas), view=number, event_time=view.event_time,
                      lag_ms=feed.lag_ms), signed(feed.origin, on_error))
        for number, view in enumerate(stage.views)
        for feed in view.feeds
    ]  # fmt: skip
    computation = Computation(
        id="q.o",
        fragment=fragment_of(stage.relation),
        inputs=tuple(spec for spec, _ in inputs),
        schema=schemas(stage),
        on_error=on_error,
    )
    return RunningComputation(computation=computation, inputs=tuple(text for _, text in inputs))


@dataclass(frozen=True)
class Shared:
    """A stage and its residual over a stage of the other query."""

    stage: Stage
    residual: Residual
    offered: Stage


def shared(wanted: str, offered: str, catalog: Mapping[str, CatalogEntry], schemas: Schemas) -> list[Shared]:
    """Every way in which a stage of one query can be computed from the output of a stage of the other."""
    offers = [(other, read_offer(offer_of(other, schemas))) for other in stages_of(offered, catalog)]
    found: list[Shared] = []
    for stage in stages_of(wanted, catalog):
        for candidate in _ways(stage, found, schemas):
            for other, read in offers:
                one = residual(candidate, read) if read is not None else None
                if one is not None:
                    found.append(Shared(stage, one, other))
    return found


def _ways(stage: Stage, known: list[Shared], schemas: Schemas) -> Iterator[Wanted]:
    """The stage over its own inputs, and over the streams from which one or all of these can be computed."""
    plain = wanted_of(stage, schemas)
    yield plain
    of_views: dict[int, list[Residual]] = {}
    for number, view in enumerate(stage.views):
        residuals = [next((one.residual for one in known if one.stage is feed.origin), None) for feed in view.feeds]
        if None not in residuals:
            of_views[number] = [one for one in residuals if one is not None]
    for chosen in [{number: one} for number, one in of_views.items()] + ([of_views] if len(of_views) > 1 else []):
        deeper = through(plain, chosen)
        if deeper is not None:
            yield deeper
