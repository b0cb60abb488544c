"""Knobs of adaptation: when hosts look for better places of their operators, and when these are worth a move."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sbon_protocol.api.adaptation import Adapt

Preset = Literal["calm", "eager"]


class AdaptationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When this node looks for a better host of an operator, what it may cost to look, and what a move has to save."""

    preset: Preset = "calm"
    """defaults of the knobs of this section: calm moves operators for lasting changes, eager also for changes of minutes,
    where state is small and networks change"""
    default: Adapt = "off"
    """adaptation of queries that this node accepts and that name none: local lets hosts of their operators move them, full
    has them placed again as a whole, too, ants lets ants move them to least latency, off leaves them where they are"""
    period_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    """time between two decisions about an operator, a quarter more or less; seconds; lower it to follow changes sooner, which
    costs measurements"""
    least_measured_s: Annotated[float, Meta(ge=1, le=86_400)] = 30.0
    """time that the measures of an operator must cover, weighted towards the present, before it may move; seconds"""
    moved_ms: Annotated[float, Meta(gt=0, le=10_000)] = 5.0
    """distance in the cost space by which the virtual coordinate of an operator must move before another host is looked for;
    milliseconds"""
    moved_share: Annotated[float, Meta(ge=0, le=10)] = 0.1
    """that distance as a share of the mean latency of the operator's links; the greater one counts, since coordinates of far
    nodes move more without a cause"""
    grown_share: Annotated[float, Meta(gt=0, le=10)] = 0.1
    """share by which the network usage of an operator's links must grow before another host is looked for, even if its
    virtual coordinate has not moved"""
    look_again_s: Annotated[float, Meta(ge=1, le=604_800)] = 900.0
    """time after which another host is looked for although nothing has changed here, since one may have come closer; seconds"""
    pairs: Annotated[int, Meta(ge=2, le=1024)] = 48
    """most pairs of nodes that are measured to find another host of an operator; more find better ones"""
    least_saving: Annotated[float, Meta(gt=0, lt=1)] = 0.1
    """least share of the network usage of an operator's links that a move must save; each move within the last hour adds as
    much"""
    least_saving_bytes: Annotated[float, Meta(ge=0, le=1e15)] = 50.0
    """least network usage that a move must save; bytes in transit (rate x latency)"""
    joint_neighbours: Annotated[int, Meta(ge=0, le=16)] = 2
    """neighbours at other nodes with which an operator is weighed that stays by itself, those with the heaviest links first:
    both may move together; 0 lets no operator of this node move jointly"""
    overload: Annotated[float, Meta(gt=0, le=1000)] = 2.0
    """runnable processes per core from which this node moves its busiest operator away, one in two minutes, to a node with at
    most half of that"""
    overload_cost: Annotated[float, Meta(ge=0, le=100)] = 0.5
    """share by which the network usage of an operator's links may grow if it leaves an overloaded node"""
    near_bound: Annotated[float, Meta(gt=0, le=1)] = 0.9
    """share of a query's bound on delay from which its operators move to hosts that shorten the way of its rows, whatever
    that costs in usage: the measured delay of 95 % of the rows counts; and of the bytes sent from which a bound on throughput
    is about to be broken"""
    payback_s: Annotated[float, Meta(gt=0, le=604_800)] = 600.0
    """time within which the saving of a move must pay for the move itself: its state on the way, the input that is read
    twice, and the pause; seconds; raise it for queries that run for days"""
    rest_s: Annotated[float, Meta(ge=0, le=604_800)] = 300.0
    """time that an operator stays after each move, whatever was its cause; seconds"""
    return_s: Annotated[float, Meta(ge=0, le=604_800)] = 1800.0
    """time for which an operator does not return to a host that it has left; seconds"""
    most_moves: Annotated[int, Meta(ge=0, le=16)] = 4
    """most moves of an operator within an hour; 0 lets nothing move by itself"""
    replace_s: Annotated[float, Meta(ge=1, le=604_800)] = 600.0
    """time between two placements of a whole running query by its strategy, with --adapt full; a quarter more or less;
    seconds"""
    moves: Annotated[int, Meta(ge=1, le=1024)] = 2
    """operators that this node moves away at a time by itself"""
    decisions: Annotated[int, Meta(ge=1, le=1000)] = 16
    """decisions about an operator that this node remembers; equal ones count as one"""


PRESETS: dict[Preset, dict[str, Any]] = {
    "calm": {},
    "eager": {
        "period_s": 20.0,
        "least_measured_s": 15.0,
        "moved_ms": 2.0,
        "grown_share": 0.05,
        "look_again_s": 120.0,
        "least_saving": 0.04,
        "least_saving_bytes": 10.0,
        "rest_s": 40.0,
        "replace_s": 120.0,
        "return_s": 200.0,
        "most_moves": 5,
    },
}
"""Differences of each preset from the defaults."""


def preset(name: Preset, **knobs: Any) -> AdaptationSettings:
    """Return the settings of a preset, with these knobs turned."""
    return AdaptationSettings(preset=name, **{**PRESETS[name], **knobs})
