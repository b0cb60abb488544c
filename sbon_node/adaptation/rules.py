"""Rules by which a running operator moves or stays: pure, given the time and all that its host knows.

Three steps, the cheap ones first. May the operator move at all now (:func:`waits`)? Has anything changed, so that looking for
another host may pay (:func:`looks`)? Is the host that was found worth the move (:func:`decide`)? Usage is bytes in transit: rate
(bytes/s) x one-way latency (s), summed over the operator's links (SBON, section 2.3, equation 1). A saving of usage that lasts
for a time is bytes in transit x seconds, which is the unit of what a move costs, too: state of B bytes over a path of L seconds
is B x L.

Against oscillation: an operator rests after each move, does not return soon to a host that it has left, and each move within the
last hour raises the share of its usage that the next one must save.

If the rows of a query take so long that its bound is about to be broken, the way of rows counts and no usage (:func:`hastens`).
So it is where a host cannot carry the throughput that was promised (:func:`lacks`).

Two linked operators at two nodes are weighed by the same rule as one (:class:`Pair`, :func:`weigh`): each may be at its best host
while the other stays, and both be better elsewhere. If one moved alone, the link between them would become longer. So one of
their hosts weighs both, and the other checks the result by itself.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from sbon_node.adaptation.settings import AdaptationSettings
from sbon_node.placement.model.network_view import Point
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_protocol.api.adaptation import PastMove
from sbon_protocol.api.bounded import MOST_PER_SECOND
from sbon_protocol.api.measures import OperatorMeasures
from sbon_protocol.api.operators import Needs

HOUR_MS = 3_600_000
EXPECTED_PAUSE_S = 0.5
"""Time for which an operator's rows wait while it moves."""
RELIEF_S = 120.0
"""Time after a move because of load before the next one: the load average of a minute must see it."""
LEAST_SHORTENING_MS = 1.0
"""Least time by which a move shortens the way of rows of a late query: latencies are not measured better."""
EXPECTED_FOLLOW_S = 10.0
"""Time for which both hosts read its input."""

MEASURES, RESTS, MOVED_OFTEN = "measures", "rests", "moved-often"
FIRST, VIRTUAL_MOVED, USAGE_GROWN, LONG_AGO = "first-look", "virtual-moved", "usage-grown", "looked-long-ago"
JOINED, OVERLOADED = "joined", "overloaded"
UNCHANGED = "unchanged"
SAVES, SAVES_LITTLE, COSTS_MORE, TOO_SLOW, NO_BETTER = "saves", "saves-little", "costs-more", "too-slow", "no-better"
RELIEVES, TOO_FAR = "relieves", "too-far"
TOGETHER = "together"
HASTENS, NO_FASTER = "hastens", "no-faster"
LACKS_THROUGHPUT, KEEPS_THROUGHPUT = "lacks-throughput", "keeps-throughput"
MOVING: frozenset[str] = frozenset({SAVES, RELIEVES, HASTENS, KEEPS_THROUGHPUT, TOGETHER})
"""Codes of decisions to move."""


class Why(NamedTuple):
    """A reason, as a code for programs and as text for people."""

    code: str
    text: str


class Link(NamedTuple):
    """A link of the operator to ``vertex`` at ``node``, which it ``reads`` from or sends to."""

    vertex: str
    node: str
    bytes_s: float
    reads: bool


def once_a_node(links: Sequence[Link]) -> tuple[Link, ...]:
    """Return the links of an operator with the rate of a stream divided among those that carry it between the same nodes.

    Its frames cross once for all of them, whichever queries they belong to.
    """
    ends = [(link.node, link.reads, link.vertex if link.reads else "") for link in links]
    return tuple(link._replace(bytes_s=link.bytes_s / ends.count(end)) for link, end in zip(links, ends, strict=True))


class Glance(NamedTuple):
    """The operator as it was when another host was last looked for, successfully or not."""

    virtual: Point
    usage: float
    at_s: float
    nodes: frozenset[str] = frozenset()
    """The nodes that were known then."""


class Offer(NamedTuple):
    """A host that was found: usage there, the longest way through the operator, and the latency to it.

    Ways are the greatest latency of an input plus the greatest of an output; milliseconds.
    """

    node: str
    usage: float
    way_ms: float
    path_ms: float


def edges_of(operator: str, links: Iterable[Link]) -> tuple[Edge, ...]:
    """Return the links of an operator as edges of a placement problem."""
    return tuple(
        Edge(link.vertex, operator, link.bytes_s) if link.reads else Edge(operator, link.vertex, link.bytes_s) for link in links
    )


