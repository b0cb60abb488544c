"""SAND's strategies, and the rule by which the coordinators of each choose places (SAND, section 3).

EDGE has operators at sources and at the proxy, by rates alone (section 3.2); EDGE+ by rates and latencies (section 3.3).
IN-NETWORK has them on overlay nodes between these, too (section 3.4).

IN-NETWORK+ is ours: it has an operator's output in the cost, and more locations. The paper's strategies choose an operator's
place by the links below it alone, so it goes to its inputs, and its own stream is charged only to its reader. Here the direct
link to the proxy is added: that is the cost of the stream if nothing more happens to it. Routes by prefixes seldom pass the best
nodes. So the nodes that would be best if the query were one operator are considered as well; with all members known, that needs
no probes.
"""

from collections.abc import Sequence

import numpy as np

from sbon_node.papers.sand.algorithm.by_zones import on_routes, place_by_zones
from sbon_node.papers.sand.algorithm.configurations import (
    Bools,
    Configurations,
    DeadEndError,
    Locations,
    apart,
    convex,
    joined,
    separation_ms,
)
from sbon_node.papers.sand.algorithm.coordinator import Rule
from sbon_node.placement.model.instance import Floats, Ints
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.sbon.baselines import consumer_of
from sbon_protocol.api.placement import Placement
from sbon_protocol.papers.sand import ZoneVertex

K = 10
"""Locations of the convex set considered for an operator; the paper gives no number."""
K_PLUS = 20
"""The same for IN-NETWORK+, and nodes for the query as one operator."""


