"""Knobs of ants that walk between nodes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Interval = Annotated[float, Meta(gt=0, le=86_400)]


class AntSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rates and limits of a node's cell, and the ants of a query for which it is the leader (Lakshmanan, Strom, 2008)."""

    explore_s: Annotated[
        Interval,
        Meta(
            description="pause between routing ants that a node sends to a random member; seconds; shorter keeps pheromones "
            "fresher, and costs some 15 datagrams / pause"
        ),
    ] = 30.0
    tell_s: Annotated[
        Interval,
        Meta(description="pause after which a node tells its neighbours its queue and free capacity; they use it thrice as long"),
    ] = 10.0
    refresh_s: Annotated[
        Interval, Meta(description="pause after which a node chooses its neighbours anew from the coordinates; seconds")
    ] = 30.0
    ants_s: Annotated[
        int, Meta(ge=1, le=100_000, description="ants a second that a node takes in the long run; it drops the others")
    ] = 500
    burst: Annotated[int, Meta(ge=1, le=100_000, description="ants that a node takes at once, before the rate counts")] = 1000
    burst_of_one: Annotated[
        int, Meta(ge=1, le=100_000, description="ants that a node takes at once from a single other node; half of ants_s counts")
    ] = 500
    max_hops: Annotated[int, Meta(ge=1, le=32, description="most nodes on an ant's path; then it dies")] = 24
    max_neighbours: Annotated[int, Meta(ge=1, le=256, description="most neighbours of a node, the nearest")] = 16
    drawn_neighbours: Annotated[
        float,
        Meta(
            ge=0,
            le=256,
            description="neighbours of a node that are drawn from all members, on average, in clusters of 64 nodes or more: "
            "the nearest ones alone do not lead everywhere there",
        ),
    ] = 6.0
    max_near: Annotated[
        int,
        Meta(ge=2, le=4096, description="nearest members among which a node looks for neighbours; time grows with the square"),
    ] = 512
    max_tables: Annotated[
        int, Meta(ge=1, le=100_000, description="destinations of which a node remembers pheromones; the longest unused go")
    ] = 1024
    max_trails: Annotated[
        int, Meta(ge=1, le=1_000_000, description="ants under way that a node remembers, so that they find back; the oldest go")
    ] = 8192
    trail_s: Annotated[
        float, Meta(gt=0, le=600, description="time for which it does; above the longest way there and back; seconds")
    ] = 10.0
    evaporation_s: Annotated[
        Interval,
        Meta(description="time in which pheromone evaporates to its e-th part, if no ant lays more; seconds"),
    ] = 300.0
    forget_s: Annotated[Interval, Meta(description="time after which unused pheromones are forgotten; seconds")] = 600.0
    booked_s: Annotated[
        Interval,
        Meta(
            description="time for which a node counts operators that ants have reserved as traffic, until it has measured them; "
            "seconds"
        ),
    ] = 60.0
    routing_ants: Annotated[
        int, Meta(ge=1, le=10_000, description="routing ants that a leader sends for each chain of operators of a query")
    ] = 40
    scouting_ants: Annotated[
        int,
        Meta(ge=1, le=10_000, description="scouting ants that it sends afterwards; more place better and cost more"),
    ] = 24
    release_s: Annotated[float, Meta(gt=0, le=60, description="pause between two ants that a leader sends; seconds")] = 0.01
    enough: Annotated[
        float, Meta(gt=0, le=1, description="share of ants whose return a leader awaits, within the waits that follow")
    ] = 0.8
    route_wait_s: Annotated[
        float, Meta(gt=0, le=60, description="longest wait for routing ants after the last was sent; seconds")
    ] = 1.0
    scout_wait_s: Annotated[
        float, Meta(gt=0, le=60, description="longest wait for scouting ants after the last was sent; seconds")
    ] = 2.0
    enforce_wait_s: Annotated[
        float, Meta(gt=0, le=60, description="wait for the answer to an enforcement ant before it is sent again; seconds")
    ] = 1.5
    enforce_tries: Annotated[int, Meta(ge=1, le=100, description="enforcement ants sent for one placement, if none answers")] = 5
    update_s: Annotated[
        float,
        Meta(
            ge=1,
            le=86_400,
            description="pause between two rounds of ants for a running query with --adapt ants; a quarter of it between looks "
            "at its latency; seconds",
        ),
    ] = 60.0
    beta: Annotated[
        float,
        Meta(
            ge=1,
            le=100,
            description="factor by which a placement must be faster than the present one for the operators to move there, and by "
            "which latency must grow for ants to walk before their time",
        ),
    ] = 1.25
    rest_s: Annotated[
        float, Meta(ge=0, le=86_400, description="time without ants for a query after its operators have moved; seconds")
    ] = 120.0
    finalists: Annotated[
        int,
        Meta(ge=1, le=100, description="best placements that scouts report whose links are measured before one is chosen"),
    ] = 4
