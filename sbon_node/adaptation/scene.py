"""An operator between its neighbours, as its host sees it now: links, rates, latencies, virtual coordinate, other hosts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from sbon_node.adaptation.decision import Link, Offer, usage_of, way_of
from sbon_node.adaptation.view import AdaptingView
from sbon_node.placement.model.network_view import Point
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers.geometric_median import median_positions
from sbon_node.placement.strategies.hybrid.hybrid import hybrid
from sbon_node.workflow.context import Context
from sbon_protocol.api.objective import Bounds
from sbon_protocol.api.operators import Needs
from sbon_protocol.errors import SbonError

HERE = "here"
"""Vertex that makes the present host a candidate. No operator, source or sink has this id."""

LATENCY_UNKNOWN = "latency-unknown"
"""Code of a scene without the latency to a neighbour."""


class Scene(NamedTuple):
    """The links of an operator, the latencies from its host to their nodes, its virtual coordinate, and usage as it is."""

    links: tuple[Link, ...]
    latencies_ms: dict[str, float]
    virtual: Point
    usage: float

    @property
    def nodes(self) -> list[str]:
        return sorted(self.latencies_ms)

    @property
    def way_ms(self) -> float:
        return way_of(self.links, self.latencies_ms)


async def scene_of(
    context: Context, operator: str, links: tuple[Link, ...], view: AdaptingView, *, at_a_glance: bool = False
) -> Scene:
    """Measure the links of an operator, and return what its host sees; ``at_a_glance`` with one ping to each neighbour.

    Raises :class:`SbonError` ``latency-unknown`` if a neighbour gives no answer, or none has a coordinate.
    """
    nodes = sorted({link.node for link in links})
    latencies_ms = await (view.glanced_ms(nodes) if at_a_glance else view.measured_ms(context.name, nodes))
    if silent := [node for node in nodes if node not in latencies_ms]:
        raise SbonError(LATENCY_UNKNOWN, f"{', '.join(silent)} gives no answer", where=operator)
    known = {link.vertex: context.directory.coordinate(link.node) for link in links}
    points = {vertex: coordinate.vector for vertex, coordinate in known.items() if coordinate is not None}
    if not points:
        raise SbonError(LATENCY_UNKNOWN, "none of its neighbours has a coordinate", where=operator)
    virtual = median_positions([operator], _edges(operator, links), points)[operator]
    return Scene(links, latencies_ms, virtual, usage_of(links, latencies_ms))


def usage_at(context: Context, nodes: Iterable[str], links: tuple[Link, ...]) -> dict[str, float]:
    """Return the usage of the links with the operator at each of these nodes, by estimates; without those that are unknown."""
    usages = {}
    for node in nodes:
        latencies_ms = {link.node: context.directory.estimate_rtt_ms(node, link.node).one_way_ms for link in links}
        known = {other: ms for other, ms in latencies_ms.items() if ms is not None}
        if len(known) == len(latencies_ms):
            usages[node] = usage_of(links, known)
    return usages


async def best_host(
    operator: str,
    needs: Needs,
    scene: Scene,
    refused: Collection[str],
    view: AdaptingView,
    placement: PlacementSettings,
    *,
    here: str,
    pairs: int,
    most_way_ms: float | None = None,
) -> Offer | None:
    """Return the best other host with capacity by the strategy hybrid, with the neighbours where they are.

    None if the operator is at its best host already; this node is a candidate unless it is among ``refused``. At most some
    ``pairs`` of nodes are measured. With ``most_way_ms`` the longest way through the operator is at most that. Raises
    :class:`SbonError` ``no-capacity``, ``delay-bound`` where no way is so short, and ``latency-unknown`` for a host that gives no
    answer.
    """
    problem = PlacementProblem(
        pinned={**{link.vertex: link.node for link in scene.links}, HERE: here},
        operators=(Operator(id=operator, needs=needs, refused=frozenset(refused)),),
        edges=_edges(operator, scene.links),
        bounds=Bounds(max_delay_ms=most_way_ms),
    )
    candidates = max(2, pairs // len(scene.latencies_ms))
    placed = await hybrid(problem, view, msgspec.structs.replace(placement, candidates=candidates))
    node = placed.hosts()[operator]
    if node == here:
        return None
    there_ms, path_ms = await view.measured_ms(node, scene.nodes), await view.measured_ms(here, [node])
    if not path_ms or len(there_ms) < len(scene.nodes):
        raise SbonError(LATENCY_UNKNOWN, f"{node} gives no answer", where=operator)
    return Offer(node, usage_of(scene.links, there_ms), way_of(scene.links, there_ms), path_ms[node])


def _edges(operator: str, links: tuple[Link, ...]) -> tuple[Edge, ...]:
    return tuple(
        Edge(link.vertex, operator, link.bytes_s) if link.reads else Edge(operator, link.vertex, link.bytes_s) for link in links
    )
