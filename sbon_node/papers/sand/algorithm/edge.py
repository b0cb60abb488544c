"""EDGE: operators at sources and at the proxy, by rates alone (SAND, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sbon_node.papers.sand.algorithm.by_zones import place_by_zones
from sbon_node.papers.sand.algorithm.configurations import Bools, Configurations, DeadEndError, Locations, joined
from sbon_node.placement.model.instance import Floats, Ints
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Placement
from sbon_protocol.zones import ZoneVertex

NAME = "edge"


async def edge(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the query; every link between two nodes costs its rate, however long it is (equation 3).

    Raises :class:`SbonError` ``no-capacity``, or ``delay-bound`` where no placement keeps the bound.
    """
    return await place_by_zones(NAME, problem, view, settings)


def between_nodes(latency_ms: Floats) -> Floats:
    """Return 1 between different nodes, 0 within a node."""
    charge: Floats = np.ones_like(latency_ms)
    np.fill_diagonal(charge, 0.0)
    return charge


def choose(vertex: ZoneVertex, children: Sequence[Configurations], locations: Locations, allowed: Bools) -> Configurations:
    """Choose the cheapest of the three cases of :func:`cases` (equation 6). If all break bounds, choose among all locations."""
    configurations = joined(children, rates(vertex), locations, allowed)
    return cheapest(vertex, configurations, cases(vertex, children, configurations, locations), configurations.cost)


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
