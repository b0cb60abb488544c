"""Routing ants (ANTS, sections 3.4 and 3.5) as steps at a cell; a daemon may send them as messages.

A step takes the cell and the ant, and returns the ant and its next hop. Forward, an ant looks for its destination and records the
time of each hop; backward, it reinforces the hops that it took.
"""

import random

import msgspec

from sbon_node.papers.ants.algorithm.cell import Cell

MOST_STEPS = 256


class RoutingAnt(msgspec.Struct, frozen=True, kw_only=True):
    """A routing ant.

    ``path`` runs from its source to its current node. ``hops_ms``, shorter by one, holds the time of each hop: the wait at the
    server of its first node, plus the link. ``steps`` counts all hops ever taken, also forgotten ones. On its way back, the ant
    is at the path's node number ``at``.
    """

    destination: str
    path: tuple[str, ...]
    hops_ms: tuple[float, ...] = ()
    steps: int = 0
    at: int = -1

    @property
    def age_ms(self) -> float:
        return sum(self.hops_ms)


def forward(cell: Cell, ant: RoutingAnt, rng: random.Random, now: float) -> tuple[RoutingAnt, str]:
    """Move the ant to a neighbour by its pheromone, among those not visited if any. The cell is not the destination."""
    chosen = cell.table(ant.destination, now).choose(rng, ant.path)
    hop_ms = cell.waiting_ms + cell.neighbours[chosen]
    return msgspec.structs.replace(ant, path=(*ant.path, chosen), hops_ms=(*ant.hops_ms, hop_ms), steps=ant.steps + 1), chosen


def arrive(cell: Cell, ant: RoutingAnt) -> RoutingAnt | None:
    """Receive the ant at ``cell``; a cycle is removed from its path.

    The ant dies (None) of a cycle that took more than half of its life, or of too many steps. At the destination it turns round.
    """
    first = ant.path.index(cell.name)
    if first < len(ant.path) - 1:
        if sum(ant.hops_ms[first:]) > ant.age_ms / 2:
            return None
        ant = msgspec.structs.replace(ant, path=ant.path[: first + 1], hops_ms=ant.hops_ms[:first])
    if ant.steps > MOST_STEPS:
        return None
    return msgspec.structs.replace(ant, at=len(ant.path) - 2) if cell.name == ant.destination else ant


def backward(cell: Cell, ant: RoutingAnt, now: float) -> tuple[RoutingAnt, str | None]:
    """Reinforce the next hop at the path's node ``ant.at``, by the time from here to the destination.

    Return the node before as next hop; None at the source, where the ant dies.
    """
    trip_ms = sum(ant.hops_ms[ant.at :])
    cell.table(ant.destination, now).reinforce(ant.path[ant.at + 1], trip_ms, now)
    before = ant.path[ant.at - 1] if ant.at > 0 else None
    return msgspec.structs.replace(ant, at=ant.at - 1), before
