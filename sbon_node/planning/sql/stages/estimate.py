"""Rates of sources, and estimates of a stage's output before measurements exist.

Estimates come from sampled rows (:mod:`sbon_node.planning.sql.sampling`) as far as these tell. Other selectivities are the
constants of Selinger et al., *Access path selection in a relational database management system* (SIGMOD 1979), table 1, for
columns without statistics: equality 1/10, comparison 1/3, BETWEEN 1/4, IN at most 1/2.

Rates of sources are measured, else declared or sampled, else how fast their nodes read them. A finite source without a pace is
read as fast as its subscribers take it. Its rate is its rows over the time that the sources of the query take together: so two
files keep the proportion of their rows, and windows come as fast as event time passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sbon_node.model.frames import MAX_ROW_BYTES
from sbon_node.model.measurements import Measurement, SourcePace
from sbon_node.model.samples import StreamSample
from sbon_node.planning.sql.relations.logical import Aggregate, Input, Join, JoinKind, Relation, Select
from sbon_node.planning.sql.rewrite.event_time import bounds, has_equal_times
from sbon_node.planning.sql.sampling.stage import SampledStage
from sbon_protocol.api.catalogue import ASSUMED_ROWS_S, MAX_ROWS_S, SourceDeclaration
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import MOST_STATE_MB, OPERATOR_MEMORY_MB, Needs, TimeBuckets
from sbon_protocol.api.plan import IDLE_CORES, Rate

SHORTEST_READ_S = 1.0
"""Time that a query over finite sources takes at least: some batches of its operators."""
LEAST_SPEED, MOST_SPEED = 1e-6, 1e9
TRIMMED = 50
"""One of so many event times at either end may be an outlier."""


@dataclass(frozen=True, slots=True)
class ReadSource:
    """A source that a plan reads, with the schema and the event time of its stream."""

    source: SourceDeclaration
    schema: Schema
    event_time: str


@dataclass(frozen=True, slots=True)
class StreamEstimate:
    """Expected rate of a stream.

    ``event_speed`` is the seconds of event time that pass in a second: 1 for a live stream. ``unpaced`` streams come as fast as
    they are taken.
    """

    rate: Rate
    event_speed: float = 1.0
    unpaced: bool = False

    @staticmethod
    def of_all(streams: Sequence[StreamEstimate]) -> StreamEstimate:
        """Return the estimate of several streams together; their speeds count by their rows."""
        rate = Rate.of_all(stream.rate for stream in streams)
        if rate.rows_s > 0:
            speed = sum(stream.event_speed * stream.rate.rows_s for stream in streams) / rate.rows_s
        else:
            speed = max(stream.event_speed for stream in streams)
        return StreamEstimate(rate, speed, any(stream.unpaced for stream in streams))


def estimates_of_sources(
    sources: Mapping[str, ReadSource], paces: Mapping[str, SourcePace], samples: Mapping[str, StreamSample]
) -> dict[str, StreamEstimate]:
    """Return the estimates of a plan's sources, by id; ``paces`` are measured."""
    read_s = _seconds_of_reading(sources, paces, samples)
    estimates: dict[str, StreamEstimate] = {}
    for name, read in sources.items():
        pace, sample = paces.get(name, SourcePace()), samples.get(name, StreamSample())
        unpaced = _is_unpaced(read.source, pace, sample)
        rows_s = pace.rows_s or read.source.expected_rows_s
        if unpaced and sample.rows is not None:
            rows_s = min(max(sample.rows, 1.0) / read_s, MAX_ROWS_S)
        elif unpaced:
            rows_s = sample.read_rows_s or rows_s
        row_bytes = pace.row_bytes or read.source.expected_row_bytes
        rate = Rate(rows_s=rows_s, bytes_s=rows_s * row_bytes, measured=pace.row_bytes is not None)
        estimates[name] = StreamEstimate(rate, _event_speed(read, sample, rows_s, unpaced=unpaced), unpaced)
    return estimates


def _is_unpaced(source: SourceDeclaration, pace: SourcePace, sample: StreamSample) -> bool:
    """Return whether a source is finite, and its rate neither declared nor measured."""
    finite = sample.rows is not None or sample.read_rows_s is not None or source.unpaced
    return finite and source.rows_s is None and pace.rows_s is None


