"""What the part of a query that ends in an operator costs with the operator at each location (SAND, sections 3.2 to 3.5).

SAND is Ahmad and Cetintemel, "Network-Aware Query Processing for Stream-based Applications", VLDB 2004. A configuration of an
operator is its place, the places of its children then, and so on down to the sources; of all that have the operator at one
location the cheapest that was found is kept. All arrays are over the locations that are considered, by number.

The bound on delay is wrong as printed in section 3.5: it is reckoned to the operator alone, so that its last part, to the proxy,
can break it. As section 4.5 has it, what is left of the way is taken to be the direct one to the proxy. So whatever is kept can
still be finished at the proxy, and a query all of whose sources reach the proxy within the bound is never refused for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.instance import Floats, Ints

Bools = NDArray[np.bool_]

MAX_COMBINATIONS = 1024
"""Of places of the children that are tried with an operator at one location; of more, those with the nearest places."""


class Locations(NamedTuple):
    """``nodes`` [n] by number; ``latency_ms`` [n, n] one way; ``charge`` [n, n] what a byte a second costs from one to another;
    ``proxy`` the number of the consumer's node; ``slack_ms`` [n] how long a way from a source to each may be, so that it is
    within the bound when it goes straight to the proxy from there."""

    nodes: Sequence[str]
    latency_ms: Floats
    charge: Floats
    proxy: int
    slack_ms: Floats


class Configurations(NamedTuple):
    """Of one operator or source: ``cost`` [n] of all links below it, infinite where nothing is known or allowed, ``delay_ms`` [n]
    of the longest way from a source to it, ``children`` [children, n] their places; ``place`` the location chosen, ``leaves``
    those of its sources, sorted."""

    cost: Floats
    delay_ms: Floats
    children: Ints
    place: int
    leaves: Ints


class DeadEndError(Exception):
    """``operator`` can be nowhere."""

    def __init__(self, operator: str) -> None:
        super().__init__(operator)
        self.operator = operator


def fixed(place: int, delay_ms: float, locations: int) -> Configurations:
    """Of a source, or of an operator that several others read: it stays, and what is below it costs nothing more."""
    cost, delays = np.full(locations, np.inf), np.zeros(locations)
    cost[place], delays[place] = 0.0, delay_ms
    return Configurations(cost, delays, np.empty((0, locations), dtype=int), place, np.array([place]))


def joined(children: Sequence[Configurations], rates: Sequence[float], locations: Locations, allowed: Bools) -> Configurations:
    """Equation 5: with the operator at each location, each child stays where it was placed or comes along, whichever costs less.

    ``rates`` are the children's, bytes a second; ``allowed`` [n] where the operator may be. The place is not chosen yet.
    """
    count = len(locations.nodes)
    cost, delay_ms, here = np.where(allowed, 0.0, np.inf), np.zeros(count), np.arange(count)
    places = np.empty((len(children), count), dtype=int)
    for row, (child, rate) in enumerate(zip(children, rates, strict=True)):
        stays_ms = child.delay_ms[child.place] + locations.latency_ms[child.place]
        stays = _in_time(child.cost[child.place] + rate * locations.charge[child.place], stays_ms, locations)
        come = child.cost < stays
        cost += np.where(come, child.cost, stays)
        delay_ms = np.maximum(delay_ms, np.where(come, child.delay_ms, stays_ms))
        places[row] = np.where(come, here, child.place)
    leaves = np.unique(np.concatenate([child.leaves for child in children]))
    return Configurations(cost, delay_ms, places, -1, leaves)


def apart(
    found: Configurations, children: Sequence[Configurations], rates: Sequence[float], locations: Locations, within_ms: float
) -> tuple[Configurations, Bools]:
    """Section 3.3's fourth case: every child at one of its sources' locations, the operator beside one of them, all of them
    together at most ``within_ms`` from it; where that costs less than ``found``, it takes its place.

    Second, the locations [n] at which there is such a configuration.
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
    """Section 3.4's convex set [n]: locations nearer to each child's place than any other child's place is to it.

    As printed the formula takes a child for its own other as well, and nothing is nearer to it than itself; those are left out.
    """
    places = np.array([child.place for child in children])
    between_ms = locations.latency_ms[np.ix_(places, places)].copy()
    np.fill_diagonal(between_ms, np.inf)
    found: Bools = (locations.latency_ms[places] < between_ms.min(axis=1)[:, None]).all(axis=0)
    return found


def separation_ms(children: Sequence[Configurations], locations: Locations) -> Floats:
    """How far all children's places are from each location together, [n]."""
    found: Floats = locations.latency_ms[[child.place for child in children]].sum(axis=0)
    return found


def _in_time(cost: Floats, delay_ms: Floats, locations: Locations) -> Floats:
    return np.where(delay_ms <= locations.slack_ms, cost, np.inf)


def _nearest(options: Ints, away_ms: Floats, most: int) -> Ints:
    found: Ints = options[np.argsort(away_ms[options], kind="stable")[:most]]
    return found