def group_of(operator: str, links: Mapping[str, tuple[Link, ...]]) -> tuple[str, ...]:
    """Return the operators that are linked with ``operator``, directly or through each other, of those in ``links``; sorted."""
    group, added = {operator}, [operator]
    while added:
        vertices = {link.vertex for one in added for link in links[one]}
        added = sorted(vertices.intersection(links) - group)
        group.update(added)
    return tuple(sorted(group))


def outer_links(group: Iterable[str], links: Mapping[str, tuple[Link, ...]]) -> tuple[Link, ...]:
    """Return the links of a group of operators to others, as if the group were one operator."""
    inside = tuple(group)
    return tuple(link for one in inside for link in links[one] if link.vertex not in inside)


def usage_of(links: tuple[Link, ...], latencies_ms: dict[str, float]) -> float:
    """Return the usage of links by the one-way latencies to their nodes, in bytes in transit."""
    return sum(link.bytes_s * latencies_ms[link.node] for link in links) / 1000.0


def mean_ms_of(links: tuple[Link, ...], latencies_ms: dict[str, float]) -> float:
    """Return the mean one-way latency of links by their rates; 0 while nothing flows."""
    bytes_s = sum(link.bytes_s for link in links)
    return 1000.0 * usage_of(links, latencies_ms) / bytes_s if bytes_s else 0.0


def way_of(links: tuple[Link, ...], latencies_ms: dict[str, float]) -> float:
    """Return the longest way through the operator: greatest latency in, plus greatest latency out; milliseconds."""
    return sum(max((latencies_ms[link.node] for link in links if link.reads == reads), default=0.0) for reads in (True, False))


def ago_ms(move: PastMove, now_ms: int) -> float:
    """Return the time since a move; by a clock that is ahead it may be negative, but a move more than an hour ahead is long ago.

    A node with a wrong clock, or a wrong word, would keep the operator where it is for ever otherwise.
    """
    return now_ms - move.at_ms if move.at_ms - now_ms <= HOUR_MS else math.inf


def moves_within(past: tuple[PastMove, ...], now_ms: int, span_ms: float) -> int:
    """Return the number of moves within the last ``span_ms``."""
    return sum(ago_ms(move, now_ms) < span_ms for move in past)


def left_lately(past: tuple[PastMove, ...], now_ms: int, settings: AdaptationSettings) -> frozenset[str]:
    """Return the hosts to which the operator does not return yet."""
    return frozenset(move.node for move in past if ago_ms(move, now_ms) < settings.return_s * 1000)


def waits(measured_s: float, past: tuple[PastMove, ...], now_ms: int, settings: AdaptationSettings) -> Why | None:
    """Return why the operator may not move now, whatever has changed; None if it may."""
    if past and (rests_s := settings.rest_s - ago_ms(past[-1], now_ms) / 1000.0) > 0:
        return Why(RESTS, f"it rests for {min(rests_s, settings.rest_s):.0f} s more after its move from {past[-1].node}")
    if moves_within(past, now_ms, HOUR_MS) >= settings.most_moves:
        return Why(MOVED_OFTEN, f"it has moved {settings.most_moves} times within an hour")
    if measured_s < settings.least_measured_s:
        return Why(MEASURES, f"its rates are measured for {measured_s:.0f} s of {settings.least_measured_s:.0f} s")
    return None


def looks(
    virtual: Point,
    usage: float,
    now_s: float,
    last: Glance | None,
    settings: AdaptationSettings,
    *,
    joined: Mapping[str, float] = MappingProxyType({}),
    links_ms: float = 0.0,
) -> Why:
    """Return why to look for another host; code ``unchanged`` if not. ``links_ms`` is the mean latency of the operator's links.

    ``joined`` are the usages, by estimates, at nodes that were not known at the last look.
    """
    if last is None:
        return Why(FIRST, "nobody has looked for another host yet")
    moved_ms = math.dist(virtual, last.virtual)
    if moved_ms > max(settings.moved_ms, settings.moved_share * links_ms):
        return Why(VIRTUAL_MOVED, f"its virtual coordinate has moved by {moved_ms:.1f} ms")
    grown = usage - last.usage
    if grown > settings.grown_share * last.usage and grown > settings.least_saving_bytes:
        return Why(USAGE_GROWN, f"the usage of its links has grown from {last.usage:,.0f} to {usage:,.0f} bytes in transit")
    nearest = min(joined, key=lambda node: (joined[node], node), default="")
    if nearest and joined[nearest] < (1 - settings.least_saving) * usage:
        return Why(JOINED, f"{nearest} has joined, with {joined[nearest]:,.0f} instead of {usage:,.0f} bytes by the coordinates")
    if now_s - last.at_s >= settings.look_again_s:
        return Why(LONG_AGO, f"nobody has looked for {now_s - last.at_s:.0f} s")
    return Why(UNCHANGED, f"its virtual coordinate has moved by {moved_ms:.1f} ms only, and its usage is {usage:,.0f} bytes")


