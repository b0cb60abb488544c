"""The rules of SAND's strategies by name, for coordinators: a message names the strategy."""

from __future__ import annotations

from sbon_node.placement.model.instance import Floats
from sbon_node.placement.strategies.sand import edge, edge_plus, in_network, in_network_plus
from sbon_node.placement.strategies.sand.coordinator import Rule


def by_latency_charge(latency_ms: Floats) -> Floats:
    """Return the charge of a byte over links [n, n]: their latency in milliseconds."""
    return latency_ms


RULES = {
    edge.NAME: Rule(edge.choose, edge.between_nodes),
    edge_plus.NAME: Rule(edge_plus.choose, by_latency_charge),
    in_network.NAME: Rule(in_network.choose, by_latency_charge),
    in_network_plus.NAME: Rule(in_network_plus.choose, by_latency_charge),
}
