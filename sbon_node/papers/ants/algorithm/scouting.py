"""Scouting ants (ANTS, section 3.7) as steps at a cell.

Each scout tries one placement of a chain along a path. It places tasks greedily along the path, in their order. Its hops between
two hosts cost nothing: messages between these take the shortest path, which is charged. On its way back it balances: at each cell
it moves tasks there, or to a neighbour whose load the cell knows, if that makes the whole chain faster.

Where a task of the chain runs for others already, the scout passes through it (section 3.10): the tasks up to that need no host,
and the links that feed it cost nothing again. Half of the scouts look for such tasks.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from sbon_node.papers.ants.algorithm.cell import Cell, Quote
from sbon_node.papers.ants.algorithm.chain import Chain, Running
from sbon_node.placement.model.problem import PlacementProblem

MOST_HOPS = 256
MOST_FAILURES = 1000
"""Most paths for which a cell remembers failures."""

PathLatency = Callable[[str, str], float]
"""One-way latency between two nodes by the shortest path, milliseconds."""
Quotes = Callable[[str, int, int], Quote]
"""Cost of the tasks first .. last - 1 at a node."""
CostOf = Callable[[tuple[str, ...]], float]
"""Cost of a chain with its tasks at these nodes."""


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks first .. last - 1 of a chain at one node, and their cost there.

    See :class:`~sbon_node.papers.ants.algorithm.cell.Quote`.
    """

    node: str
    first: int
    last: int
    own_ms: float
    others_ms: float


class ScoutingAnt(msgspec.Struct, frozen=True, kw_only=True):
    """A scouting ant.

    ``greed`` (g) is the most tasks it puts on one server, ``most_load`` (alpha) the load up to which it does. With
    ``threshold_ms`` (L_T) it ignores the load, as long as the sum of the latencies there, its own and those before, is less.

    ``flat``, from 0 to 1, makes it heed pheromones less. ``beyond`` is the number of hops it goes past the destination while
    tasks are left. Both are for use after scouts of the paper's kind have failed.
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
        """Number of placed tasks, which are the first ones."""
        return self.sites[-1].last if self.sites else 0

    @property
    def complete(self) -> bool:
        return self.placed == len(self.chain.tasks)


def prospect(cell: Cell, ant: ScoutingAnt) -> ScoutingAnt:
    """Place as many of the next tasks at a cell as possible (equation 11).

    The scout's greed and the server limit them. The paper calls L_prev, the latencies of the tasks there so far, L_old in that
    equation. A task that runs here stands for all tasks up to its own, unless the scout has placed more than these.
    """
    chain, best, before, placed = ant.chain, None, ant.sites, ant.placed
    passed = chain.passed(cell.name, 0, len(chain.tasks))
    if passed is not None and passed.task + 1 >= placed:
        before, placed = (), passed.task + 1
        best = _site(cell.name, 0, placed, cell.quote(chain, 0, placed))
    first = 0 if best is not None else placed
    if all(site.node != cell.name for site in before):
        for last in range(placed + 1, min(placed + ant.greed, len(chain.tasks)) + 1):
            quote = cell.quote(chain, first, last)
            if not _bears(quote, ant):
                break
            best = _site(cell.name, first, last, quote)
    sites = before if best is None else (*before, best)
    return msgspec.structs.replace(ant, path=(*ant.path, cell.name), sites=sites)


def follows(cell: Cell, ant: ScoutingAnt, number: int) -> tuple[ScoutingAnt, str | None]:
    """Return the node of a running task to which a scout goes from its first cell, where it places nothing then.

    Every second scout of a round goes to such a task, to each in turn: it need not be on the way to the destination. The others,
    by their ``number``, walk from the first cell on: None.
    """
    running = ant.chain.running
    if ant.path or not running or number % 2 == 0:
        return ant, None
    node = running[number // 2 % len(running)].node
    return (ant, None) if node == cell.name else (msgspec.structs.replace(ant, path=(cell.name,)), node)


def onward(cell: Cell, ant: ScoutingAnt, rng: random.Random, now: float) -> tuple[ScoutingAnt, str | None]:
    """Return the next hop, chosen as by routing ants.

    It is None once the ant has been at the destination and may go no further, has walked too far, or is at a node without
    neighbours.
    """
    if ant.chain.destination in ant.path:
        if ant.complete or ant.beyond == 0:
            return ant, None
        ant = msgspec.structs.replace(ant, beyond=ant.beyond - 1)
    if len(ant.path) > MOST_HOPS or not cell.neighbours:
        return ant, None
    return ant, cell.table(ant.chain.destination, now).choose(rng, ant.path, ant.flat)


def fail(cell: Cell, ant: ScoutingAnt, enough: int) -> bool:
    """Record a failure at the destination; return whether the ant must return and discourage others.

    It must once ``enough`` ants with different greed have failed on the same path.
    """
    if len(cell.failed) >= MOST_FAILURES:
        cell.failed.clear()
    greeds = cell.failed.setdefault(ant.path, set())
    greeds.add(ant.greed)
    if len(greeds) < enough:
        return False
    del cell.failed[ant.path]
    return True


def discourage(cell: Cell, ant: ScoutingAnt, now: float) -> None:
    """Discourage the next hop at a cell of the path, on the way back from a failure."""
    position = ant.path.index(cell.name)
    if position + 1 < len(ant.path) and ant.path[position + 1] in cell.neighbours:
        cell.table(ant.chain.destination, now).discourage(ant.path[position + 1], now)


def balance(cell: Cell, ant: ScoutingAnt, quotes: Quotes, cost_of: CostOf) -> ScoutingAnt:
    """Take the best move of consecutive tasks to this cell or a neighbour, repeatedly.

    It ends when no move is better. The ant is on its way back with all tasks placed. ``cost_of`` is :func:`cost_ms` by
    ``quotes``. These are asked about this cell, its neighbours, and the hosts of the ant's sites, whose state it carries.
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
    """Return the sites of tasks at ``hosts``."""
    rows = rows_of(hosts)
    return tuple(_site(node, first, last, quotes(node, first, last)) for node, first, last in rows)


