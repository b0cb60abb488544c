"""Profiles of the strategies in words, for ``sbon explain placement`` and docs/placement.md, which a test compares."""

from __future__ import annotations

import msgspec


class Profile(msgspec.Struct, frozen=True):
    """A strategy in words: its knowledge, its messages, how its queries adapt, and the loss if a node dies meanwhile."""

    knows: str
    sends: str
    adapts: str
    lost: str


NOTHING_SENT = "a probe to each host"
KNOWN = "the latencies between all nodes, as far as known, else by coordinates"
ENDS = "the query's ends and rates"

BY_HOSTS = "local, or full: also placed again by the strategy"
NOT_FULL = "local; full places it again by chance, and moves only if that pays"
BY_ANTS = "ants; local works against them"

REFUSED = "a dead host refuses, and the query is placed again without it"
NEXT_OWNER = "the next owner of the zone replaces a coordinator; else as for the others"
ANTS_LOST = "its ants; what they reserved ends by itself; a host as for the others"

PROFILES: dict[str, Profile] = {
    "relaxation": Profile("coordinates", NOTHING_SENT, BY_HOSTS, REFUSED),
    "hybrid": Profile(
        "coordinates, then measured latencies of candidates", "measurements, and a probe to each candidate", BY_HOSTS, REFUSED
    ),
    "optimal": Profile(KNOWN, NOTHING_SENT, BY_HOSTS, REFUSED),
    "ip-multicast": Profile("the routes between nodes", NOTHING_SENT, "never: daemons refuse it", REFUSED),
    "producer": Profile(ENDS, NOTHING_SENT, BY_HOSTS, REFUSED),
    "consumer": Profile(ENDS, NOTHING_SENT, BY_HOSTS, REFUSED),
    "random": Profile("the names of the nodes", NOTHING_SENT, NOT_FULL, REFUSED),
    "opb": Profile(
        "free cores of discovered nodes, measured links", "discoveries, and measurements of each pass", BY_HOSTS, REFUSED
    ),
    "min-delay": Profile(
        "free cores of discovered nodes, latencies", "discoveries; measurements if the delay is bounded", BY_HOSTS, REFUSED
    ),
    "bottom-up": Profile("the hierarchy", NOTHING_SENT, BY_HOSTS, REFUSED),
    "top-down": Profile("the hierarchy", NOTHING_SENT, BY_HOSTS, REFUSED),
    "ifcop": Profile("the hierarchy, latencies along it", NOTHING_SENT, BY_HOSTS, REFUSED),
    "local-search": Profile(KNOWN, NOTHING_SENT, BY_HOSTS, REFUSED),
    "edge": Profile("rates, measured links of the placement", "zones to coordinators, and measurements", BY_HOSTS, NEXT_OWNER),
    "edge+": Profile("rates and latencies between the ends", "zones to coordinators, and measurements", BY_HOSTS, NEXT_OWNER),
    "in-network": Profile(
        "rates and latencies, nodes on overlay routes", "zones to coordinators, and measurements", BY_HOSTS, NEXT_OWNER
    ),
    "in-network+": Profile(
        "rates and latencies, more nodes around the routes", "zones to coordinators, and measurements", BY_HOSTS, NEXT_OWNER
    ),
    "ants": Profile("nothing as a whole: each node its own queue and neighbours", "ants from node to node", BY_ANTS, ANTS_LOST),
    "centralized": Profile(f"{KNOWN}; queues of all nodes", "a probe to each node", BY_HOSTS, REFUSED),
}
"""By name; ``auto`` has those of the strategy that it takes."""
