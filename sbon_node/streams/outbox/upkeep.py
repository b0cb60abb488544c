"""Upkeep of the outbox: disk that it no longer uses goes back to the machine."""

from __future__ import annotations

import structlog

from sbon_node.base.clock import Clock
from sbon_node.streams.outbox.outbox import Outbox
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


async def return_disk(outbox: Outbox, clock: Clock) -> None:
    """Shrink the outbox after changes, in small steps, without end."""
    while True:
        try:
            while (pause_s := outbox.shrink()) is not None:
                await clock.sleep(pause_s)
        except SbonError as error:
            log.warning("outbox-not-shrunk", reason=str(error))
        await outbox.changed.wait()
