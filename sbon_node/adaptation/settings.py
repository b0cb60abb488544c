"""Knobs of adaptation: when hosts look for better places of their operators, and when these are worth a move."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sbon_node.model.adaptation import Adapt

Preset = Literal["calm", "eager"]


class AdaptationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When this node looks for a better host of an operator, what it may cost to look, and what a move has to save."""

    preset: Annotated[
        Preset,
        Meta(
            description="defaults of the knobs of this section: calm moves operators for lasting changes, eager also for changes "
            "of minutes, where state is small and networks change"
        ),
    ] = "calm"
    default: Annotated[
        Adapt,
        Meta(
            description="adaptation of queries that this node accepts and that name none: local lets hosts of their operators "
            "move them, full has them placed again as a whole, too, ants lets ants move them to least latency, off leaves them "
            "where they are"
        ),
    ] = "off"
    period_s: Annotated[
        float,
        Meta(
            ge=1,
            le=86_400,
            description="time between two decisions about an operator, a quarter more or less; seconds; lower it to follow "
            "changes sooner, which costs measurements",
        ),
    ] = 60.0
    least_measured_s: Annotated[
        float,
        Meta(
            ge=1,
            le=86_400,
            description="time that the measures of an operator must cover, weighted towards the present, before it may move; "
            "seconds",
        ),
    ] = 30.0
    moved_ms: Annotated[
        float,
        Meta(
            gt=0,
            le=10_000,
            description="distance in the cost space by which the virtual coordinate of an operator must move before another host "
            "is looked for; milliseconds",
        ),
    ] = 5.0
    moved_share: Annotated[
        float,
        Meta(
            ge=0,
            le=10,
            description="that distance as a share of the mean latency of the operator's links; the greater one counts, since "
            "coordinates of far nodes move more without a cause",
        ),
    ] = 0.1
    grown_share: Annotated[
        float,
        Meta(
            gt=0,
            le=10,
            description="share by which the network usage of an operator's links must grow before another host is looked for, "
            "even if its virtual coordinate has not moved",
        ),
    ] = 0.1
    look_again_s: Annotated[
        float,
        Meta(
            ge=1,
            le=604_800,
            description="time after which another host is looked for although nothing has changed here, since one may have come "
            "closer; seconds",
        ),
    ] = 900.0
    pairs: Annotated[
        int,
        Meta(
            ge=2,
            le=1024,
            description="most pairs of nodes that are measured to find another host of an operator; more find better ones",
        ),
    ] = 48
    least_saving: Annotated[
        float,
        Meta(
            gt=0,
            lt=1,
            description="least share of the network usage of an operator's links that a move must save; each move within the "
            "last hour adds as much",
        ),
    ] = 0.1
    least_saving_bytes: Annotated[
        float,
        Meta(
            ge=0,
            le=1e15,
            description="least network usage that a move must save; bytes in transit (rate x latency)",
        ),
    ] = 50.0
    joint_neighbours: Annotated[
        int,
        Meta(
            ge=0,
            le=16,
            description="neighbours at other nodes with which an operator is weighed that stays by itself, those with the "
            "heaviest links first: both may move together; 0 lets no operator of this node move jointly",
        ),
    ] = 2
    overload: Annotated[
        float,
        Meta(
            gt=0,
            le=1000,
            description="runnable processes per core from which this node moves its busiest operator away, one in two minutes, "
            "to a node with at most half of that",
        ),
    ] = 2.0
    overload_cost: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="share by which the network usage of an operator's links may grow if it leaves an overloaded node",
        ),
    ] = 0.5
    near_bound: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="share of a query's bound on delay from which its operators move to hosts that shorten the way of its "
            "rows, whatever that costs in usage: the measured delay of 95 % of the rows counts; and of the bytes sent from which "
            "a bound on throughput is about to be broken",
        ),
    ] = 0.9
    payback_s: Annotated[
        float,
        Meta(
            gt=0,
            le=604_800,
            description="time within which the saving of a move must pay for the move itself: its state on the way, the input "
            "that is read twice, and the pause; seconds; raise it for queries that run for days",
        ),
    ] = 600.0
    rest_s: Annotated[
        float, Meta(ge=0, le=604_800, description="time that an operator stays after each move, whatever was its cause; seconds")
    ] = 300.0
    return_s: Annotated[
        float,
        Meta(ge=0, le=604_800, description="time for which an operator does not return to a host that it has left; seconds"),
    ] = 1800.0
    most_moves: Annotated[
        int, Meta(ge=0, le=16, description="most moves of an operator within an hour; 0 lets nothing move by itself")
    ] = 4
    replace_s: Annotated[
        float,
        Meta(
            ge=1,
            le=604_800,
            description="time between two placements of a whole running query by its strategy, with --adapt full; a quarter more "
            "or less; seconds",
        ),
    ] = 600.0
    moves: Annotated[int, Meta(ge=1, le=1024, description="operators that this node moves away at a time by itself")] = 2
    decisions: Annotated[
        int, Meta(ge=1, le=1000, description="decisions about an operator that this node remembers; equal ones count as one")
    ] = 16


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
