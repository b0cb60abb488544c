"""ANTS's strategies by name."""

from __future__ import annotations

from collections.abc import Mapping

from sbon_node.papers.ants.algorithm.centralized import centralized
from sbon_node.papers.ants.algorithm.strategy import ants
from sbon_node.placement.strategies.profiles import BY_HOSTS, KNOWN, REFUSED, Profile
from sbon_node.placement.strategies.registry import Registered

BY_ANTS = "ants; local works against them"
ANTS_LOST = "its ants; what they reserved ends by itself; a host as for the others"

STRATEGIES: Mapping[str, Registered] = {
    "ants": Registered(
        ants,
        Profile("nothing as a whole: each node its own queue and neighbours", "ants from node to node", BY_ANTS, ANTS_LOST),
    ),
    "centralized": Registered(centralized, Profile(f"{KNOWN}; queues of all nodes", "a probe to each node", BY_HOSTS, REFUSED)),
}
