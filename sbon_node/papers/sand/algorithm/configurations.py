"""Costs of an operator and the query below it, with the operator at each location (SAND, sections 3.2 to 3.5).

SAND is Ahmad and Cetintemel, "Network-Aware Query Processing for Stream-based Applications", VLDB 2004. A configuration of an
operator is its place, the places of its children then, and so on down to the sources. For each location of the operator, the
cheapest configuration is kept. All arrays are over the considered locations, by number.

The bound on delay is wrong as printed in section 3.5: it covers only the path to the operator, so the last part, to the proxy,
can break it. As section 4.5 does, this module assumes that the rest of the path is the direct path to the proxy. So every kept
configuration can still be finished at the proxy. A query is never refused for its delay if all its sources reach the proxy within
the bound.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.model.instance import Floats, Ints

Bools = NDArray[np.bool_]

MAX_COMBINATIONS = 1024
"""Most combinations of children's places tried with an operator at one location; the nearest places are preferred."""


class Locations(NamedTuple):
    """The considered locations, ``nodes`` [n] by number.

    ``latency_ms`` [n, n] is one-way. ``charge`` [n, n] is the cost of a byte per second between two locations. ``proxy`` is the
    number of the consumer's node. ``slack_ms`` [n] is the longest delay from a source to each location that keeps the bound, if
    the path then goes directly to the proxy.
    """

    nodes: Sequence[str]
    latency_ms: Floats
    charge: Floats
    proxy: int
    slack_ms: Floats


class Configurations(NamedTuple):
    """The configurations of one operator or source, by its location.

    ``cost`` [n] is that of all links below it, infinite where unknown or not allowed. ``delay_ms`` [n] is the longest delay from
    a source to it. ``children`` [children, n] are their places. ``place`` is the chosen location. ``leaves`` are the locations of
    its sources, sorted. ``free`` says that its reader is in the same zone, so it has no place yet: it may be anywhere.
    """

    cost: Floats
    delay_ms: Floats
    children: Ints
    place: int
    leaves: Ints
    free: bool = False


class DeadEndError(Exception):
    """The operator ``operator`` has no possible location."""

    def __init__(self, operator: str) -> None:
        super().__init__(operator)
        self.operator = operator


def fixed(place: int, delay_ms: float, locations: int) -> Configurations:
    """Return the configurations of a source, or of an operator with several readers.

    It stays at its place, and the links below it cost nothing more.
    """
    cost, delays = np.full(locations, np.inf), np.zeros(locations)
    cost[place], delays[place] = 0.0, delay_ms
    return Configurations(cost, delays, np.empty((0, locations), dtype=int), place, np.array([place]))


def joined(children: Sequence[Configurations], rates: Sequence[float], locations: Locations, allowed: Bools) -> Configurations:
    """Return the configurations by equation 5.

    With the operator at each location, each child stays or moves there, whichever costs less. A child of the same zone is where
    both together cost least.

    ``rates`` are the children's, bytes per second; ``allowed`` [n] says where the operator may be. The place is not chosen yet.
    """
    count = len(locations.nodes)
    cost, delay_ms, itself = np.where(allowed, 0.0, np.inf), np.zeros(count), np.arange(count)
    child_locations = np.empty((len(children), count), dtype=int)
    for row, (child, rate) in enumerate(zip(children, rates, strict=True)):
        if child.free:
            at, child_cost, reached_ms = _best(child, rate, locations)
            cost, delay_ms, child_locations[row] = cost + child_cost, np.maximum(delay_ms, reached_ms), at
            continue
        stays_ms = child.delay_ms[child.place] + locations.latency_ms[child.place]
        stays = _in_time(child.cost[child.place] + rate * locations.charge[child.place], stays_ms, locations)
        come = child.cost < stays
        cost += np.where(come, child.cost, stays)
        delay_ms = np.maximum(delay_ms, np.where(come, child.delay_ms, stays_ms))
        child_locations[row] = np.where(come, itself, child.place)
    leaves = np.unique(np.concatenate([child.leaves for child in children]))
    return Configurations(cost, delay_ms, child_locations, -1, leaves)


