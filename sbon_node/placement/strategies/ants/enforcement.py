"""Enforcement ants (ANTS, section 3.8) as steps at a cell: a placement that was found is carried out, if it still costs what was
reported."""

from __future__ import annotations

import msgspec

from sbon_node.placement.strategies.ants.cell import Cell
from sbon_node.placement.strategies.ants.chain import Chain
from sbon_node.placement.strategies.ants.scouting import Site

TOLERANCE = 0.1
"""By how much of what was reported a site may cost more."""


class EnforcementAnt(msgspec.Struct, frozen=True, kw_only=True):
    """``sites`` in the order in which it visits them, ``at`` the number of the next."""

    chain: Chain
    sites: tuple[Site, ...]
    at: int = 0


def enforce(cell: Cell, ant: EnforcementAnt) -> EnforcementAnt | None:
    """At the cell of the next site: books its tasks there. None where they would cost too much more than was reported: then the
    ant goes back, undoing what it did (:func:`withdraw`)."""
    site = ant.sites[ant.at]
    quote = cell.quote(ant.chain, site.first, site.last)
    if quote.cost_ms > (site.own_ms + site.others_ms) * (1.0 + TOLERANCE) + 1e-9:
        return None
    cell.book(ant.chain, site.first, site.last)
    return msgspec.structs.replace(ant, at=ant.at + 1)


def withdraw(cell: Cell, ant: EnforcementAnt) -> EnforcementAnt:
    """At the cell of the site before: undoes it."""
    site = ant.sites[ant.at - 1]
    cell.release(ant.chain, site.first)
    return msgspec.structs.replace(ant, at=ant.at - 1)
