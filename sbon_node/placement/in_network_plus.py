"""IN-NETWORK+: as IN-NETWORK, but what an operator sends on counts as well when its place is chosen. Ours.

The paper's strategies choose the place of an operator by the links below it alone, so that it goes to what it reads, and its own
stream is charged only to whoever reads it. Here the link straight to the proxy is added, which is the least that its stream costs
if nothing more happens to it; and more locations are considered.
"""

from __future__ import annotations

from collections.abc import Sequence

from sbon_node.placement.by_zones import by_latency_charge, place_by_zones
from sbon_node.placement.configurations import Bools, Configurations, Locations
from sbon_node.placement.edge import cheapest
from sbon_node.placement.edge_plus import four_cases
from sbon_node.placement.in_network import between
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.problem import Placement, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.zones import Zone

K = 20


async def in_network_plus(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Raises :class:`SbonError` ``no-room``, or ``delay-bound``."""
    return await place_by_zones("in-network+", choose, problem, view, settings, charge=by_latency_charge, routed=True)


def choose(zone: Zone, children: Sequence[Configurations], locations: Locations, allowed: Bools) -> Configurations:
    """The cheapest of IN-NETWORK's locations with the way on to the proxy."""
    found, considered = four_cases(zone, children, locations, allowed)
    onward = found.cost + zone.sent_bytes_s * locations.charge[:, locations.proxy]
    return cheapest(zone, found, considered | between(children, found, locations, K), onward)
