"""Rates of sources for a plan: measured, else declared or sampled, else how fast their nodes read them.

A finite source without a pace is read as fast as its subscribers take it. Its rate is its rows over the time that the sources of
the query take together: so two files keep the proportion of their rows, and windows come as fast as event time passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sbon_node.model.measurements import SourcePace
from sbon_node.model.samples import StreamSample
from sbon_protocol.api.catalogue import ASSUMED_ROWS_S, MAX_ROWS_S, SourceDeclaration
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.plan import Rate

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
