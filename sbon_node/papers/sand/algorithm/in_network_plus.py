"""IN-NETWORK+: IN-NETWORK with an operator's output in the cost, and with more locations. Ours.

The paper's strategies choose an operator's place by the links below it alone, so it goes to its inputs, and its own stream is
charged only to its reader. Here the direct link to the proxy is added: that is the cost of the stream if nothing more happens to
it. Routes by prefixes seldom pass the best nodes. So the nodes that would be best if the query were one operator are considered
as well; with all members known, that needs no probes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sbon_node.papers.sand.algorithm.by_zones import on_routes, place_by_zones
from sbon_node.papers.sand.algorithm.configurations import Bools, Configurations, Locations
from sbon_node.papers.sand.algorithm.edge import cheapest
from sbon_node.papers.sand.algorithm.edge_plus import four_cases
from sbon_node.papers.sand.algorithm.in_network import between
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.sbon.consumer import consumer_of
from sbon_protocol.api.placement import Placement
from sbon_protocol.zones import ZoneVertex

NAME = "in-network+"

K = 20
"""Locations between the children considered for an operator, and nodes for the query as one operator."""


async def in_network_plus(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query. Raises :class:`SbonError` ``no-capacity``, or ``delay-bound``."""
    return await place_by_zones(NAME, problem, view, settings, between=well_placed)


def well_placed(problem: PlacementProblem, view: NetworkView) -> set[str]:
    """Return the nodes on the overlay's routes, and twice the ``K`` best nodes for the whole query.

    The first ``K`` have the least cost of all sources' streams, the others that of these and the stream to the consumer.
    """
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


def choose(vertex: ZoneVertex, children: Sequence[Configurations], locations: Locations, allowed: Bools) -> Configurations:
    """Choose the cheapest of IN-NETWORK's locations, with the link to the proxy added."""
    configurations, considered = four_cases(vertex, children, locations, allowed)
    onward = configurations.cost + vertex.sent_bytes_s * locations.charge[:, locations.proxy]
    return cheapest(vertex, configurations, considered | between(children, configurations, locations, K), onward)
