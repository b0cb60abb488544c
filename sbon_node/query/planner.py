"""From a user's SQL to a plan: read, pushed down, cut into stages, each an operator over the streams of those below it.

A stage that reads a declared stream becomes one operator for each of its physical sources, as NebulaStream does (logical source
expansion); whoever reads it takes every one of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from sbon_node.engine.interface import Schema
from sbon_node.errors import SbonError
from sbon_node.query.allowlist import check_fragment
from sbon_node.query.catalog import CatalogEntry
from sbon_node.query.estimate import estimated
from sbon_node.query.event_time import lags_ms
from sbon_node.query.fragments import fragment_of
from sbon_node.query.plan import Plan, PlannedInput, PlannedOperator, PlannedSource, Rate
from sbon_node.query.pushdown import push_down
from sbon_node.query.reader import no_sources, read_query
from sbon_node.query.schema import check_schema
from sbon_node.query.settings import QuerySettings
from sbon_node.query.signature import signature
from sbon_node.query.stages import Feed, Stage, cut

Analyse = Callable[[str, tuple[Schema, ...]], Awaitable[Schema]]
"""Fragment and schemas of its views to the schema of its output; raises :class:`SbonError`."""


async def plan_query(
    text: str,
    catalog: Mapping[str, CatalogEntry],
    query_id: str,
    analyse: Analyse,
    settings: QuerySettings | None = None,
) -> Plan:
    """Plans ``text`` over the streams of ``catalog``; operators are named ``<query_id>.b0``, ``.b1`` and so on.

    Raises :class:`SbonError` with line, column, the offending text and a hint, for all that cannot run on streams.
    """
    settings = settings or QuerySettings()
    stages = cut(push_down(read_query(text, catalog, settings)), text)
    planner = _Planner(query_id, analyse, settings)
    results = [stream for stage in stages for stream in await planner.streams(stage)]
    schema = _common_schema([one.schema for one in results])
    _check_output(schema)
    return Plan(
        text=text,
        sources=tuple(planner.sources.values()),
        operators=tuple(planner.operators),
        outputs=tuple(one.id for one in results),
        schema=schema,
        event_time=_event_time(stages),
    )


@dataclass(frozen=True, slots=True)
class _Stream:
    """What a stage, or a source, hands on."""

    id: str
    schema: Schema
    rate: Rate
    signature: str


class _Planner:
    """Operators in the order in which they are fed; each stage is planned once."""

    def __init__(self, query_id: str, analyse: Analyse, settings: QuerySettings) -> None:
        self._query, self._analyse, self._settings = query_id, analyse, settings
        self._planned: dict[Stage, tuple[_Stream, ...]] = {}
        self.sources: dict[str, PlannedSource] = {}
        self.operators: list[PlannedOperator] = []

    async def streams(self, stage: Stage) -> tuple[_Stream, ...]:
        known = self._planned.get(stage)
        if known is None:
            known = self._planned[stage] = await self._operators(stage)
        return known

    async def _operators(self, stage: Stage) -> tuple[_Stream, ...]:
        fed = [[(feed, await self._feeding(feed)) for feed in view.feeds] for view in stage.views]
        schemas = [_common_schema([stream.schema for _, streams in feeds for stream in streams]) for feeds in fed]
        fragment = fragment_of(stage.relation)
        check_fragment(fragment, len(schemas))
        schema = await self._analyse(fragment, tuple(schemas))
        _check_output(schema)
        if stage.scan is None:
            return (self._operator(stage, fragment, schema, fed),)
        ((feed, sources),) = fed[0]
        return tuple(self._operator(stage, fragment, schema, [[(feed, (source,))]]) for source in sources)

    async def _feeding(self, feed: Feed) -> tuple[_Stream, ...]:
        return await self.streams(feed.origin) if isinstance(feed.origin, Stage) else self._scanned(feed.origin.entry)

    def _scanned(self, entry: CatalogEntry) -> tuple[_Stream, ...]:
        if not entry.sources:
            raise no_sources(entry)
        schema = entry.declaration.schema
        streams = []
        for source in sorted(entry.sources, key=lambda one: one.name):
            rate = Rate(rows_s=source.rows_s, bytes_s=source.rows_s * source.row_bytes)
            self.sources[source.id] = PlannedSource(source=source, schema=schema, rate=rate)
            streams.append(_Stream(source.id, schema, rate, source.id))
        return tuple(streams)

    def _operator(
        self, stage: Stage, fragment: str, schema: Schema, fed: Sequence[Sequence[tuple[Feed, Sequence[_Stream]]]]
    ) -> _Stream:
        inputs = tuple(
            PlannedInput(stream=stream.id, schema=stream.schema, view=number, event_time=view.event_time, lag_ms=feed.lag_ms)
            for number, (view, feeds) in enumerate(zip(stage.views, fed, strict=True))
            for feed, streams in feeds
            for stream in streams
        )
        by_view = [[stream for _, streams in feeds for stream in streams] for feeds in fed]
        rates = [Rate.of_all(stream.rate for stream in streams) for streams in by_view]
        estimate = estimated(stage.relation, [streams[0].schema for streams in by_view], rates, schema)
        operator = PlannedOperator(
            id=f"{self._query}.{'b' if stage.scan else 'o'}{len(self.operators)}",
            fragment=fragment,
            inputs=inputs,
            schema=schema,
            rate=estimate.rate,
            needs=estimate.needs,
            signature=signature(stage.relation, [[stream.signature for stream in streams] for streams in by_view]),
            partitioned=sum(rate.rows_s for rate in rates) >= self._settings.partitioned_rows_s,
        )
        self.operators.append(operator)
        return _Stream(operator.id, schema, operator.rate, operator.signature)


def _common_schema(schemas: Sequence[Schema]) -> Schema:
    """The schema that all parts of a view or of the result have; raises ``bad-union``."""
    for other in schemas[1:]:
        for one, two in zip(schemas[0], other, strict=True):
            if one.type != two.type:
                hint = f"CAST one of them: CAST({one.name} AS {one.type})"
                raise SbonError("bad-union", f"{one.type} in one part, {two.type} in another", where=one.name, hint=hint)
    return schemas[0]


def _check_output(schema: Schema) -> None:
    """What frames and sinks can carry: arrays and intervals are for use inside an expression."""
    try:
        check_schema(schema)
    except SbonError as error:
        hint = "cast it, or take an element of it; " + error.hint if error.code == "bad-type" else error.hint
        raise SbonError("unsupported-output", error.message, where=error.where, hint=hint) from error


def _event_time(stages: Sequence[Stage]) -> str:
    """The output of all stages that follows the watermark most closely, or nothing."""
    lags = [lags_ms(stage.relation) for stage in stages]
    common = [name for name in lags[0] if all(name in of for of in lags)]
    return min(common, key=lambda name: max(of[name] for of in lags), default="")
