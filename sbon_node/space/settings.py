"""Knobs of the cost space."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class SpaceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Computation of a node's coordinate. All nodes of a cluster need the same ``algorithm``, ``dimensions`` and
    ``load_weight_ms``.
    """

    algorithm: Annotated[
        Literal["refit", "vivaldi"],
        Meta(description="refit fits all neighbours at once after each probe; vivaldi, one at a time, is SBON's own"),
    ] = "refit"
    dimensions: Annotated[
        int, Meta(ge=1, le=8, description="latency dimensions of the space; SBON uses 3, 5 bring little beside a height")
    ] = 3
    height: Annotated[
        bool, Meta(description="whether refit computes a height, the latency from a node to the network; vivaldi has none")
    ] = True
    random_neighbours: Annotated[
        int, Meta(ge=1, le=256, description="random members that are measured regularly; more fit better, more slowly")
    ] = 32
    near_neighbours: Annotated[
        int, Meta(ge=0, le=256, description="nearest members that are measured as well; they show which nodes are nearest")
    ] = 16
    probe_interval_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="one neighbour is measured in each interval, four while the coordinate is new, where the failure "
            "detector's own probes do not reach all of them often; seconds",
        ),
    ] = 2.0
    max_lag_s: Annotated[
        float,
        Meta(
            gt=0,
            le=10,
            description="round-trip times are dropped if this process was later than this for its own timers meanwhile; seconds",
        ),
    ] = 0.02
    error_gain: Annotated[
        float,
        Meta(gt=0, lt=1, description="Vivaldi's c_e (its section 3.5): share of a new sample in the error; lower is steadier"),
    ] = 0.25
    step_gain: Annotated[
        float,
        Meta(
            gt=0, lt=1, description="Vivaldi's c_c (its section 3.5): part of the way to the measured distance; lower is steadier"
        ),
    ] = 0.25
    filter: Annotated[
        Literal["auto", "adaptive", "percentile"],
        Meta(
            description="filter of a link's last samples: percentile, always filter_percentile, is SBON's; adaptive moves "
            "towards the median if the node's samples are not skewed, since the median is right for symmetric noise; auto is "
            "adaptive for refit, percentile for vivaldi"
        ),
    ] = "auto"
    filter_samples: Annotated[int, Meta(ge=1, le=100, description="last samples of a link that the filter uses")] = 10
    filter_percentile: Annotated[
        float,
        Meta(ge=0, le=100, description="percentile of the filter for samples disturbed by queueing; low ones ignore it"),
    ] = 20.0
    max_rtt_ms: Annotated[
        float, Meta(gt=0, le=60_000, description="samples above it are refused as no round-trip time; milliseconds")
    ] = 10_000.0
    fresh_s: Annotated[
        float, Meta(gt=0, le=86_400, description="time for which a direct measurement outranks the coordinates; seconds")
    ] = 120.0
    max_links: Annotated[int, Meta(ge=16, le=100_000, description="links whose samples are kept; the stalest one goes")] = 4096
    load_weight_ms: Annotated[
        float, Meta(ge=0, le=1e5, description="milliseconds in the load dimension for one runnable process per core (linear)")
    ] = 50.0
    load_smoothing_s: Annotated[
        float,
        Meta(gt=0, le=3600, description="time constant of the load's exponential smoothing; seconds; short peaks have no effect"),
    ] = 30.0
