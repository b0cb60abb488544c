"""Retries with growing pauses for temporary errors; permanent errors are raised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from sbon_node.connectors.interface import AWAY
from sbon_node.errors import SbonError
from sbon_node.workflow.context import Context
from sbon_node.workflow.settings import ControlSettings

T = TypeVar("T")

PASSING = frozenset(
    {"checkpoint-in-use", "disk-full", "disk-error", "store-busy", "engine-failed", "java-missing", "no-capacity", AWAY}
)
"""Codes of errors of this node or its peers, independent of the request."""

FINAL = frozenset({"checkpoint-mismatch", "checkpoint-unreadable", "fenced", "forbidden-sql", "outbox-corrupt", "sink-lost"})
"""Codes of errors that no retry cures. Other codes are retried ``control.resume_tries`` times."""


def pauses(settings: ControlSettings) -> Iterator[float]:
    """Return pauses in seconds: ``retry_s``, doubled each time, at most ``retry_max_s``; without end."""
    pause_s = settings.retry_s
    while True:
        yield min(pause_s, settings.retry_max_s)
        pause_s = min(2 * pause_s, settings.retry_max_s)


async def until_passed(context: Context, attempt: Callable[[], Awaitable[T]], waits: Callable[[SbonError], None]) -> T:
    """Repeat ``attempt`` until it succeeds; raise permanent errors.

    ``waits`` receives each temporary error.
    """
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
