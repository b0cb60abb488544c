"""Pauses between a link's attempts to reach the host of its stream."""

from __future__ import annotations

from collections.abc import Callable

from sbon_node.clock import Clock
from sbon_node.errors import SbonError
from sbon_node.net.transport import Address

GLANCE_S = 0.1
"""Seconds between two looks, which send nothing, at where the host is."""


async def paused(clock: Clock, locate: Callable[[], Address], seconds: float) -> bool:
    """Wait so long; return True as soon as membership says something else of the host than before: it is lost, or back."""
    before, until = _whereabouts(locate), clock.now() + seconds
    while (left := until - clock.now()) > 0:
        await clock.sleep(min(left, GLANCE_S))
        if _whereabouts(locate) != before:
            return True
    return False


def _whereabouts(locate: Callable[[], Address]) -> Address | str:
    try:
        return locate()
    except SbonError as error:
        return str(error)
