"""Enforcement ants at one node: they reserve the tasks of a site, and undo it where a later site refuses."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from sbon_node.errors import SbonError
from sbon_node.hosting.ants.wire import are_whole, chain_of, needs_of, site_of
from sbon_node.model.operators import Needs
from sbon_node.placement.model.queueing import Flow
from sbon_node.placement.strategies.ants.cell import Cell
from sbon_node.placement.strategies.ants.enforcement import EnforcementAnt, exceeds
from sbon_protocol.ants import EnforceAnt, EnforceReturn, WithdrawAnt

MAX_BOOKINGS = 1024


class Booking(NamedTuple):
    """Operators of ``leader`` with reserved capacity here, and the flow through them; ``until`` it counts as traffic.

    The flow keeps no more cores busy than are reserved: an ant may claim any work.
    """

    leader: str
    needs: dict[str, Needs]
    flow: Flow
    until: float


class Sent(NamedTuple):
    """An ant on its way to the node ``to``."""

    to: str
    ant: EnforceAnt | EnforceReturn | WithdrawAnt


Reserve = Callable[[str, str, dict[str, Needs], float], None]
"""Reserves for a leader, on behalf of the node that the ant came from, operators for some seconds; raises ``SbonError``."""
Release = Callable[[str, tuple[str, ...]], None]
"""Releases what a leader has reserved for operators that do not run."""


class Enforcing:
    """The bookings of this node by round, at most ``MAX_BOOKINGS``, for ``booked_s`` seconds."""

    def __init__(self, cell: Cell, booked_s: float, reserve: Reserve, release: Release) -> None:
        self._cell, self._booked_s, self._reserve, self._release = cell, booked_s, reserve, release
        self._bookings: OrderedDict[int, Booking] = OrderedDict()

    def bookings(self, now: float) -> list[Booking]:
        """Return the bookings that still count, and forget the others."""
        for round_ in [round_ for round_, booking in self._bookings.items() if booking.until <= now]:
            del self._bookings[round_]
        return list(self._bookings.values())

    def enforce(self, ant: EnforceAnt, sender: str, now: float) -> list[Sent]:
        """Reserve for the ant's site here, and send the ant on, to its leader in the end; or send it back."""
        name, tasks = self._cell.name, len(ant.chain.tasks)
        named = len(ant.operators) == tasks and are_whole(ant.sites, tasks, all_placed=True)
        if not named or ant.at >= len(ant.sites) or ant.sites[ant.at].node != name:
            return []
        if ant.round not in self._bookings:
            reason = self._booked(ant, sender, now)
            if reason:
                before = tuple(site.node for site in reversed(ant.sites[: ant.at]))
                back = [Sent(before[0], WithdrawAnt(ant.round, name, before[1:]))] if before else []
                return [*back, Sent(ant.leader, EnforceReturn(ant.round, name, False, reason[:500]))]
        if ant.at + 1 == len(ant.sites):
            return [Sent(ant.leader, EnforceReturn(ant.round, name, True))]
        return [Sent(ant.sites[ant.at + 1].node, msgspec.structs.replace(ant, sender=name, at=ant.at + 1))]

    def withdraw(self, ant: WithdrawAnt) -> list[Sent]:
        """Undo the booking of a round, and send the ant on to the nodes before."""
        booking = self._bookings.pop(ant.round, None)
        if booking is not None:
            self._release(booking.leader, tuple(booking.needs))
        return [Sent(ant.nodes[0], WithdrawAnt(ant.round, self._cell.name, ant.nodes[1:]))] if ant.nodes else []

    def _booked(self, ant: EnforceAnt, sender: str, now: float) -> str:
        """Reserve and book; return the reason of a refusal, or nothing."""
        site, chain = site_of(ant.sites[ant.at]), chain_of(ant.chain, str(ant.round))
        if len(self.bookings(now)) >= MAX_BOOKINGS:
            return f"{self._cell.name} has booked too many queries"
        if exceeds(self._cell, EnforcementAnt(chain=chain, sites=(site,))):
            return f"{self._cell.name} has become too busy"
        tasks = range(site.first, site.last)
        needs = {f"{ant.query}.{ant.operators[task]}": needs_of(ant.chain.tasks[task]) for task in tasks}
        try:
            self._reserve(ant.leader, sender, needs, ant.hold_s)
        except SbonError as error:
            return f"{self._cell.name}: {error.message}"
        flow = within(chain.flow(site.first, site.last), sum(one.cores for one in needs.values()))
        self._bookings[ant.round] = Booking(ant.leader, needs, flow, now + self._booked_s)
        return ""


def within(flow: Flow, cores: float) -> Flow:
    """Return the flow with no more messages than keep so many cores busy."""
    most_s = math.inf if flow.service.mean_ms <= 0 else 1000.0 * cores / flow.service.mean_ms
    return msgspec.structs.replace(flow, rate_s=min(flow.rate_s, most_s))
