"""Knobs of placement."""

from typing import Annotated

import msgspec
from msgspec import Meta


class PlacementSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of RELAXATION (SBON, section 3.1.3), of HYBRID's candidates and measurements, of NES's hierarchy and random
    draws, and of ants.
    """

    k: Annotated[int, Meta(ge=1, le=1000)] = 10
    """nearest nodes asked for each operator; doubled while none has capacity; raise on full sites"""
    delta: Annotated[float, Meta(gt=0, lt=2)] = 0.5
    """fraction of the distance to its rest that an operator moves in one round; lower it if it oscillates"""
    force_threshold: Annotated[float, Meta(gt=0, le=1e9)] = 1.0
    """relaxation stops when no force is greater; kilobytes a second x milliseconds"""
    max_iterations: Annotated[int, Meta(ge=1, le=1_000_000)] = 1000
    """most rounds of relaxation; then the current coordinate is used"""
    origin_ms: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    """an operator starts at random within this distance of the origin; milliseconds"""
    pool: Annotated[int, Meta(ge=1, le=10_000)] = 160
    """nodes around each operator's virtual coordinate that hybrid considers by coordinates, fewer for more than five
    operators; doubled while none has capacity"""
    candidates: Annotated[int, Meta(ge=1, le=1000)] = 20
    """most nodes of the pool whose latencies to the pinned ends of an operator's links hybrid measures; fewer if no other
    node can be the best; more cost more measurements and place better"""
    finalists: Annotated[int, Meta(ge=1, le=100)] = 4
    """candidates of an operator whose latencies to its neighbours' candidates hybrid measures as well"""
    measure: bool = True
    """whether hybrid measures at all; by coordinates alone it places about a tenth worse"""
    attempts: Annotated[int, Meta(ge=1, le=100)] = 3
    """placements tried under a bound on delay, each knowing what was measured for those before"""
    window_share: Annotated[float, Meta(gt=0, le=1)] = 0.2
    """width of opb's discovery windows, of the cores the query needs (the paper's rho); wider ones find more nodes at once,
    and are fewer"""
    processing_share: Annotated[float, Meta(gt=0, le=1)] = 0.5
    """share of the bound on delay that opb allows for the hosts' work (the paper's K1)"""
    patience: Annotated[int, Meta(ge=1, le=100)] = 3
    """passes of opb without a better placement after which it stops (the paper's K2)"""
    discovered: Annotated[int, Meta(ge=1, le=10_000)] = 512
    """most nodes that one resource discovery asks, the nearest to the query first"""
    neighbours: Annotated[int, Meta(ge=1, le=100)] = 6
    """nearest nodes that a node without a configured parent (tag parent=NODE) is linked with; shortest paths over these links
    are the hierarchy of bottom-up, top-down, ifcop and local-search; fewer make deeper trees"""
    iterations: Annotated[int, Meta(ge=1, le=1_000_000)] = 1000
    """random placements that ifcop draws to take the best of; more place better"""
    routing_ants: Annotated[int, Meta(ge=1, le=100_000)] = 200
    """ants that look for paths, for each chain of operators"""
    scouting_ants: Annotated[int, Meta(ge=1, le=100_000)] = 50
    """ants that each try a placement along these paths; more take longer and place better"""
    exact_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """time limit of optimal for an integer program, which bounds and scarce capacity may need; then it refuses the query as
    too large; seconds; the node answers others meanwhile"""
    ant_tries: Annotated[int, Meta(ge=1, le=100)] = 5
    """tries with more ants for a chain that no scout can place, farther each time"""
    zone_s: Annotated[float, Meta(gt=0, le=600)] = 20.0
    """time that the coordinators of edge, edge+, in-network and in-network+ have for one round over a query; seconds; raise
    it on very slow links"""
    zone_operators: Annotated[int, Meta(ge=1, le=1024)] = 1
    """most operators of a zone, which its coordinator places together; larger zones place better and need fewer messages, but
    spread the work less; the paper has 1"""
    zone_tries: Annotated[int, Meta(ge=1, le=100)] = 4
    """rounds that may fail, each with the next owner instead of the node that failed, until the query is refused"""
    zone_locations: Annotated[int, Meta(ge=2, le=1024)] = 384
    """most nodes that coordinators consider for a query, its ends included; give all nodes the same value"""
    zones_kept: Annotated[int, Meta(ge=1, le=4096)] = 64
    """placements in which one node is a coordinator at once; the oldest are forgotten, first those of the node with the most;
    each takes 16 bytes for each pair of its locations"""
    zones_kept_of_peer: Annotated[int, Meta(ge=1, le=4096)] = 16
    """of these, placements of one node; its oldest is forgotten for a new one"""
    zones_kept_s: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    """time after which a coordinator forgets a placement; seconds; more than zone_s"""
    zone_messages: Annotated[int, Meta(ge=1, le=4096)] = 24
    """messages of coordinators that one node follows at once, as each waits for those it causes; more are refused; keep it
    below net.max_requests"""
    zone_messages_of_peer: Annotated[int, Meta(ge=1, le=4096)] = 18
    """of these, messages of one node, so that it leaves some for others"""