def may_save(looked: Why, usages: Mapping[str, float], here: str, settings: AdaptationSettings) -> Why:
    """Return ``looked``, or code ``unchanged`` if by the estimated ``usages`` no node saves half of what a move must save.

    Coordinates move all the time. Their errors are larger than such savings, so nodes that may save are measured.
    """
    others = {node: usage for node, usage in usages.items() if node != here}
    if here not in usages or not others:
        return looked
    best = min(others, key=lambda node: (others[node], node))
    if others[best] < (1 - settings.least_saving / 2) * usages[here]:
        return looked
    return Why(UNCHANGED, f"{looked.text}, but by the coordinates no node is better: {usages[here]:,.0f} bytes in transit")


def late_ms(delay_ms: float | None, bound_ms: float | None, settings: AdaptationSettings) -> float:
    """Return by how much the measured delay of a query is beyond the share of its bound that is to be kept; 0 if it is not."""
    return 0.0 if delay_ms is None or bound_ms is None else max(0.0, delay_ms - settings.near_bound * bound_ms)


def least_shortening_ms(way_ms: float, past: tuple[PastMove, ...], now_ms: int, settings: AdaptationSettings) -> float:
    """Return by how much a move must shorten the way of rows through the operator, as its usage otherwise."""
    return settings.least_saving * (1 + moves_within(past, now_ms, HOUR_MS)) * way_ms


def hastens(
    way_ms: float, late_ms: float, offer: Offer, past: tuple[PastMove, ...], now_ms: int, settings: AdaptationSettings
) -> Why:
    """Return why an operator of a late query moves to the offer, whatever the usage, with code ``hastens``, or why not."""
    text = f"rows take {late_ms:.1f} ms more than they should; through {offer.node} {offer.way_ms:.1f} instead of {way_ms:.1f} ms"
    least_ms = least_shortening_ms(way_ms, past, now_ms, settings)
    if way_ms - offer.way_ms < max(least_ms, LEAST_SHORTENING_MS):
        return Why(NO_FASTER, f"{text}, which is no {max(least_ms, LEAST_SHORTENING_MS):.1f} ms less")
    return Why(HASTENS, text)


def cost_of_move(links: tuple[Link, ...], state_bytes: int, offer: Offer) -> float:
    """Return the cost of a move to the offer, in bytes in transit x seconds.

    Its state travels once. Its input is read twice for a while, over links that cost no more than all of them there. Rows that
    come during the pause wait for half of it on average.
    """
    read_bytes_s = sum(link.bytes_s for link in links if link.reads)
    copy = state_bytes * offer.path_ms / 1000.0
    twice = EXPECTED_FOLLOW_S * offer.usage
    pause = read_bytes_s * EXPECTED_PAUSE_S * EXPECTED_PAUSE_S / 2.0
    return copy + twice + pause


def decide(
    usage: float,
    way_ms: float,
    offer: Offer,
    cost: float,
    past: tuple[PastMove, ...],
    now_ms: int,
    settings: AdaptationSettings,
    *,
    bounded: bool = False,
    overloaded: bool = False,
) -> Why:
    """Return why the operator moves to the offer, with code ``saves``, or why not.

    ``usage`` and ``way_ms`` are those at the present host, by measurements as fresh as the offer's. The rows of a query with a
    bound on delay may not take a longer way. An operator may leave an overloaded host although usage grows, within a limit.
    """
    saving = usage - offer.usage
    share = saving / usage if usage > 0 else 0.0
    text = f"{offer.node} saves {share:.1%} of {usage:,.0f} bytes in transit"
    if overloaded and not (bounded and offer.way_ms > way_ms):
        far = -share > settings.overload_cost or (usage <= 0 < offer.usage)
        text = f"to relieve this node, {offer.node} takes {offer.usage:,.0f} instead of {usage:,.0f} bytes in transit"
        return Why(TOO_FAR, f"{text}, which is too much") if far else Why(RELIEVES, text)
    if saving <= 0:
        return Why(NO_BETTER, f"no better host: {offer.node} would take {offer.usage:,.0f} instead of {usage:,.0f} bytes")
    if bounded and offer.way_ms > way_ms:
        return Why(TOO_SLOW, f"{text}, but rows would take {offer.way_ms:.1f} ms through it instead of {way_ms:.1f} ms")
    least = settings.least_saving * (1 + moves_within(past, now_ms, HOUR_MS))
    if share < least or saving < settings.least_saving_bytes:
        limits = f"{least:.0%} and {settings.least_saving_bytes:g} bytes"
        return Why(SAVES_LITTLE, f"{text}, less than {limits}")
    if saving * settings.payback_s < cost:
        return Why(COSTS_MORE, f"{text}, but the move costs what that saves in {cost / saving:,.0f} s")
    return Why(SAVES, f"{text}, and pays for the move in {cost / saving:,.1f} s")


