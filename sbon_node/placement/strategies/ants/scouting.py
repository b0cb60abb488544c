"""Scouting ants (ANTS, section 3.7) as steps at a cell: each tries one placement of a chain along a path, and brings it back.

A scout puts tasks greedily where it passes, in their order. Hops that it walks between two hosts cost nothing: messages between
these take the shortest way, and that is what is charged. On its way back it balances: at each cell it moves tasks there, or to a
neighbour of it, of which the cell knows how busy it is, where the whole chain would be faster.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from sbon_node.placement.strategies.ants.cell import Cell, Quote
from sbon_node.placement.strategies.ants.chain import Chain

MOST_HOPS = 256
MOST_FAILURES = 1000
"""Paths of which a cell remembers who failed on them."""

Way = Callable[[str, str], float]
"""One-way latency between two nodes by the shortest way, milliseconds."""
Quotes = Callable[[str, int, int], Quote]
"""What tasks first .. last - 1 would cost at a node."""
CostOf = Callable[[tuple[str, ...]], float]
"""What a chain costs with its tasks at these nodes."""


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks first .. last - 1 of a chain at one node, and what they cost there
    (:class:`~sbon_node.placement.strategies.ants.cell.Quote`)."""

    node: str
    first: int
    last: int
    own_ms: float
    others_ms: float


class ScoutingAnt(msgspec.Struct, frozen=True, kw_only=True):
    """``greed`` (g) is the most tasks it puts on one server, ``most_load`` (alpha) the load up to which it does. With
    ``threshold_ms`` (L_T) it does so as long as the latencies there, its own and of those before, sum up to less, whatever the
    load.

    ``flat``, from 0 to 1, makes it heed pheromones less, and ``beyond`` is how many hops it goes past the destination while tasks
    are left: both for when scouts of the paper's kind have failed.
    """

    chain: Chain
    greed: int
    most_load: float
    threshold_ms: float | None = None
    flat: float = 0.0
    beyond: int = 0
    path: tuple[str, ...] = ()
    sites: tuple[Site, ...] = ()
    at: int = -1

    @property
    def placed(self) -> int:
        """How many tasks, the first ones."""
        return self.sites[-1].last if self.sites else 0

    @property
    def complete(self) -> bool:
        return self.placed == len(self.chain.tasks)


def prospect(cell: Cell, ant: ScoutingAnt) -> ScoutingAnt:
    """At a cell of the path: puts as many of the next tasks there as its greed and the server bear (equation 11; the paper calls
    L_prev, what the tasks there take by then, L_old there)."""
    best: Site | None = None
    if all(site.node != cell.name for site in ant.sites):
        for last in range(ant.placed + 1, min(ant.placed + ant.greed, len(ant.chain.tasks)) + 1):
            quote = cell.quote(ant.chain, ant.placed, last)
            if not _bears(quote, ant):
                break
            best = _site(cell.name, ant.placed, last, quote)
    sites = ant.sites if best is None else (*ant.sites, best)
    return msgspec.structs.replace(ant, path=(*ant.path, cell.name), sites=sites)


def onward(cell: Cell, ant: ScoutingAnt, rng: random.Random, now: float) -> tuple[ScoutingAnt, str | None]:
    """The next hop, as routing ants choose it; None once it has been at the destination and may go no further, and where it has
    walked too far."""
    if ant.chain.destination in ant.path:
        if ant.complete or ant.beyond == 0:
            return ant, None
        ant = msgspec.structs.replace(ant, beyond=ant.beyond - 1)
    if len(ant.path) > MOST_HOPS:
        return ant, None
    return ant, cell.table(ant.chain.destination, now).choose(rng, ant.path, ant.flat)