def _seconds_of_reading(
    sources: Mapping[str, ReadSource], paces: Mapping[str, SourcePace], samples: Mapping[str, StreamSample]
) -> float:
    """Return the time in which each node reads all of its sources without a pace, the slowest node's."""
    by_node: dict[str, float] = {}
    for name, read in sources.items():
        sample = samples.get(name, StreamSample())
        if sample.rows is not None and _is_unpaced(read.source, paces.get(name, SourcePace()), sample):
            seconds = sample.rows / sample.read_rows_s if sample.read_rows_s else 0.0
            by_node[read.source.node] = by_node.get(read.source.node, 0.0) + seconds
    return max(SHORTEST_READ_S, *by_node.values()) if by_node else SHORTEST_READ_S


def _event_speed(read: ReadSource, sample: StreamSample, rows_s: float, *, unpaced: bool) -> float:
    """Return the source's speed in event time. Without a sample, a live source has that of the clock."""
    of_row_s = event_s_of_row(sample, read.event_time) if sample.rows is not None or sample.read_rows_s is not None else None
    if of_row_s is not None:
        return min(max(rows_s * of_row_s, LEAST_SPEED), MOST_SPEED)
    return max(1.0, rows_s / ASSUMED_ROWS_S) if unpaced else 1.0


def event_s_of_row(sample: StreamSample, event_time: str) -> float | None:
    """Return the seconds of event time from one row to the next, on average; None if the sample does not tell."""
    times = sorted(value for value in sample.columns.get(event_time, ()) if isinstance(value, int))
    cut = len(times) // TRIMMED
    steps = len(times) - 1 - 2 * cut
    if steps < 1 or times[-1 - cut] <= times[cut]:
        return None
    rows_of_step = sample.seen / len(times)
    return (times[-1 - cut] - times[cut]) / 1e6 / steps / rows_of_step


EQUALITY = 1 / 10
COMPARISON = 1 / 3
BETWEEN = 1 / 4
MOST_OF_IN = 1 / 2
NULL = 1 / 10
PATTERN = 1 / 4
OTHER = 1 / 3

ROWS_S_PER_CORE = 150_000.0
"""Rows per second that an engine core filters at least: a cautious third of two cores' figure in docs/figures/engine.md."""

MOST_CORES = 1.0
MOST_BANDWIDTH_BYTES_S = 1e15
"""Upper limit of a bandwidth in a message."""
STATE_ROW_BYTES = 64.0
"""Bytes that the state store adds to each row."""

KEYED_S = 60.0
"""Lifetime of a group without a window."""
SHORTEST_SPAN_S = 1.0
MOST_KEYS = 15
"""Most keys that count; so many already distinguish the rows of a year."""
MOST_MATCHES = 10.0
"""Most partners per row, for want of statistics: a join rarely multiplies rows."""

_WIDTHS = {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "float": 4, "double": 8, "date": 4, "timestamp": 8}
_STRING_BYTES = 16.0
_SKETCH_BYTES = 600.0
"""Bytes of a sketch of about a hundred distinct values; the maximum is 4 KiB."""
_SHORTEST_STRING = 4.0


def selectivity(condition: exp.Expr | None) -> float:
    """Return the expected fraction of rows for which ``condition`` holds. AND and OR treat their sides as independent."""
    if condition is None:
        return 1.0
    if isinstance(condition, exp.Paren):
        return selectivity(condition.this)
    if isinstance(condition, exp.Not):
        return 1.0 - selectivity(condition.this)
    if isinstance(condition, exp.And):
        return math.prod(selectivity(term) for term in condition.flatten())
    if isinstance(condition, exp.Or):
        return 1.0 - math.prod(1.0 - selectivity(term) for term in condition.flatten())
    if isinstance(condition, exp.Boolean):
        return 1.0 if condition.this else 0.0
    if isinstance(condition, exp.In):
        return min(MOST_OF_IN, EQUALITY * len(condition.expressions))
    constants: tuple[tuple[tuple[type[exp.Expr], ...], float], ...] = (
        ((exp.EQ, exp.NullSafeEQ), EQUALITY),
        ((exp.NEQ, exp.NullSafeNEQ), 1 - EQUALITY),
        ((exp.GT, exp.GTE, exp.LT, exp.LTE), COMPARISON),
        ((exp.Between,), BETWEEN),
        ((exp.Is,), NULL),
        ((exp.Like, exp.ILike, exp.RegexpLike, exp.Escape), PATTERN),
    )
    return next((value for types, value in constants if isinstance(condition, types)), OTHER)


