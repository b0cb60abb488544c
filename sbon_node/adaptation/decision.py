"""The decision whether a running operator moves: pure, given the time and all that its host knows.

Three steps, the cheap ones first. May the operator move at all now (:func:`waits`)? Has anything changed, so that looking for
another host may pay (:func:`looks`)? Is the host that was found worth the move (:func:`decide`)? Usage is bytes in transit: rate
(bytes/s) x one-way latency (s), summed over the operator's links (SBON, section 2.1). A saving of usage that lasts for a time is
bytes in transit x seconds, which is the unit of what a move costs, too: state of B bytes over a path of L seconds is B x L.

Against oscillation: an operator rests after each move, does not return soon to a host that it has left, and each move within the
last hour raises the share of its usage that the next one must save.

If the rows of a query take so long that its bound is about to be broken, the way of rows counts and no usage (:func:`hastens`).
Bounds on throughput are in :mod:`sbon_node.adaptation.throughput`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from sbon_node.adaptation.settings import AdaptationSettings
from sbon_node.placement.model.network_view import Point
from sbon_protocol.api.adaptation import PastMove

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
    """Return why an operator of a query that is late moves to the offer, with code ``hastens``, or why not.

    A bound comes before usage, as it does at submission.
    """
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
