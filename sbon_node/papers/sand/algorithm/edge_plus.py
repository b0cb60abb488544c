"""EDGE+: operators at sources and at the proxy, by rates and latencies (SAND, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

from sbon_node.papers.sand.algorithm.by_zones import place_by_zones
from sbon_node.papers.sand.algorithm.configurations import Bools, Configurations, Locations, apart, joined
from sbon_node.papers.sand.algorithm.edge import cases, cheapest, rates
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Placement
from sbon_protocol.zones import ZoneVertex

NAME = "edge+"


async def edge_plus(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query; every link costs its rate x latency. Raises :class:`SbonError` ``no-capacity``, or ``delay-bound``."""
    return await place_by_zones(NAME, problem, view, settings)


def choose(vertex: ZoneVertex, children: Sequence[Configurations], locations: Locations, allowed: Bools) -> Configurations:
    """Choose the cheapest of EDGE's three cases and a fourth.

    The fourth are the configurations at least as close together as the cheapest of the three.
    """
    configurations, considered = four_cases(vertex, children, locations, allowed)
    return cheapest(vertex, configurations, considered, configurations.cost)


def four_cases(
    vertex: ZoneVertex, children: Sequence[Configurations], locations: Locations, allowed: Bools
) -> tuple[Configurations, Bools]:
    """Return the cost of each location, and the locations [n] considered."""
    found = joined(children, rates(vertex), locations, allowed)
    considered = cases(vertex, children, found, locations)
    by_edge = cheapest(vertex, found, considered, found.cost).place
    together_ms = float(locations.latency_ms[found.children[:, by_edge], by_edge].sum())
    found, close = apart(found, children, rates(vertex), locations, together_ms)
    return found, considered | close
