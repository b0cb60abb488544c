"""SAND's strategies by name."""

from __future__ import annotations

from collections.abc import Mapping

from sbon_node.papers.sand.algorithm.edge import edge
from sbon_node.papers.sand.algorithm.edge_plus import edge_plus
from sbon_node.papers.sand.algorithm.in_network import in_network
from sbon_node.papers.sand.algorithm.in_network_plus import in_network_plus
from sbon_node.placement.strategies.profiles import BY_HOSTS, Profile
from sbon_node.placement.strategies.registry import Registered, Strategy

NEXT_OWNER = "the next owner of the zone replaces a coordinator; else as for the others"


def _by_zones(place: Strategy, knows: str) -> Registered:
    return Registered(place, Profile(knows, "zones to coordinators, and measurements", BY_HOSTS, NEXT_OWNER))


STRATEGIES: Mapping[str, Registered] = {
    "edge": _by_zones(edge, "rates, measured links of the placement"),
    "edge+": _by_zones(edge_plus, "rates and latencies between the ends"),
    "in-network": _by_zones(in_network, "rates and latencies, nodes on overlay routes"),
    "in-network+": _by_zones(in_network_plus, "rates and latencies, more nodes around the routes"),
}
