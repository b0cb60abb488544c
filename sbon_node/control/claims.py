"""Fencing: a host that restarts takes the next epoch for itself at the record, or yields (DESIGN, section 7)."""

from __future__ import annotations

import structlog

from sbon_node.control.context import Context
from sbon_node.errors import SbonError
from sbon_protocol.calls import Claimed, ClaimPart

log = structlog.get_logger()

OVER = frozenset({"query-over", "not-owner"})
"""Refusals that are final: the part is to be forgotten here."""


async def claim(context: Context, holder: str, query: str, part: str, epoch: int) -> int:
    """The epoch this host now holds ``part`` in. Waits for a holder that is out of reach: consistency before availability.

    Raises :class:`SbonError` with a code in :data:`OVER` where the query is over or the part belongs to another host.
    """
    while True:
        try:
            answer = await context.ask(holder, ClaimPart(query=query, part=part, epoch=epoch), Claimed)
        except SbonError as error:
            if error.code in OVER:
                raise
            log.info("claim-waits", part=part, holder=holder, reason=str(error))
            await context.clock.sleep(context.settings.retry_s)
        else:
            return answer.epoch
