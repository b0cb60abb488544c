"""Enforcement ants (ANTS, section 3.8) as steps at a cell. They carry out a placement if it still costs what was reported."""

from __future__ import annotations

import msgspec

from sbon_node.papers.ants.algorithm.cell import Cell
from sbon_node.papers.ants.algorithm.chain import Chain
from sbon_node.papers.ants.algorithm.scouting import Site

TOLERANCE = 0.1
"""Relative excess over the reported cost that a site may have."""
SLACK_MS = 5.0
"""Excess in milliseconds that it may always have: the wait at an idle server doubles with the noise of its measures."""


class EnforcementAnt(msgspec.Struct, frozen=True, kw_only=True):
    """An ant that books tasks. ``sites`` are in the order of its visits, ``at`` is the number of the next."""

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
