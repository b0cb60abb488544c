"""RELAXATION: operators as bodies between springs in the latency space, then mapped to nodes (SBON, section 3.1).

The paper's Figure 7 has two errors as printed. Its force sums (S - S_neighbour) x DR and *adds* it to S, which pushes an operator
away from its neighbours without end; the difference must be S_neighbour - S. Its step delta is multiplied by the force in the
unit of the rates, which is stable only while delta x sum DR < 2; here the step is delta / sum DR, so that units do not matter.
The loop ends when |F| < F_t, as in the figure; the prose says the opposite.

RELAXATION minimises sum DR x Lat^2 (equation 3), which has one minimum, and not the network usage itself.
"""

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from sbon_node.placement.model.network_view import NetworkView, Point
from sbon_node.placement.model.problem import Edge, PlacementProblem
from sbon_node.placement.selection.mapping import bounded, choose_host
from sbon_node.placement.selection.partial import Partial
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.placement import Assignment, Placement
from sbon_protocol.errors import SbonError

Vector = npt.NDArray[np.float64]
_KILOBYTE = 1000.0


def virtual_coordinate(
    operators: Sequence[str], edges: Sequence[Edge], pinned: Mapping[str, Point], rng: random.Random, settings: PlacementSettings
) -> dict[str, Point]:
    """Return the virtual coordinate of each operator (VIRTUAL-PLACE, Figure 7, corrected).

    Coordinates are in milliseconds, in the dimensions of ``pinned``, which holds those of producers and consumers. In each round,
    every operator in turn moves by ``delta`` of the distance to the rate-weighted mean of its neighbours. The loop ends when no
    force exceeds ``force_threshold`` (KB/s x ms) or after ``max_iterations`` rounds. A link without a rate pulls with one byte
    per second, so that every operator has a coordinate.
    """
    dimensions = len(next(iter(pinned.values()))) if pinned else 0
    positions: dict[str, Vector] = {name: np.asarray(point, dtype=np.float64) for name, point in pinned.items()}
    for name in operators:
        positions[name] = np.array([rng.uniform(-1.0, 1.0) * settings.origin_ms for _ in range(dimensions)])
    springs: dict[str, list[tuple[str, float]]] = {name: [] for name in operators}
    for edge in edges:
        rate = max(edge.rate_bytes_s, 1.0) / _KILOBYTE
        for vertex, other in ((edge.source, edge.target), (edge.target, edge.source)):
            if vertex in springs and other in positions:
                springs[vertex].append((other, rate))
    for _ in range(settings.max_iterations):
        strongest = max((_relax(name, springs[name], positions, settings.delta) for name in operators), default=0.0)
        if strongest < settings.force_threshold:
            break
    return {name: tuple(float(x) for x in positions[name]) for name in operators}


def _relax(name: str, springs: Sequence[tuple[str, float]], positions: dict[str, Vector], delta: float) -> float:
    """Move one operator a step; return the force on it before, in KB/s x ms."""
    if not springs:
        return 0.0
    position = positions[name]
    force = np.zeros_like(position)
    for neighbour, rate in springs:
        force += (positions[neighbour] - position) * rate
    positions[name] = position + force * (delta / sum(rate for _, rate in springs))
    return math.sqrt(float(force @ force))


def pinned_positions(problem: PlacementProblem, view: NetworkView) -> dict[str, Point]:
    """Return the coordinates of producers and consumers; vertices without a known coordinate exert no force.

    Raises :class:`SbonError` ``no-coordinate`` where none is known.
    """
    positions = {vertex: point for vertex, node in problem.pinned.items() if (point := view.coordinate(node)) is not None}
    if not positions:
        nodes = ", ".join(sorted(set(problem.pinned.values())))
        hint = "wait some seconds until they have measured their neighbours, or use the strategy consumer"
        raise SbonError("no-coordinate", f"the places of {nodes} are not known yet", where="placement", hint=hint)
    return positions


async def relaxation(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Place the whole query: relax all operators, then map each to a node, sources' side first.

    A mapped operator stays on its host while the later ones are mapped. The virtual coordinates are not relaxed again: the paper
    maps each operator from its own. The paper has no bound on delay; here the nearest node that keeps a given bound is taken.
    """
    names = [operator.id for operator in problem.operators]
    rests = virtual_coordinate(names, problem.edges, pinned_positions(problem, view), view.rng, settings)

    async def attempt(partial: Partial) -> list[Assignment]:
        assignments: list[Assignment] = []
        for operator in problem.operators:
            rest = rests[operator.id]
            assignments.append(await choose_host(operator, rest, view, settings, assignments, problem.operators, partial=partial))
        return assignments

    return await bounded("relaxation", problem, view, settings, attempt)