def apart(
    found: Configurations, children: Sequence[Configurations], rates: Sequence[float], locations: Locations, within_ms: float
) -> tuple[Configurations, Bools]:
    """Return ``found``, improved by section 3.3's fourth case, and the locations [n] where that case exists.

    In this case every child is at the location of one of its sources, the operator is beside one of them, and their latencies to
    it sum to at most ``within_ms``. Such a configuration replaces that of ``found`` where it costs less.
    """
    found = found._replace(cost=found.cost.copy(), delay_ms=found.delay_ms.copy(), children=found.children.copy())
    such = np.zeros(len(found.cost), dtype=np.bool_)
    most = max(2, int(MAX_COMBINATIONS ** (1 / len(children))))
    for place in found.leaves[np.isfinite(found.cost[found.leaves])].tolist():
        away_ms = locations.latency_ms[:, place]
        options = [_nearest(child.leaves[np.isfinite(child.cost[child.leaves])], away_ms, most) for child in children]
        chosen = np.stack([axis.ravel() for axis in np.meshgrid(*options, indexing="ij")])
        reached_ms = np.stack([child.delay_ms[at] + away_ms[at] for child, at in zip(children, chosen, strict=True)]).max(axis=0)
        cost = sum(
            (
                child.cost[at] + rate * locations.charge[at, place]
                for child, rate, at in zip(children, rates, chosen, strict=True)
            ),
            np.zeros(chosen.shape[1]),
        )
        near = (away_ms[chosen].sum(axis=0) <= within_ms) & (chosen == place).any(axis=0)
        cost[~near | (reached_ms > locations.slack_ms[place])] = np.inf
        best = int(cost.argmin()) if len(cost) else -1
        if best < 0 or not np.isfinite(cost[best]):
            continue
        such[place] = True
        if cost[best] < found.cost[place]:
            found.cost[place], found.delay_ms[place], found.children[:, place] = cost[best], reached_ms[best], chosen[:, best]
    return found, such


def convex(children: Sequence[Configurations], locations: Locations) -> Bools:
    """Return section 3.4's convex set [n].

    It holds the locations nearer to each child's place than any other child's place is to it. The formula as printed also
    compares a child with itself, and nothing is nearer to it than itself; that comparison is left out.
    """
    places = np.array([child.place for child in children])
    between_ms = locations.latency_ms[np.ix_(places, places)].copy()
    np.fill_diagonal(between_ms, np.inf)
    inside: Bools = (locations.latency_ms[places] < between_ms.min(axis=1)[:, None]).all(axis=0)
    return inside


def separation_ms(children: Sequence[Configurations], locations: Locations) -> Floats:
    """Return the summed latency between all children's places and each location, [n]."""
    total_ms: Floats = locations.latency_ms[[child.place for child in children]].sum(axis=0)
    return total_ms


def _best(child: Configurations, rate: float, locations: Locations) -> tuple[Ints, Floats, Floats]:
    """Return the best place of a child of the same zone for each location of its reader, with the cost and the delay there."""
    reached_ms = child.delay_ms[:, None] + locations.latency_ms
    cost = child.cost[:, None] + rate * locations.charge
    cost[reached_ms > locations.slack_ms] = np.inf
    at, itself = cost.argmin(axis=0), np.arange(len(cost))
    return at, cost[at, itself], reached_ms[at, itself]


def _in_time(cost: Floats, delay_ms: Floats, locations: Locations) -> Floats:
    return np.where(delay_ms <= locations.slack_ms, cost, np.inf)


def _nearest(options: Ints, away_ms: Floats, most: int) -> Ints:
    nearest: Ints = options[np.argsort(away_ms[options], kind="stable")[:most]]
    return nearest