def column_bytes(type_: str, string_bytes: float = _STRING_BYTES) -> float:
    """Return the bytes of a value in a frame, before compression."""
    if type_.startswith("decimal"):
        return 16.0
    return float(_WIDTHS.get(type_, string_bytes))


def string_bytes(schema: Schema, row_bytes: float) -> float:
    """Return the bytes of a string if the source's rows are declared to take ``row_bytes``."""
    strings = sum(column.type in ("string", "binary") for column in schema)
    fixed = sum(column_bytes(column.type) for column in schema if column.type not in ("string", "binary"))
    return max(_SHORTEST_STRING, (row_bytes - fixed) / strings) if strings else _STRING_BYTES


@dataclass(frozen=True, slots=True)
class Estimate:
    """An operator's expected output, its state in megabytes, and the resources to reserve."""

    stream: StreamEstimate
    needs: Needs
    state_mb: float

    @property
    def rate(self) -> Rate:
        return self.stream.rate


def estimated(
    relation: Select,
    schemas: Sequence[Schema],
    views: Sequence[StreamEstimate],
    output: Schema,
    measured: Measurement | None = None,
    buckets: Sequence[TimeBuckets] = (),
    sampled: SampledStage | None = None,
) -> Estimate:
    """Estimate a stage over views with these schemas and rates, whose joins are divided by ``buckets``.

    ``sampled`` is what samples of the views tell of the stage. Bytes follow from the types of the output's columns. ``measured``
    replaces the estimates of selectivity and row size; the kept state remains an estimate.
    """
    rates = [view.rate for view in views]
    rows_s, kept_rows = _flow(relation, views, sampled or SampledStage())
    kept_rows += _copied_rows(buckets, views)
    row_bytes = [_row_bytes(schema, rate) for schema, rate in zip(schemas, rates, strict=True)]
    strings = max(string_bytes(schema, size) for schema, size in zip(schemas, row_bytes, strict=True))
    binary = _SKETCH_BYTES if isinstance(relation.child, Aggregate) and relation.child.partial else strings
    size = max(1.0, sum(binary if column.type == "binary" else column_bytes(column.type, strings) for column in output))
    if measured is not None and measured.selectivity is not None:
        rows_s, size = sum(rate.rows_s for rate in rates) * measured.selectivity, measured.row_bytes or size
    rows_s, size = min(rows_s, MAX_ROWS_S), min(size, MAX_ROW_BYTES)
    rate = Rate(rows_s=rows_s, bytes_s=rows_s * size, measured=measured is not None)
    together = StreamEstimate.of_all(views)
    stream = StreamEstimate(rate, together.event_speed, together.unpaced)
    state_mb = kept_rows * (max(row_bytes) + STATE_ROW_BYTES) / 2**20
    return Estimate(stream, _needs(views, rate.bytes_s, state_mb), state_mb)


def _needs(views: Sequence[StreamEstimate], bytes_s: float, state_mb: float) -> Needs:
    """Return the resources to reserve.

    Streams without a pace wait for the operator, which takes the cores and bandwidth that are left. So it reserves what it needs
    for a stream of the assumed rate.
    """
    in_rows_s = sum(view.rate.rows_s for view in views)
    due_rows_s = sum(min(view.rate.rows_s, ASSUMED_ROWS_S) if view.unpaced else view.rate.rows_s for view in views)
    due = due_rows_s / in_rows_s if in_rows_s > 0 else 1.0
    return Needs(
        cores=round(min(MOST_CORES, IDLE_CORES + due_rows_s / ROWS_S_PER_CORE), 3),
        memory_mb=round(OPERATOR_MEMORY_MB + min(MOST_STATE_MB, state_mb), 1),
        bandwidth_bytes_s=round(min(due * bytes_s, MOST_BANDWIDTH_BYTES_S), 3),
    )