def rows_of(hosts: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the runs of consecutive tasks at one node: node, first task, and last task plus 1."""
    rows: list[tuple[str, int, int]] = []
    first = 0
    for last in range(1, len(hosts) + 1):
        if last == len(hosts) or hosts[last] != hosts[first]:
            rows.append((hosts[first], first, last))
            first = last
    return rows


def cost_ms(chain: Chain, hosts: Sequence[str], quotes: Quotes, path_ms: PathLatency) -> float:
    """Return the latency of the chain with its tasks at ``hosts``.

    The extra waiting time of others is added. The cost is infinite where a node would get two rows of tasks, or lacks capacity.
    """
    rows = rows_of(hosts)
    if len({node for node, _, _ in rows}) < len(rows):
        return math.inf
    total, node_before = 0.0, chain.source
    for node, first, last in rows:
        into_ms = 0.0 if node == node_before or chain.passed(node, first, last) else path_ms(node_before, node)
        total += into_ms + quotes(node, first, last).cost_ms
        node_before = node
    return total + (0.0 if node_before == chain.destination else path_ms(node_before, chain.destination))


def latency_ms(chain: Chain, sites: Sequence[Site], path_ms: PathLatency) -> float:
    """Return the latency of the chain from its source, or the running task that it passes through, to its destination."""
    stops = stops_of(chain, sites)
    latencies = sum(path_ms(stop, two) for stop, two in itertools.pairwise(stops) if stop != two)
    return latencies + sum(site.own_ms for site in sites)


def stops_of(chain: Chain, sites: Sequence[Site]) -> list[str]:
    """Return the nodes between which the chain sends its messages, in order: those that feed a running task are left out."""
    begins = () if passed_by(chain, sites) else (chain.source,)
    return [*begins, *(site.node for site in sites), chain.destination]


def passed_by(chain: Chain, sites: Sequence[Site]) -> Running | None:
    """Return the running task that a placement passes through; None if it instantiates all tasks."""
    return chain.passed(sites[0].node, sites[0].first, sites[0].last) if sites else None


def _bears(quote: Quote, ant: ScoutingAnt) -> bool:
    if math.isinf(quote.own_ms):
        return False
    if ant.threshold_ms is not None:
        return quote.own_ms + quote.previous_ms < ant.threshold_ms
    return quote.load < ant.most_load


def _site(node: str, first: int, last: int, quote: Quote) -> Site:
    return Site(node=node, first=first, last=last, own_ms=quote.own_ms, others_ms=quote.others_ms)


def _moves(hosts: tuple[str, ...], nodes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the same placement, and those with some consecutive tasks at one of ``nodes``."""
    yield hosts
    for node in nodes:
        for first in range(len(hosts)):
            for last in range(first + 1, len(hosts) + 1):
                yield (*hosts[:first], *((node,) * (last - first)), *hosts[last:])


TOLERANCE = 0.1
"""Relative excess over the reported cost that a site may have."""
SLACK_MS = 5.0
"""Excess in milliseconds that it may always have: the wait at an idle server doubles with the noise of its measures."""


class EnforcementAnt(msgspec.Struct, frozen=True, kw_only=True):
    """An ant that carries out a placement if it still costs what was reported (ANTS, section 3.8): it books its tasks.

    ``sites`` are in the order of its visits, ``at`` is the number of the next.
    """

    chain: Chain
    sites: tuple[Site, ...]
    at: int = 0


def exceeds(cell: Cell, ant: EnforcementAnt) -> bool:
    """Return whether the tasks of the next site cost too much more at its cell than reported."""
    site = ant.sites[ant.at]
    quote = cell.quote(ant.chain, site.first, site.last)
    return quote.cost_ms > (site.own_ms + site.others_ms) * (1.0 + TOLERANCE) + SLACK_MS


def enforce(cell: Cell, ant: EnforcementAnt) -> EnforcementAnt | None:
    """Book the tasks of the next site at its cell.

    Return None if they cost too much more than reported; then the ant goes back and undoes its bookings (:func:`withdraw`).
    """
    if exceeds(cell, ant):
        return None
    site = ant.sites[ant.at]
    cell.book(ant.chain, site.first, site.last)
    return msgspec.structs.replace(ant, at=ant.at + 1)


def withdraw(cell: Cell, ant: EnforcementAnt) -> EnforcementAnt:
    """Undo the booking at the cell of the site before."""
    site = ant.sites[ant.at - 1]
    cell.release(ant.chain, site.first)
    return msgspec.structs.replace(ant, at=ant.at - 1)


def own_part(chain: Chain, sites: Sequence[Site]) -> tuple[Chain, tuple[Site, ...]]:
    """Return the tasks of a placed chain that must be instantiated, as a chain from the running task on, and their sites.

    There are none where the placement passes through a running task that gives the last result (section 3.10).
    """
    passed = passed_by(chain, sites)
    if passed is None:
        return msgspec.structs.replace(chain, running=()), tuple(sites)
    begin, many = passed.task + 1, len(chain.tasks)
    rate_s = chain.flow(begin, many).rate_s
    left = msgspec.structs.replace(chain, source=passed.node, tasks=chain.tasks[begin:], rate_s=rate_s, running=())
    own = []
    for site in (site for site in sites if site.last > begin):
        own_ms = site.own_ms - (passed.fed_ms if site.first == 0 else 0.0)
        own.append(msgspec.structs.replace(site, first=max(site.first - begin, 0), last=site.last - begin, own_ms=own_ms))
    return left, tuple(own)


def passing(problem: PlacementProblem, operator: str, node: str) -> PlacementProblem:
    """Return the problem with a running task at ``node`` in place of an operator: pinned, with nothing that feeds it alone."""
    edges = [edge for edge in problem.edges if edge.target != operator]
    operators = [one for one in problem.operators if one.id != operator]
    while idle := {one.id for one in operators} - {edge.source for edge in edges}:
        operators = [one for one in operators if one.id not in idle]
        edges = [edge for edge in edges if edge.target not in idle]
    pinned = {**problem.pinned, operator: node}
    return msgspec.structs.replace(problem, pinned=pinned, operators=tuple(operators), edges=tuple(edges))