async def edge(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query; every link between two nodes costs its rate, however long it is (equation 3).

    As the others, it raises :class:`SbonError` ``no-capacity``, or ``delay-bound`` where no placement keeps the bound.
    """
    return await place_by_zones("edge", problem, view, settings)


async def edge_plus(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query; every link costs its rate x latency."""
    return await place_by_zones("edge+", problem, view, settings)


async def in_network(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query, also on nodes of the overlay's routes between proxy and sources (section 4.4)."""
    return await place_by_zones("in-network", problem, view, settings, between=on_routes)


async def in_network_plus(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query, also on nodes of these routes and those of :func:`well_placed`."""
    return await place_by_zones("in-network+", problem, view, settings, between=well_placed)


def well_placed(problem: PlacementProblem, view: NetworkView) -> set[str]:
    """Return the nodes on the overlay's routes, and twice the ``K_PLUS`` best nodes for the whole query.

    The first ``K_PLUS`` have the least cost of all sources' streams, the others that of these and the stream to the consumer.
    """
    nodes = [node for node in view.nodes() if view.coordinate(node) is not None]
    proxy = consumer_of(problem)
    sent = [(problem.pinned[edge.source], edge.rate_bytes_s) for edge in problem.edges if edge.source in problem.pinned]
    out = sum(edge.rate_bytes_s for edge in problem.edges if edge.target in problem.pinned)
    if not nodes or not sent:
        return on_routes(problem, view)
    arriving = np.array([rate for _, rate in sent]) @ view.latencies_ms([node for node, _ in sent], nodes)
    leaving = out * view.latencies_ms([proxy], nodes)[0]
    best = {nodes[i] for costs in (arriving, arriving + leaving) for i in np.argsort(costs, kind="stable")[:K_PLUS].tolist()}
    return best | on_routes(problem, view)


# -- The places that coordinators choose ------------------------------------------------------------------------------


def by_cases(vertex: ZoneVertex, children: Sequence[Configurations], locations: Locations, allowed: Bools) -> Configurations:
    """Choose the cheapest of the three cases of :func:`cases` (equation 6). If all break bounds, choose among all locations."""
    configurations = joined(children, rates(vertex), locations, allowed)
    return cheapest(vertex, configurations, cases(vertex, children, configurations, locations), configurations.cost)


def by_more_cases(vertex: ZoneVertex, children: Sequence[Configurations], locations: Locations, allowed: Bools) -> Configurations:
    """Choose the cheapest of EDGE's cases and a fourth: configurations as close together as the cheapest of the three."""
    configurations, considered = four_cases(vertex, children, locations, allowed)
    return cheapest(vertex, configurations, considered, configurations.cost)


def by_convex(vertex: ZoneVertex, children: Sequence[Configurations], locations: Locations, allowed: Bools) -> Configurations:
    """Choose the cheapest of EDGE+'s four cases and of the locations between the children."""
    configurations, considered = four_cases(vertex, children, locations, allowed)
    return cheapest(vertex, configurations, considered | between(children, configurations, locations, K), configurations.cost)


def by_more_locations(
    vertex: ZoneVertex, children: Sequence[Configurations], locations: Locations, allowed: Bools
) -> Configurations:
    """Choose the cheapest of IN-NETWORK's locations, with the link to the proxy added."""
    configurations, considered = four_cases(vertex, children, locations, allowed)
    onward = configurations.cost + vertex.sent_bytes_s * locations.charge[:, locations.proxy]
    return cheapest(vertex, configurations, considered | between(children, configurations, locations, K_PLUS), onward)


def cases(vertex: ZoneVertex, children: Sequence[Configurations], found: Configurations, locations: Locations) -> Bools:
    """Return which locations [n] are considered.

    These are the place of the children with the greatest total rate (equation 4), the source locations common to all children,
    and the proxy.
    """
    considered = np.zeros(len(found.cost), dtype=np.bool_)
    at: dict[int, float] = {}
    for child, rate in zip(children, rates(vertex), strict=True):
        if np.isfinite(found.cost[child.place]):
            at[child.place] = at.get(child.place, 0.0) + rate
    if at:
        considered[max(at, key=lambda place: (at[place], -place))] = True
    considered[common(children)] = True
    considered[locations.proxy] = True
    return considered


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


def between(children: Sequence[Configurations], found: Configurations, locations: Locations, k: int) -> Bools:
    """Return the ``k`` allowed locations [n] of the convex set nearest to all children's places together."""
    inside = np.flatnonzero(convex(children, locations) & np.isfinite(found.cost))
    order = np.argsort(separation_ms(children, locations)[inside], kind="stable")
    considered = np.zeros(len(found.cost), dtype=np.bool_)
    considered[inside[order[:k]]] = True
    return considered


def rates(vertex: ZoneVertex) -> list[float]:
    """Return what each child sends the operator; bytes per second."""
    return [link.rate_bytes_s for link in vertex.children]


def common(children: Sequence[Configurations]) -> Ints:
    """Return the locations [k] of leaves that all children have in common."""
    leaves = children[0].leaves
    for child in children[1:]:
        leaves = np.intersect1d(leaves, child.leaves)
    return leaves


def cheapest(vertex: ZoneVertex, found: Configurations, considered: Bools, cost: Floats) -> Configurations:
    """Choose the considered location where ``cost`` [n] is least.

    If none of these is allowed and in time, choose among all locations. Raises :class:`DeadEndError`.
    """
    among = considered & np.isfinite(cost)
    if not among.any():
        among = np.isfinite(cost)
    if not among.any():
        raise DeadEndError(vertex.vertex)
    return found._replace(place=int(np.where(among, cost, np.inf).argmin()))


# -- Charges of a byte over links [n, n] ------------------------------------------------------------------------------


def between_nodes(latency_ms: Floats) -> Floats:
    """Return 1 between different nodes, 0 within a node."""
    charge: Floats = np.ones_like(latency_ms)
    np.fill_diagonal(charge, 0.0)
    return charge


def by_latency(latency_ms: Floats) -> Floats:
    """Return the latency in milliseconds."""
    return latency_ms


RULES = {
    "edge": Rule(by_cases, between_nodes),
    "edge+": Rule(by_more_cases, by_latency),
    "in-network": Rule(by_convex, by_latency),
    "in-network+": Rule(by_more_locations, by_latency),
}
"""By the strategy's name, which messages to coordinators have."""
