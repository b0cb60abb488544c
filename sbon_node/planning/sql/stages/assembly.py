"""Assembly of stages into operators: names, analyses, and rates from the sources on.

A stage that reads a declared stream becomes an operator for each of its physical sources, as in NebulaStream (logical source
expansion); its readers take all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
from sqlglot import exp

from sbon_node.model.measurements import Measured, Measurement, Recall
from sbon_node.planning.sql.checks.allowlist import check_fragment
from sbon_node.planning.sql.relations.logical import (
    Input,
    Join,
    Output,
    Relation,
    Select,
    children_of,
    columns_read,
    has_aggregate,
    is_partial,
)
from sbon_node.planning.sql.rewrite.event_time import bounds, has_equal_times, lags_ms, width_ms
from sbon_node.planning.sql.sampling.rows import SampledRows, together
from sbon_node.planning.sql.sampling.stage import SampledStage, sampled_stage
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.stages.cut import Feed, Stage
from sbon_node.planning.sql.stages.estimate import Estimate, ReadSource, StreamEstimate, estimated, estimates_of_sources
from sbon_node.planning.sql.stages.fragments import check_alike, check_outputs, fragment_of, in_the_text
from sbon_node.planning.sql.stages.signature import signature
from sbon_protocol.api.catalogue import CatalogEntry
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import MAX_SHIFT_MS, OnError, PlannedInput, TimeBuckets
from sbon_protocol.api.plan import PlannedOperator, PlannedSource, Rate
from sbon_protocol.errors import SbonError

Analyse = Callable[[str, tuple[Schema, ...]], Awaitable[Schema]]
"""Maps a fragment and its views' schemas to its output's schema; raises :class:`SbonError`."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of a stage or a source; ``lags_ms`` are those of its columns that follow its watermark, by position."""

    id: str
    schema: Schema
    signature: str
    path: Path
    lags_ms: Mapping[int, int]
    outputs: tuple[Output, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """An operator, the relation that it computes, and the streams of each view."""

    operator: PlannedOperator
    relation: Select
    views: tuple[tuple[Stream, ...], ...]

    def estimated(
        self,
        streams: Mapping[str, StreamEstimate],
        sampled: SampledStage,
        measured: Measurement | None = None,
        buckets: Sequence[TimeBuckets] = (),
    ) -> Estimate:
        views = self._of_views(streams)
        return estimated(self.relation, self.schemas, views, self.operator.schema, measured, buckets, sampled)

    def sampled(self, rows: Mapping[str, SampledRows | None]) -> SampledStage:
        """Return what sampled rows of the streams tell of the stage."""
        return sampled_stage(self.relation, [together([rows.get(stream.id) for stream in view]) for view in self.views])

    def buckets(self, streams: Mapping[str, StreamEstimate]) -> tuple[TimeBuckets, ...]:
        return time_buckets(self.relation, self.schemas, [view.rate for view in self._of_views(streams)])

    @property
    def schemas(self) -> list[Schema]:
        return [view[0].schema for view in self.views]

    def _of_views(self, streams: Mapping[str, StreamEstimate]) -> list[StreamEstimate]:
        return [StreamEstimate.of_all([streams[stream.id] for stream in view]) for view in self.views]


MOST_STATE_MB = 1e12
"""Upper limit of an estimate of state."""


class Assembly:
    """Operators in the order of the data flow; each stage is planned once."""

    def __init__(self, text: str, query_id: str, analyse: Analyse, settings: QuerySettings, on_error: OnError = "fail") -> None:
        self._text, self._on_error = text, on_error
        self._query, self._analyse, self._settings = query_id, analyse, settings
        self._planned: dict[Stage, tuple[Stream, ...]] = {}
        self._sources: dict[str, ReadSource] = {}
        self._drafts: list[PlannedStage] = []
        """Stages whose operators have no rates yet."""
        self._unpaced: set[str] = set()
        """Streams all of whose rows come from sources without a pace."""
        self._fast: set[str] = set()
        """Streams with as many rows as are taken: those of sources without a pace, until they are aggregated."""

    async def streams(self, stage: Stage) -> tuple[Stream, ...]:
        known = self._planned.get(stage)
        if known is None:
            known = self._planned[stage] = await self._operators(stage)
        return known

    async def _operators(self, stage: Stage) -> tuple[Stream, ...]:
        fed = [[(feed, await self._feeding(feed)) for feed in view.feeds] for view in stage.views]
        schemas = [common_schema(self._text, [stream for _, streams in feeds for stream in streams]) for feeds in fed]
        try:
            fragment = fragment_of(stage.relation)
            check_fragment(fragment, len(schemas), self._settings)
            schema = await self._analyse(fragment, tuple(schemas))
        except SbonError as error:
            raise in_the_text(error, self._text, stage.relation) from error
        check_outputs(self._text, schema, stage.relation.outputs)
        if stage.scan is None:
            return (self._operator(stage, fragment, schema, fed),)
        ((feed, sources),) = fed[0]
        return tuple(self._operator(stage, fragment, schema, [[(feed, (source,))]]) for source in sources)

    async def _feeding(self, feed: Feed) -> tuple[Stream, ...]:
        return await self.streams(feed.origin) if isinstance(feed.origin, Stage) else self._scanned(feed.origin.entry)

    def _scanned(self, entry: CatalogEntry) -> tuple[Stream, ...]:
        schema = entry.declaration.schema
        time = [field.name for field in schema].index(entry.declaration.event_time)
        streams = []
        for source in sorted(entry.sources, key=lambda source: source.name):
            self._sources[source.id] = ReadSource(source, schema, entry.declaration.event_time)
            path = Path.of_source(source.id, entry.declaration.delay_ms)
            streams.append(Stream(source.id, schema, source.id, path, {time: 0}))
        return tuple(streams)

    def _operator(
        self, stage: Stage, fragment: str, schema: Schema, fed: Sequence[Sequence[tuple[Feed, Sequence[Stream]]]]
    ) -> Stream:
        feeding = [
            (number, view, feed, stream)
            for number, (view, feeds) in enumerate(zip(stage.views, fed, strict=True))
            for feed, streams in feeds
            for stream in streams
        ]
        groups_per_batch = self._groups_per_batch(stage)
        paths = [stream.path.less(feed.lag_ms) for _, _, feed, stream in feeding]
        slack_ms = int(self._settings.ahead_slack_s * 1000)
        inputs = tuple(
            PlannedInput(
                stream=stream.id,
                schema=stream.schema,
                view=number,
                event_time="" if groups_per_batch else view.event_time,
                lag_ms=feed.lag_ms,
                ahead_ms=ahead_ms(paths, position, slack_ms),
                shared=shares(paths, position),
            )
            for position, (number, view, feed, stream) in enumerate(feeding)
        )
        views = tuple(tuple(stream for _, streams in feeds for stream in streams) for feeds in fed)
        name = f"{self._query}.{'b' if stage.scan else 'o'}{len(self._drafts)}"
        stream = Stream(
            name,
            schema,
            signature(stage.relation, [[stream.signature for stream in streams] for streams in views], self._on_error),
            Path.through(name, paths, stage.relation),
            by_position(lags_ms(stage.relation), schema),
            stage.relation.outputs,
        )
        operator = PlannedOperator(
            id=name,
            fragment=fragment,
            inputs=inputs,
            schema=schema,
            signature=stream.signature,
            on_error=self._on_error,
            groups_per_batch=groups_per_batch,
            rate=Rate(rows_s=0.0, bytes_s=0.0),
        )
        self._drafts.append(PlannedStage(operator, stage.relation, views))
        return stream

    def _groups_per_batch(self, stage: Stage) -> bool:
        """Return whether a stage's partial aggregate keeps no state: where all its sources give large batches.

        The merged result is the same. From small batches as many rows would come out as go in.
        """
        if stage.scan is None or not is_partial(stage.relation) or self._on_error != "fail":
            return False
        return all(source.unpaced for source in stage.scan.entry.sources)

    async def rated(self, recall: Recall) -> tuple[tuple[PlannedSource, ...], tuple[PlannedOperator, ...]]:
        """Return all sources and operators with rates, from the sources on. Rates are measured where known, else estimated."""
        nodes = {name: read.source.node for name, read in self._sources.items()}
        known = await recall(nodes, [draft.operator.signature for draft in self._drafts], self._sampled_columns())
        estimates = estimates_of_sources(self._sources, {}, known.samples)
        rates = estimates_of_sources(self._sources, known.sources, known.samples)
        sources = []
        for name, read in self._sources.items():
            if read.source.unpaced:
                self._unpaced.add(name)
                self._fast.add(name)
            sources.append(
                PlannedSource(source=read.source, schema=read.schema, rate=rates[name].rate, estimate=estimates[name].rate)
            )
        rows = {
            name: SampledRows.of_source(known.samples[name], read.schema, rates[name].rate.rows_s)
            for name, read in self._sources.items()
            if name in known.samples
        }
        return tuple(sources), tuple(self._rated(draft, known, estimates, rates, rows) for draft in self._drafts)

    def stages(self, operators: Sequence[PlannedOperator]) -> list[PlannedStage]:
        """Return all stages by the ``operators`` that were made of them, those first that others read."""
        return [replace(draft, operator=one) for one, draft in zip(operators, self._drafts, strict=True)]

    def _sampled_columns(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of each source by which its rows are estimated: its event time, and those that the query reads."""
        columns = {name: {read.event_time} for name, read in self._sources.items()}
        for draft in self._drafts:
            for view, streams in enumerate(draft.views):
                for stream in streams:
                    if stream.id in columns:
                        columns[stream.id] |= columns_read(draft.relation, view)
        return {name: tuple(sorted(names)) for name, names in columns.items()}

    def _rated(
        self,
        draft: PlannedStage,
        known: Measured,
        estimates: dict[str, StreamEstimate],
        rates: dict[str, StreamEstimate],
        rows: dict[str, SampledRows | None],
    ) -> PlannedOperator:
        operator, measured = draft.operator, known.operators.get(draft.operator.signature)
        if measured is not None and not measured.is_usable(has_state=operator.has_state):
            measured = None
        sampled = draft.sampled(rows)
        rows[operator.id] = sampled.rows
        estimates[operator.id] = draft.estimated(estimates, sampled).stream
        buckets = () if self._on_error == "skip" else draft.buckets(rates)  # a copied row would be skipped twice
        estimate = draft.estimated(rates, sampled, measured, buckets)
        rates[operator.id] = estimate.stream
        streams = [spec.stream for spec in operator.inputs]
        is_unpaced, is_fast = self._unpaced.issuperset(streams), not self._fast.isdisjoint(streams)
        if is_unpaced:
            self._unpaced.add(operator.id)
        if is_fast and not has_aggregate(draft.relation):
            self._fast.add(operator.id)
        state_mb = round(min(estimate.state_mb, MOST_STATE_MB), 3) if operator.has_state else 0.0
        partitioned = is_fast or sum(rates[stream].rate.rows_s for stream in streams) >= self._settings.partitioned_rows_s
        return msgspec.structs.replace(
            operator,
            rate=estimate.rate,
            needs=estimate.needs,
            state_mb=state_mb,
            state_provider=self._settings.provider_for(state_mb) if operator.has_state else "hdfs",
            partitioned=partitioned,
            estimate=estimates[operator.id].rate,
            earlier_ratio=measured.ratio if measured is not None else None,
            buckets=buckets,
            blocks=partitioned and bool(buckets),
            unpaced=is_unpaced,
        )


def by_position(lags: Mapping[str, int], schema: Schema) -> dict[int, int]:
    """Return lags of columns by their positions."""
    return {position: lags[field.name] for position, field in enumerate(schema) if field.name in lags}


def common_schema(text: str, streams: Sequence[Stream]) -> Schema:
    """Return the common schema of all parts of a view or of the result. Raises ``bad-union``."""
    first = streams[0]
    for other in streams[1:]:
        if other.schema != first.schema:
            check_alike(text, first.schema, first.outputs, other.schema, other.outputs)
    return first.schema


# -- Time buckets of interval joins: only rows of equal buckets are compared (docs/design.md, section 6) --------------

# Spark compares a row of a stream join with every kept row of its key. With a bound ``least <= left - right <= most`` the
# possible partners of a row lie in one or two buckets of at least ``most - least``. The bound itself stays in the condition,
# and so no pair comes twice.

WIDTH = 2
"""Width of a bucket, in lengths of the interval: half of the copied rows then reach into a second bucket."""
LEAST_WIDTH_MS = 100
"""Shorter buckets have hardly any rows of a key, and each has a record of its own in Spark's state."""


def time_buckets(relation: Relation, schemas: Sequence[Schema], rates: Sequence[Rate]) -> tuple[TimeBuckets, ...]:
    """Return the buckets of the stage's joins, by the schemas and rates of its views.

    Buckets need a bound from below and from above, and two sides that are views. An inner join copies the rows of the side with
    fewer rows. An outer join copies the side that it does not preserve, since a copy without a partner would be a row of the
    result. A full join has no such side.
    """
    return tuple(buckets for join in _joins(relation) if (buckets := _buckets(join, schemas, rates)) is not None)


def _joins(relation: Relation) -> Iterator[Join]:
    for child in children_of(relation):
        yield from _joins(child)
    if isinstance(relation, Join):
        yield relation


def _buckets(join: Join, schemas: Sequence[Schema], rates: Sequence[Rate]) -> TimeBuckets | None:
    left, right = join.left, join.right
    if not isinstance(left, Input) or not isinstance(right, Input) or join.kind == "full":
        return None
    closed = [bound for bound in bounds(join) if bound.closed and bound.most_ms > bound.least_ms]
    best = min(closed, key=lambda bound: bound.most_ms - bound.least_ms, default=None)
    if best is None or _is_finer(join) or has_equal_times(join):
        return None
    if any(_type(schemas[view], name) != "timestamp" for view, name in ((left.view, best.left), (right.view, best.right))):
        return None
    least_ms, most_ms = int(best.least_ms), int(best.most_ms)
    if max(-least_ms, most_ms) > MAX_SHIFT_MS:
        return None
    width_ms = max(LEAST_WIDTH_MS, WIDTH * (most_ms - least_ms))
    fewer_left = rates[left.view].rows_s < rates[right.view].rows_s
    kept, copied = (left.view, best.left), (right.view, best.right)
    if join.kind == "right" or (join.kind == "inner" and fewer_left):
        kept, copied, least_ms, most_ms = copied, kept, -most_ms, -least_ms
    (view, time), (copied_view, copied_time) = kept, copied
    return TimeBuckets(
        view=view,
        time=time,
        copied_view=copied_view,
        copied_time=copied_time,
        from_ms=least_ms,
        upto_ms=most_ms,
        width_ms=width_ms,
    )


def _is_finer(join: Join) -> bool:
    """Return whether a bound has microseconds, which :func:`bounds` rounds."""
    intervals = [interval for condition in join.conditions for interval in condition.find_all(exp.Interval)]
    return any((unit := interval.args.get("unit")) is not None and "MICRO" in unit.name.upper() for interval in intervals)


def _type(schema: Schema, name: str) -> str:
    return next((column.type for column in schema if column.name == name), "")


# -- Limits on how far an input may run ahead of its siblings (docs/design.md, section 7) ------------------------------


@dataclass(frozen=True, slots=True)
class Path:
    """Streams on the path of a stream, itself included, and its delay.

    The delay is how far its event time may be behind its sources' newest event time, in milliseconds.
    """

    streams: frozenset[str]
    behind_ms: int

    @staticmethod
    def of_source(stream: str, delay_ms: int) -> Path:
        return Path(frozenset({stream}), delay_ms)

    @staticmethod
    def through(operator: str, inputs: Sequence[Path], relation: Relation) -> Path:
        """Return the path of the output of an operator that computes ``relation`` of its inputs."""
        behind_ms = max(path.behind_ms for path in inputs) + width_ms(relation)
        return Path(frozenset({operator}).union(*(path.streams for path in inputs)), behind_ms)

    def less(self, lag_ms: int) -> Path:
        """Return the path for a column that follows with that lag."""
        return replace(self, behind_ms=self.behind_ms + lag_ms)


def ahead_ms(inputs: Sequence[Path], number: int, slack_ms: int) -> int | None:
    """Return how far an input may be ahead of the operator's other inputs; None without others.

    The limit is at least the siblings' inherent delay: the delays of their sources, the windows and join widths on their path,
    and the lags of their event times. A lower limit would hold back rows for which a sibling with the same origin waits.
    """
    siblings = [path.behind_ms for position, path in enumerate(inputs) if position != number]
    return max(siblings) + slack_ms if siblings else None


def shares(inputs: Sequence[Path], number: int) -> bool:
    """Return whether another input shares a stream with this input. Holding this input back may then starve the other."""
    own = inputs[number].streams
    return any(own & path.streams for position, path in enumerate(inputs) if position != number)
