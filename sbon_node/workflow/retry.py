"""Retries with growing pauses for temporary errors; permanent errors are raised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sbon_node.base.backoff import Backoff
from sbon_node.base.tasks import check_cancelled
from sbon_node.connectors.interface import AWAY
from sbon_node.workflow.context import Context
from sbon_node.workflow.settings import ControlSettings
from sbon_protocol.errors import SbonError

T = TypeVar("T")

PASSING = frozenset(
    {"checkpoint-in-use", "disk-full", "disk-error", "store-busy", "engine-failed", "java-missing", "no-capacity", AWAY}
)
"""Codes of errors of this node or its peers, independent of the request."""

FINAL = frozenset({"checkpoint-mismatch", "checkpoint-unreadable", "fenced", "forbidden-sql", "outbox-corrupt", "sink-lost"})
"""Codes of errors that no retry cures. Other codes are retried ``control.resume_tries`` times."""


def backoff_of(settings: ControlSettings) -> Backoff:
    """Return the pauses of a workflow that tries again."""
    return Backoff(settings.retry_s, settings.retry_max_s)


async def until_passed(context: Context, attempt: Callable[[], Awaitable[T]], waits: Callable[[SbonError], None]) -> T:
    """Repeat ``attempt`` until it succeeds; raise permanent errors.

    ``waits`` receives each temporary error.
    """
    tries, backoff = 0, backoff_of(context.settings)
    while True:
        try:
            return await attempt()
        except SbonError as error:
            check_cancelled()
            tries += error.code not in PASSING
            if error.code in FINAL or tries >= context.settings.resume_tries:
                raise
            waits(error)
        await context.clock.sleep(backoff.next_s())
