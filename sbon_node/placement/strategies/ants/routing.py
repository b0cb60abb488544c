"""Routing ants (ANTS, sections 3.4 and 3.5) as steps at a cell: a daemon may send them as messages.

A step is given the cell and the ant, and hands back the ant and where it goes next. Forward, an ant looks for its destination and
notes how long each hop took; backward, it reinforces the hops it came by.
"""

from __future__ import annotations

import random

import msgspec

from sbon_node.placement.strategies.ants.cell import Cell

MOST_STEPS = 256


class RoutingAnt(msgspec.Struct, frozen=True, kw_only=True):
    """``path`` from its source to where it is; ``hops_ms``, one fewer, what each hop took: the wait at its first node's server,
    and the link; ``steps`` are all that it ever took, forgotten ones as well. On its way back it is ``at`` the path's node of
    that number."""

    destination: str
    path: tuple[str, ...]
    hops_ms: tuple[float, ...] = ()
    steps: int = 0
    at: int = -1

    @property
    def age_ms(self) -> float:
        return sum(self.hops_ms)


def forward(cell: Cell, ant: RoutingAnt, rng: random.Random, now: float) -> tuple[RoutingAnt, str]:
    """From a cell that is not the destination to a neighbour by its pheromone, of those not visited if there are any."""
    chosen = cell.table(ant.destination, now).choose(rng, ant.path)
    hop_ms = cell.waiting_ms + cell.neighbours[chosen]
    return msgspec.structs.replace(ant, path=(*ant.path, chosen), hops_ms=(*ant.hops_ms, hop_ms), steps=ant.steps + 1), chosen


def arrive(cell: Cell, ant: RoutingAnt) -> RoutingAnt | None:
    """At ``cell``: forgets a cycle, and dies (None) of one that took more than half of its life, and of too many steps. At the
    destination it turns round."""
    first = ant.path.index(cell.name)
    if first < len(ant.path) - 1:
        if sum(ant.hops_ms[first:]) > ant.age_ms / 2:
            return None
        ant = msgspec.structs.replace(ant, path=ant.path[: first + 1], hops_ms=ant.hops_ms[:first])
    if ant.steps > MOST_STEPS:
        return None
    return msgspec.structs.replace(ant, at=len(ant.path) - 2) if cell.name == ant.destination else ant


def backward(cell: Cell, ant: RoutingAnt, now: float) -> tuple[RoutingAnt, str | None]:
    """At the path's node ``ant.at``: reinforces the next hop by what it took from here to the destination. Next is the node
    before; None at the source, where the ant dies."""
    trip_ms = sum(ant.hops_ms[ant.at :])
    cell.table(ant.destination, now).reinforce(ant.path[ant.at + 1], trip_ms, now)
    before = ant.path[ant.at - 1] if ant.at > 0 else None
    return msgspec.structs.replace(ant, at=ant.at - 1), before
