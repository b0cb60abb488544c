"""IN-NETWORK: operators at sources, at the proxy, and on overlay nodes between them (SAND, section 3.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sbon_node.placement.by_zones import by_latency_charge, on_routes, place_by_zones
from sbon_node.placement.configurations import Bools, Configurations, Locations, convex, separation_ms
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.problem import Placement, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.edge import cheapest
from sbon_node.placement.strategies.edge_plus import four_cases
from sbon_node.placement.zones import Zone

K = 10
"""Locations of the convex set that are considered for an operator; the paper leaves open how many."""


async def in_network(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """The nodes between are those of the overlay's routes between the proxy and the sources (section 4.4). Raises
    :class:`SbonError` ``no-room``, or ``delay-bound``."""
    return await place_by_zones("in-network", choose, problem, view, settings, charge=by_latency_charge, between=on_routes)


def choose(zone: Zone, children: Sequence[Configurations], locations: Locations, allowed: Bools) -> Configurations:
    """The cheapest of EDGE+'s four cases and of the locations between the children."""
    found, considered = four_cases(zone, children, locations, allowed)
    return cheapest(zone, found, considered | between(children, found, locations, K), found.cost)


def between(children: Sequence[Configurations], found: Configurations, locations: Locations, k: int) -> Bools:
    """Of the convex set of the children's places, as far as the operator may be there, the ``k`` locations nearest to all of them
    together, [n]."""
    inside = np.flatnonzero(convex(children, locations) & np.isfinite(found.cost))
    order = np.argsort(separation_ms(children, locations)[inside], kind="stable")
    considered = np.zeros(len(found.cost), dtype=np.bool_)
    considered[inside[order[:k]]] = True
    return considered
