"""IN-NETWORK+: as IN-NETWORK, but what an operator sends on counts when its place is chosen, among more locations. Ours.

The paper's strategies choose the place of an operator by the links below it alone, so that it goes to what it reads, and its own
stream is charged only to whoever reads it. Here the link straight to the proxy is added, which is what its stream costs if
nothing more happens to it. And as routes by prefixes seldom pass what lies best, those nodes are considered as well that would be
best if the query were one operator: with all members known, they cost nothing to find.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sbon_node.placement.by_zones import by_latency_charge, on_routes, place_by_zones
from sbon_node.placement.configurations import Bools, Configurations, Locations
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.problem import Placement, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.consumer import consumer_of
from sbon_node.placement.strategies.edge import cheapest
from sbon_node.placement.strategies.edge_plus import four_cases
from sbon_node.placement.strategies.in_network import between
from sbon_node.placement.zones import Zone

K = 20
"""Locations between the children that are considered for an operator, and nodes for the query as one."""


async def in_network_plus(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Raises :class:`SbonError` ``no-room``, or ``delay-bound``."""
    return await place_by_zones("in-network+", choose, problem, view, settings, charge=by_latency_charge, between=well_placed)


def well_placed(problem: PlacementProblem, view: NetworkView) -> set[str]:
    """The nodes on the overlay's routes, the ``K`` to which all sources' streams cost least, and the ``K`` for which that is so
    with what the consumer is sent from there."""
    nodes = [node for node in view.nodes() if view.coordinate(node) is not None]
    proxy = consumer_of(problem)
    sent = [(problem.pinned[edge.source], edge.rate_bytes_s) for edge in problem.edges if edge.source in problem.pinned]
    out = sum(edge.rate_bytes_s for edge in problem.edges if edge.target in problem.pinned)
    if not nodes or not sent:
        return on_routes(problem, view)
    arriving = np.array([rate for _, rate in sent]) @ view.latencies_ms([node for node, _ in sent], nodes)
    leaving = out * view.latencies_ms([proxy], nodes)[0]
    best = {nodes[i] for costs in (arriving, arriving + leaving) for i in np.argsort(costs, kind="stable")[:K].tolist()}
    return best | on_routes(problem, view)


def choose(zone: Zone, children: Sequence[Configurations], locations: Locations, allowed: Bools) -> Configurations:
    """The cheapest of IN-NETWORK's locations with the way on to the proxy."""
    found, considered = four_cases(zone, children, locations, allowed)
    onward = found.cost + zone.sent_bytes_s * locations.charge[:, locations.proxy]
    return cheapest(zone, found, considered | between(children, found, locations, K), onward)
