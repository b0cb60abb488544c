"""Knobs of placement."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class PlacementSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """RELAXATION's parameters (SBON, section 3.1.3) and how widely nodes are asked; how far HYBRID looks and
    measures; NES's hierarchy and random draws; and how many ants are sent."""

    k: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="nearest nodes asked for each operator; doubled while none has capacity; raise on full sites",
        ),
    ] = 10
    delta: Annotated[
        float,
        Meta(
            gt=0, lt=2, description="fraction of the way to its rest an operator moves in one round; lower it should it oscillate"
        ),
    ] = 0.5
    force_threshold: Annotated[
        float, Meta(gt=0, le=1e9, description="relaxation stops when no force is greater; kilobytes a second x milliseconds")
    ] = 1.0
    max_iterations: Annotated[
        int, Meta(ge=1, le=1_000_000, description="rounds of relaxation after which the place reached is taken")
    ] = 1000
    origin_ms: Annotated[
        float, Meta(gt=0, le=1000, description="an operator starts at random within this distance of the origin; milliseconds")
    ] = 1.0
    pool: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="nodes around the best point of each operator that hybrid reckons with by coordinates, fewer for more "
            "than five operators; doubled while none has capacity",
        ),
    ] = 160
    candidates: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="nodes of the pool whose ways to the pinned ends of an operator's links hybrid measures at most, and "
            "fewer where nobody else can be the best; more cost more measurements and place better",
        ),
    ] = 20
    finalists: Annotated[
        int,
        Meta(ge=1, le=100, description="candidates of an operator whose ways to those of its neighbours hybrid measures as well"),
    ] = 4
    measure: Annotated[
        bool, Meta(description="whether hybrid measures at all; by coordinates alone it places about a tenth worse")
    ] = True
    attempts: Annotated[
        int,
        Meta(
            ge=1, le=100, description="placements tried under a bound on delay, each knowing what was measured for those before"
        ),
    ] = 3
    window_share: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="width of opb's discovery windows, of the cores the query needs (the paper's rho); wider ones find more "
            "nodes at once, and are fewer",
        ),
    ] = 0.2
    processing_share: Annotated[
        float, Meta(gt=0, le=1, description="of the bound on delay, what opb allows hosts for their work (the paper's K1)")
    ] = 0.5
    patience: Annotated[
        int, Meta(ge=1, le=100, description="passes of opb without a better placement after which it stops (the paper's K2)")
    ] = 3
    discovered: Annotated[
        int, Meta(ge=1, le=10_000, description="nodes asked by one resource discovery at most, those nearest to the query first")
    ] = 512
    neighbours: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="nearest nodes each is linked with in the overlay whose shortest paths are the hierarchy of bottom-up, "
            "top-down, ifcop and local-search, where no parents are configured (tag parent=NODE); fewer make deeper trees",
        ),
    ] = 6
    iterations: Annotated[
        int, Meta(ge=1, le=1_000_000, description="random placements that ifcop draws to take the best of; more place better")
    ] = 1000
    routing_ants: Annotated[int, Meta(ge=1, le=100_000, description="ants that look for ways, for each chain of operators")] = 200
    scouting_ants: Annotated[
        int,
        Meta(ge=1, le=100_000, description="ants that try a placement each along these ways; more take longer and place better"),
    ] = 50
    exact_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="how long optimal may solve an integer program, which bounds and scarce capacity may need; then it "
            "refuses the query as too large; seconds; the node answers others meanwhile",
        ),
    ] = 30.0
    ant_tries: Annotated[
        int,
        Meta(ge=1, le=100, description="how often ants are sent for a chain as long as none finds a place, farther each time"),
    ] = 5