# -- bounds on throughput -----------------------------------------------------------------------------------------------

BEHIND_S = 5.0
"""Time that an operator needs to read what waits at its host, from which on it falls behind its input.

At most ``streams.inbox_credit_bytes`` of each input wait, so an operator that reads more than a fifth of that in a
second never does.
"""


def lacks(
    least_bytes_s: float | None, measures: OperatorMeasures | None, free_bytes_s: float, settings: AdaptationSettings
) -> Why | None:
    """Return why the host is about to break the bound of ``least_bytes_s``; None while it keeps it, or without one.

    Either its operators reserve more bandwidth than it has (``free_bytes_s`` is negative: it had more when they came), or the
    operator sends too little although its input waits.
    """
    if least_bytes_s is None:
        return None
    if free_bytes_s < 0:
        return Why(LACKS_THROUGHPUT, f"operators here reserve {-free_bytes_s:,.0f} B/s more than this node has")
    if measures is None or measures.bytes_out_s is None or measures.bytes_out_s * settings.near_bound >= least_bytes_s:
        return None
    read_bytes_s = sum(read.bytes_s or 0.0 for read in measures.inputs)
    waiting_bytes = sum(read.waiting_bytes for read in measures.inputs)
    if waiting_bytes < BEHIND_S * read_bytes_s or not waiting_bytes:
        return None
    sends = f"it sends {measures.bytes_out_s:,.0f} B/s, and its bound is {least_bytes_s:,.0f} B/s"
    return Why(LACKS_THROUGHPUT, f"{sends}; {waiting_bytes:,} bytes of input wait, and it reads {read_bytes_s:,.0f} B/s")


def carries(way_ms: float, offer: Offer, *, bounded: bool) -> Why:
    """Return why the operator moves to the offer, a host with capacity, whatever it costs in usage, or why not.

    The rows of a query with a bound on delay may not take a longer way.
    """
    if bounded and offer.way_ms > way_ms:
        return Why(TOO_SLOW, f"through {offer.node} rows would take {offer.way_ms:.1f} ms instead of {way_ms:.1f} ms")
    return Why(KEEPS_THROUGHPUT, f"{offer.node} has the capacity, with {offer.usage:,.0f} bytes in transit")


# -- two operators at two nodes -----------------------------------------------------------------------------------------

Hosts = tuple[str, str]
"""Nodes of the first and the second operator of a pair."""
Latency = Callable[[str, str], float]
"""One-way latency between two nodes; milliseconds."""
FIRST_HERE, SECOND_HERE = "first-here", "second-here"
"""Vertices that make the present hosts candidates. No operator, source or sink has these ids."""


class Side(NamedTuple):
    """An operator at its host ``node``, with all its links; ``refused`` are nodes to which it does not move now."""

    operator: str
    node: str
    links: tuple[Link, ...]
    needs: Needs
    state_bytes: int
    past_moves: tuple[PastMove, ...]
    refused: frozenset[str]

    def outer(self, other: str) -> tuple[Link, ...]:
        """Return the links to others than the operator ``other``."""
        return tuple(link for link in self.links if link.vertex != other)


