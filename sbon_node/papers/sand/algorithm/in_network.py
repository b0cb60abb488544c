"""IN-NETWORK: operators at sources, at the proxy, and on overlay nodes between them (SAND, section 3.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sbon_node.papers.sand.algorithm.by_zones import on_routes, place_by_zones
from sbon_node.papers.sand.algorithm.configurations import Bools, Configurations, Locations, convex, separation_ms
from sbon_node.papers.sand.algorithm.edge import cheapest
from sbon_node.papers.sand.algorithm.edge_plus import four_cases
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Placement
from sbon_protocol.zones import ZoneVertex

NAME = "in-network"

K = 10
"""Locations of the convex set considered for an operator; the paper gives no number."""


async def in_network(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query, also on nodes of the overlay's routes between proxy and sources (section 4.4).

    Raises :class:`SbonError` ``no-capacity``, or ``delay-bound``.
    """
    return await place_by_zones(NAME, problem, view, settings, between=on_routes)


def choose(vertex: ZoneVertex, children: Sequence[Configurations], locations: Locations, allowed: Bools) -> Configurations:
    """Choose the cheapest of EDGE+'s four cases and of the locations between the children."""
    configurations, considered = four_cases(vertex, children, locations, allowed)
    return cheapest(vertex, configurations, considered | between(children, configurations, locations, K), configurations.cost)


def between(children: Sequence[Configurations], found: Configurations, locations: Locations, k: int) -> Bools:
    """Return the ``k`` allowed locations [n] of the convex set nearest to all children's places together."""
    inside = np.flatnonzero(convex(children, locations) & np.isfinite(found.cost))
    order = np.argsort(separation_ms(children, locations)[inside], kind="stable")
    considered = np.zeros(len(found.cost), dtype=np.bool_)
    considered[inside[order[:k]]] = True
    return considered
