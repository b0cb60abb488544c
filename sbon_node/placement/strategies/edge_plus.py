"""EDGE+: operators at sources and at the proxy, by rates and latencies (SAND, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

from sbon_node.placement.by_zones import by_latency_charge, place_by_zones
from sbon_node.placement.configurations import Bools, Configurations, Locations, apart, joined
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.problem import Placement, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.edge import cases, cheapest
from sbon_node.placement.zones import Zone


async def edge_plus(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Every link costs its rate x latency. Raises :class:`SbonError` ``no-room``, or ``delay-bound``."""
    return await place_by_zones("edge+", choose, problem, view, settings, charge=by_latency_charge)


def choose(zone: Zone, children: Sequence[Configurations], locations: Locations, allowed: Bools) -> Configurations:
    """The cheapest of EDGE's three cases and of the configurations that are as close together as the cheapest of these."""
    found, considered = four_cases(zone, children, locations, allowed)
    return cheapest(zone, found, considered, found.cost)


def four_cases(
    zone: Zone, children: Sequence[Configurations], locations: Locations, allowed: Bools
) -> tuple[Configurations, Bools]:
    """What each location costs, and those [n] that are considered."""
    found = joined(children, zone.rates, locations, allowed)
    considered = cases(zone, children, found, locations)
    by_edge = cheapest(zone, found, considered, found.cost).place
    together_ms = float(locations.latency_ms[found.children[:, by_edge], by_edge].sum())
    found, close = apart(found, children, zone.rates, locations, together_ms)
    return found, considered | close