def fail(cell: Cell, ant: ScoutingAnt, enough: int) -> bool:
    """At the destination, without a place for all tasks: whether it is one of so many on the same path, each with another greed,
    that it shall go back and discourage others."""
    if len(cell.failed) >= MOST_FAILURES:
        cell.failed.clear()
    greeds = cell.failed.setdefault(ant.path, set())
    greeds.add(ant.greed)
    if len(greeds) < enough:
        return False
    del cell.failed[ant.path]
    return True


def discourage(cell: Cell, ant: ScoutingAnt, now: float) -> None:
    """At a cell of the path, on the way back from a failure."""
    position = ant.path.index(cell.name)
    if position + 1 < len(ant.path):
        cell.table(ant.chain.destination, now).discourage(ant.path[position + 1], now)


def balance(cell: Cell, ant: ScoutingAnt, quotes: Quotes, cost_of: CostOf) -> ScoutingAnt:
    """At a cell of the path, on the way back with all tasks placed: takes the best of all moves of tasks in a row to this cell or
    one of its neighbours, as long as one is better.

    ``cost_of`` is :func:`cost_ms` by ``quotes``, which are asked about these cells, and about the hosts of the ant's sites, whose
    state it carries.
    """
    before = tuple(site.node for site in ant.sites for _ in range(site.first, site.last))
    hosts, cost = before, cost_of(before)
    while True:
        better = min(_moves(hosts, (cell.name, *cell.neighbours)), key=cost_of)
        if cost_of(better) >= cost - 1e-9:
            break
        hosts, cost = better, cost_of(better)
    return ant if hosts == before else msgspec.structs.replace(ant, sites=sites_of(hosts, quotes))


def sites_of(hosts: Sequence[str], quotes: Quotes) -> tuple[Site, ...]:
    """The sites of tasks at ``hosts``."""
    rows = rows_of(hosts)
    return tuple(_site(node, first, last, quotes(node, first, last)) for node, first, last in rows)


def rows_of(hosts: Sequence[str]) -> list[tuple[str, int, int]]:
    """Tasks in a row at one node: the node, the first of them, and the one after the last."""
    found: list[tuple[str, int, int]] = []
    first = 0
    for last in range(1, len(hosts) + 1):
        if last == len(hosts) or hosts[last] != hosts[first]:
            found.append((hosts[first], first, last))
            first = last
    return found


def cost_ms(chain: Chain, hosts: Sequence[str], quotes: Quotes, way_ms: Way) -> float:
    """The latency of the chain with its tasks at ``hosts``, and what others wait longer; infinite where a node would get two rows
    of tasks, or has no room."""
    rows = rows_of(hosts)
    if len({node for node, _, _ in rows}) < len(rows):
        return math.inf
    total, here = 0.0, chain.source
    for node, first, last in rows:
        total += (0.0 if node == here else way_ms(here, node)) + quotes(node, first, last).cost_ms
        here = node
    return total + (0.0 if here == chain.destination else way_ms(here, chain.destination))


def latency_ms(chain: Chain, sites: Sequence[Site], way_ms: Way) -> float:
    """Of the chain from its source to its destination."""
    stops = [chain.source, *(site.node for site in sites), chain.destination]
    ways = sum(way_ms(one, two) for one, two in itertools.pairwise(stops) if one != two)
    return ways + sum(site.own_ms for site in sites)


def _bears(quote: Quote, ant: ScoutingAnt) -> bool:
    if math.isinf(quote.own_ms):
        return False
    if ant.threshold_ms is not None:
        return quote.own_ms + quote.previous_ms < ant.threshold_ms
    return quote.load < ant.most_load


def _site(node: str, first: int, last: int, quote: Quote) -> Site:
    return Site(node=node, first=first, last=last, own_ms=quote.own_ms, others_ms=quote.others_ms)


def _moves(hosts: tuple[str, ...], nodes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The same placement, and those with some tasks in a row at one of ``nodes``."""
    yield hosts
    for node in nodes:
        for first in range(len(hosts)):
            for last in range(first + 1, len(hosts) + 1):
                yield (*hosts[:first], *((node,) * (last - first)), *hosts[last:])