def _copied_rows(buckets: Sequence[TimeBuckets], views: Sequence[StreamEstimate]) -> float:
    """Return the rows kept beside those of :func:`_flow`: copies of rows that reach into a second bucket."""
    copied_rows = 0.0
    for bucket in buckets:
        span_ms = bucket.upto_ms - bucket.from_ms
        copied_share = span_ms / bucket.width_ms
        copied = views[bucket.copied_view]
        copied_rows += copied.rate.rows_s / copied.event_speed * max(span_ms / 1000, SHORTEST_SPAN_S) * copied_share
    return copied_rows


def _row_bytes(schema: Schema, rate: Rate) -> float:
    """Return a row's bytes by its types, for a stream without expected rows."""
    return rate.bytes_s / rate.rows_s if rate.rows_s > 0 else sum(column_bytes(column.type) for column in schema)


def _flow(relation: Relation, views: Sequence[StreamEstimate], sampled: SampledStage) -> tuple[float, float]:
    """Return the rows per second out of a relation, and the rows it keeps."""
    match relation:
        case Input(view):
            return views[view].rate.rows_s, 0.0
        case Select(child, _, conditions):
            rows_s, groups_s = _flow(child, views, sampled)
            share, unknown = sampled.selects.get(id(relation), (1.0, list(conditions)))
            return rows_s * share * math.prod(selectivity(condition) for condition in unknown), groups_s
        case Aggregate():
            return _flow_of_groups(relation, views, sampled)
        case Join():
            return _flow_of_join(relation, views, sampled)
    raise TypeError(f"no part of a stage: {relation!r}")


def _speed(views: Sequence[StreamEstimate]) -> float:
    return StreamEstimate.of_all(views).event_speed


def _flow_of_groups(relation: Aggregate, views: Sequence[StreamEstimate], sampled: SampledStage) -> tuple[float, float]:
    """Return the flow of groups. A key has ten values, for want of statistics; each group has a row."""
    rows_s, kept_rows = _flow(relation.child, views, sampled)
    window, speed = relation.window, _speed(views)
    size_s, slide_s = (window.size_ms / 1000, window.slide_ms / 1000) if window is not None else (KEYED_S, KEYED_S)
    in_window = rows_s / speed * size_s
    known = sampled.aggregates.get(id(relation))
    if known is not None and known.of_row is not None:
        groups_s = rows_s * known.of_row
    elif known is not None:
        groups_s = known.in_window(in_window) * speed / slide_s
    else:
        groups_s = min(in_window, math.pow(1 / EQUALITY, min(len(relation.keys), MOST_KEYS))) * speed / slide_s
    return groups_s, kept_rows + groups_s / speed * size_s


def _flow_of_join(join: Join, views: Sequence[StreamEstimate], sampled: SampledStage) -> tuple[float, float]:
    (left, kept_left), (right, kept_right) = _flow(join.left, views, sampled), _flow(join.right, views, sampled)
    spans_s = [(bound.most_ms - bound.least_ms) / 1000 for bound in bounds(join) if bound.closed]
    span_s = max(min(spans_s, default=0.0), SHORTEST_SPAN_S) / _speed(views)
    kept_rows = kept_left + kept_right + (left + right) * span_s
    known = sampled.joins.get(id(join))
    if known is not None and known.of_left is not None:
        return left * known.of_left, kept_rows
    if known is not None and known.of_right is not None:
        return right * known.of_right, kept_rows
    if known is not None:
        grows = has_equal_times(join) or not known.equal
        pairs = known.growing(left, right) if grows else left * right * span_s * known.equal
        return _joined(join.kind, left, right, pairs), kept_rows
    matching = math.prod(selectivity(condition) for condition in join.conditions if isinstance(condition.unnest(), exp.EQ))
    pairs = min(left * right * span_s * matching, MOST_MATCHES * max(left, right))
    return _joined(join.kind, left, right, pairs), kept_rows


def _joined(kind: JoinKind, left: float, right: float, pairs: float) -> float:
    """Return the rows of a join with so many pairs."""
    return {
        "inner": pairs,
        "left": max(left, pairs),
        "right": max(right, pairs),
        "full": max(left, right, pairs),
        "semi": min(left, pairs),
    }[kind]
