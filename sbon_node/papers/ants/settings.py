"""Knobs of ants that walk between nodes."""

from typing import Annotated

import msgspec
from msgspec import Meta

Interval = Annotated[float, Meta(gt=0, le=86_400)]


class AntSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rates and limits of a node's cell, and the ants of a query for which it is the leader (Lakshmanan, Strom, 2008)."""

    explore_s: Interval = 30.0
    """pause between routing ants that a node sends to a random member; seconds; shorter keeps pheromones fresher, and costs
    some 15 datagrams / pause"""
    tell_s: Interval = 10.0
    """pause after which a node tells its neighbours its queue and free capacity; they use it thrice as long"""
    refresh_s: Interval = 30.0
    """pause after which a node chooses its neighbours anew from the coordinates; seconds"""
    ants_s: Annotated[int, Meta(ge=1, le=100_000)] = 500
    """ants a second that a node takes in the long run; it drops the others"""
    burst: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    """ants that a node takes at once, before the rate counts"""
    burst_of_one: Annotated[int, Meta(ge=1, le=100_000)] = 500
    """ants that a node takes at once from a single other node; half of ants_s counts"""
    max_hops: Annotated[int, Meta(ge=1, le=32)] = 24
    """most nodes on an ant's path; then it dies"""
    max_neighbours: Annotated[int, Meta(ge=1, le=256)] = 16
    """most neighbours of a node, the nearest"""
    drawn_neighbours: Annotated[float, Meta(ge=0, le=256)] = 6.0
    """neighbours of a node that are drawn from all members, on average, in clusters of 64 nodes or more: the nearest ones
    alone do not lead everywhere there"""
    max_near: Annotated[int, Meta(ge=2, le=4096)] = 512
    """nearest members among which a node looks for neighbours; time grows with the square"""
    max_tables: Annotated[int, Meta(ge=1, le=100_000)] = 1024
    """destinations of which a node remembers pheromones; the longest unused go"""
    max_trails: Annotated[int, Meta(ge=1, le=1_000_000)] = 8192
    """ants under way that a node remembers, so that they find back; the oldest go"""
    trail_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """time for which it does; above the longest way there and back; seconds"""
    evaporation_s: Interval = 300.0
    """time in which pheromone evaporates to its e-th part, if no ant lays more; seconds"""
    forget_s: Interval = 600.0
    """time after which unused pheromones are forgotten; seconds"""
    booked_s: Interval = 60.0
    """time for which a node counts operators that ants have reserved as traffic, until it has measured them; seconds"""
    routing_ants: Annotated[int, Meta(ge=1, le=10_000)] = 40
    """routing ants that a leader sends for each chain of operators of a query"""
    scouting_ants: Annotated[int, Meta(ge=1, le=10_000)] = 24
    """scouting ants that it sends afterwards; more place better and cost more"""
    release_s: Annotated[float, Meta(gt=0, le=60)] = 0.01
    """pause between two ants that a leader sends; seconds"""
    enough: Annotated[float, Meta(gt=0, le=1)] = 0.8
    """share of ants whose return a leader awaits, within the waits that follow"""
    route_wait_s: Annotated[float, Meta(gt=0, le=60)] = 1.0
    """longest wait for routing ants after the last was sent; seconds"""
    scout_wait_s: Annotated[float, Meta(gt=0, le=60)] = 2.0
    """longest wait for scouting ants after the last was sent; seconds"""
    enforce_wait_s: Annotated[float, Meta(gt=0, le=60)] = 1.5
    """wait for the answer to an enforcement ant before it is sent again; seconds"""
    enforce_tries: Annotated[int, Meta(ge=1, le=100)] = 5
    """enforcement ants sent for one placement, if none answers"""
    update_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    """pause between two rounds of ants for a running query with --adapt ants; a quarter of it between looks at its latency;
    seconds"""
    beta: Annotated[float, Meta(ge=1, le=100)] = 1.25
    """factor by which a placement must be faster than the present one for the operators to move there, and by which latency
    must grow for ants to walk before their time"""
    rest_s: Annotated[float, Meta(ge=0, le=86_400)] = 120.0
    """time without ants for a query after its operators have moved; seconds"""
    finalists: Annotated[int, Meta(ge=1, le=100)] = 4
    """best placements that scouts report whose links are measured before one is chosen"""
