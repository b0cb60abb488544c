"""Two linked operators at two nodes that would move together: usage and delay of both, and the decision. Pure.

Each may be at its best host while the other stays, and both be better elsewhere: if one moved alone, the link between them would
become longer. So one of their hosts weighs both (SBON, section 3.3), and the other checks the result by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sbon_node.adaptation import decision as rules
from sbon_node.adaptation.decision import Link, Offer, Why
from sbon_node.adaptation.settings import AdaptationSettings
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_protocol.api.adaptation import PastMove
from sbon_protocol.api.bounded import MOST_PER_SECOND
from sbon_protocol.api.operators import Needs

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
        return max(
            into + latency(*hosts) + out_of,
            into + longest(writer, reads=False),
            longest(reader, reads=True) + out_of,
        )

    def problem(self) -> PlacementProblem:
        """Return the placement of both with all others where they are."""
        first, second = self.ends
        pinned = {link.vertex: link.node for link in (*first, *second)}
        sides = (self.second, self.first) if self.inner.reads else (self.first, self.second)
        edges = [
            Edge(link.vertex, side.operator, link.bytes_s) if link.reads else Edge(side.operator, link.vertex, link.bytes_s)
            for side, links in ((self.first, first), (self.second, second))
            for link in links
        ]
        return PlacementProblem(
            pinned={**pinned, FIRST_HERE: self.first.node, SECOND_HERE: self.second.node},
            operators=tuple(Operator(id=side.operator, needs=side.needs, refused=side.refused) for side in sides),
            edges=(*edges, Edge(sides[0].operator, sides[1].operator, self.inner.bytes_s)),
        )


def cost_of_moves(pair: Pair, hosts: Hosts, usage_there: float, latency: Latency) -> float:
    """Return the cost of both moves, in bytes in transit x seconds, as :func:`~sbon_node.adaptation.decision.cost_of_move`."""
    moves = zip(pair, pair.hosts, hosts, strict=True)
    copy = sum(side.state_bytes * latency(here, there) / 1000.0 for side, here, there in moves)
    read_bytes_s = sum(link.bytes_s for side in pair for link in side.links if link.reads)
    pause = read_bytes_s * rules.EXPECTED_PAUSE_S**2 / 2.0
    return copy + rules.EXPECTED_FOLLOW_S * usage_there + pause


class Weighed(NamedTuple):
    """Both moves as one host sees them: usage now and there, cost, and why they are made or not."""

    usage: float
    usage_there: float
    cost: float
    why: Why

    @property
    def pays(self) -> bool:
        return self.why.code == rules.SAVES


def weigh(pair: Pair, hosts: Hosts, latency: Latency, now_ms: int, settings: AdaptationSettings, *, bounded: bool) -> Weighed:
    """Decide whether both move to ``hosts``: together they must be worth it as a move of one operator must be.

    Usage and cost count as no more than a decision can carry, whatever another node states: such moves save nothing.
    """
    usage, there = (min(pair.usage(at, latency), MOST_PER_SECOND) for at in (pair.hosts, hosts))
    cost = min(cost_of_moves(pair, hosts, there, latency), MOST_PER_SECOND)
    names = hosts[0] if hosts[0] == hosts[1] else " and ".join(hosts)
    offer = Offer(names, there, pair.way_ms(hosts, latency), latency(pair.first.node, hosts[0]))
    way_ms = pair.way_ms(pair.hosts, latency)
    return Weighed(
        usage, there, cost, rules.decide(usage, way_ms, offer, cost, pair.past_moves, now_ms, settings, bounded=bounded)
    )
