"""Knobs of the cost space."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class SpaceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Computation of a node's coordinate. All nodes of a cluster need the same ``algorithm``, ``dimensions`` and
    ``load_weight_ms``.
    """

    algorithm: Literal["refit", "vivaldi"] = "refit"
    """refit fits all neighbours at once after each probe; vivaldi, one at a time, is SBON's own"""
    dimensions: Annotated[int, Meta(ge=1, le=8)] = 3
    """latency dimensions of the space; SBON uses 3, 5 bring little beside a height"""
    height: bool = True
    """whether refit computes a height, the latency from a node to the network; vivaldi has none"""
    random_neighbours: Annotated[int, Meta(ge=1, le=256)] = 32
    """random members that are measured regularly; more fit better, more slowly"""
    near_neighbours: Annotated[int, Meta(ge=0, le=256)] = 16
    """nearest members that are measured as well; they show which nodes are nearest"""
    probe_interval_s: Annotated[float, Meta(gt=0, le=3600)] = 2.0
    """one neighbour is measured in each interval, four while the coordinate is new, where the failure detector's own probes
    do not reach all of them often; seconds"""
    max_lag_s: Annotated[float, Meta(gt=0, le=10)] = 0.02
    """round-trip times are dropped if this process was later than this for its own timers meanwhile; seconds"""
    error_gain: Annotated[float, Meta(gt=0, lt=1)] = 0.25
    """Vivaldi's c_e (its section 3.5): share of a new sample in the error; lower is steadier"""
    step_gain: Annotated[float, Meta(gt=0, lt=1)] = 0.25
    """Vivaldi's c_c (its section 3.5): part of the way to the measured distance; lower is steadier"""
    filter: Literal["auto", "adaptive", "percentile"] = "auto"
    """filter of a link's last samples: percentile, always filter_percentile, is SBON's; adaptive moves towards the median if
    the node's samples are not skewed, since the median is right for symmetric noise; auto is adaptive for refit, percentile
    for vivaldi"""
    filter_samples: Annotated[int, Meta(ge=1, le=100)] = 10
    """last samples of a link that the filter uses"""
    filter_percentile: Annotated[float, Meta(ge=0, le=100)] = 20.0
    """percentile of the filter for samples disturbed by queueing; low ones ignore it"""
    max_rtt_ms: Annotated[float, Meta(gt=0, le=60_000)] = 10_000.0
    """samples above it are refused as no round-trip time; milliseconds"""
    fresh_s: Annotated[float, Meta(gt=0, le=86_400)] = 120.0
    """time for which a direct measurement outranks the coordinates; seconds"""
    max_links: Annotated[int, Meta(ge=16, le=100_000)] = 4096
    """links whose samples are kept; the stalest one goes"""
    load_weight_ms: Annotated[float, Meta(ge=0, le=1e5)] = 50.0
    """milliseconds in the load dimension for one runnable process per core (linear)"""
    load_smoothing_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """time constant of the load's exponential smoothing; seconds; short peaks have no effect"""
