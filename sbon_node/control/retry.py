"""What passes by itself is waited for, with growing pauses; what does not is raised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from sbon_node.connectors.interface import AWAY
from sbon_node.control.context import Context
from sbon_node.control.settings import ControlSettings
from sbon_node.errors import SbonError

T = TypeVar("T")

PASSING = frozenset(
    {"checkpoint-in-use", "disk-full", "disk-error", "store-busy", "engine-failed", "java-missing", "no-room", AWAY}
)
"""Codes that tell of this node, or of what it talks to, and not of what it was asked for."""

FINAL = frozenset({"checkpoint-mismatch", "checkpoint-unreadable", "fenced", "forbidden-sql", "outbox-corrupt", "sink-lost"})
"""Codes that will be the same however often it is tried. Any other may be chance: it is tried ``control.resume_tries`` times."""


def pauses(settings: ControlSettings) -> Iterator[float]:
    """Seconds: ``retry_s``, doubled each time, ``retry_max_s`` at most; for ever."""
    pause_s = settings.retry_s
    while True:
        yield min(pause_s, settings.retry_max_s)
        pause_s = min(2 * pause_s, settings.retry_max_s)


async def until_passed(context: Context, attempt: Callable[[], Awaitable[T]], waits: Callable[[SbonError], None]) -> T:
    """Repeats ``attempt`` until it succeeds, telling ``waits`` of each error that is waited out; raises what is final."""
    tries = 0
    for pause_s in pauses(context.settings):
        try:
            return await attempt()
        except SbonError as error:
            tries += error.code not in PASSING
            if error.code in FINAL or tries >= context.settings.resume_tries:
                raise
            waits(error)
        await context.clock.sleep(pause_s)
    raise AssertionError("pauses never end")