class Pair(NamedTuple):
    """Two linked operators. The rate of the link between them is as the host of the ``first`` has measured it."""

    first: Side
    second: Side

    @property
    def hosts(self) -> Hosts:
        return self.first.node, self.second.node

    @property
    def inner(self) -> Link:
        """Return the link between them, as one of the first; raise ``StopIteration`` if there is none."""
        return next(link for link in self.first.links if link.vertex == self.second.operator)

    @property
    def ends(self) -> tuple[tuple[Link, ...], tuple[Link, ...]]:
        """Return the links of each operator to others."""
        return self.first.outer(self.second.operator), self.second.outer(self.first.operator)

    @property
    def past_moves(self) -> tuple[PastMove, ...]:
        return tuple(sorted((*self.first.past_moves, *self.second.past_moves), key=lambda move: move.at_ms))

    def is_linked(self) -> bool:
        """Return whether both sides know the link between them, one as its reader, the other as its writer."""
        reads = [link.reads for link in self.first.links if link.vertex == self.second.operator]
        read = [link.reads for link in self.second.links if link.vertex == self.first.operator]
        return len(reads) == len(read) == 1 and reads != read

    def measured(self, hosts: Hosts) -> set[tuple[str, str]]:
        """Return the pairs of nodes whose latencies count with the operators at ``hosts``."""
        ends = zip(hosts, self.ends, strict=True)
        return {hosts, *((host, link.node) for host, links in ends for link in links)}

    def usage(self, hosts: Hosts, latency: Latency) -> float:
        """Return the usage of all links of both, in bytes in transit."""
        ends = zip(hosts, self.ends, strict=True)
        outer = sum(link.bytes_s * latency(host, link.node) for host, links in ends for link in links)
        return (outer + self.inner.bytes_s * latency(*hosts)) / 1000.0

    def way_ms(self, hosts: Hosts, latency: Latency) -> float:
        """Return the longest way of rows through one of them, or through both; milliseconds."""
        first, second = ((host, links) for host, links in zip(hosts, self.ends, strict=True))
        writer, reader = (second, first) if self.inner.reads else (first, second)

        def longest(end: tuple[str, tuple[Link, ...]], *, reads: bool) -> float:
            return max((latency(end[0], link.node) for link in end[1] if link.reads == reads), default=0.0)

        into, out_of = longest(writer, reads=True), longest(reader, reads=False)
        through = into + latency(*hosts) + out_of
        return max(through, into + longest(writer, reads=False), longest(reader, reads=True) + out_of)

    def problem(self) -> PlacementProblem:
        """Return the placement of both with all others where they are."""
        first, second = self.ends
        pinned = {link.vertex: link.node for link in (*first, *second)}
        sides = (self.second, self.first) if self.inner.reads else (self.first, self.second)
        edges = (*edges_of(self.first.operator, first), *edges_of(self.second.operator, second))
        return PlacementProblem(
            pinned={**pinned, FIRST_HERE: self.first.node, SECOND_HERE: self.second.node},
            operators=tuple(Operator(id=side.operator, needs=side.needs, refused=side.refused) for side in sides),
            edges=(*edges, Edge(sides[0].operator, sides[1].operator, self.inner.bytes_s)),
        )


def cost_of_moves(pair: Pair, hosts: Hosts, usage_there: float, latency: Latency) -> float:
    """Return the cost of both moves, in bytes in transit x seconds, as :func:`cost_of_move`."""
    moves = zip(pair, pair.hosts, hosts, strict=True)
    copy = sum(side.state_bytes * latency(here, there) / 1000.0 for side, here, there in moves)
    read_bytes_s = sum(link.bytes_s for side in pair for link in side.links if link.reads)
    pause = read_bytes_s * EXPECTED_PAUSE_S**2 / 2.0
    return copy + EXPECTED_FOLLOW_S * usage_there + pause


class Weighed(NamedTuple):
    """Both moves as one host sees them: usage now and there, cost, and why they are made or not."""

    usage: float
    usage_there: float
    cost: float
    why: Why

    @property
    def pays(self) -> bool:
        return self.why.code == SAVES


def weigh(pair: Pair, hosts: Hosts, latency: Latency, now_ms: int, settings: AdaptationSettings, *, bounded: bool) -> Weighed:
    """Decide whether both move to ``hosts``: together they must be worth it as a move of one operator must be.

    Usage and cost count as no more than a decision can carry, whatever another node states: such moves save nothing.
    """
    usage, there = (min(pair.usage(at, latency), MOST_PER_SECOND) for at in (pair.hosts, hosts))
    cost = min(cost_of_moves(pair, hosts, there, latency), MOST_PER_SECOND)
    names = hosts[0] if hosts[0] == hosts[1] else " and ".join(hosts)
    offer = Offer(names, there, pair.way_ms(hosts, latency), latency(pair.first.node, hosts[0]))
    way_ms = pair.way_ms(pair.hosts, latency)
    return Weighed(usage, there, cost, decide(usage, way_ms, offer, cost, pair.past_moves, now_ms, settings, bounded=bounded))
