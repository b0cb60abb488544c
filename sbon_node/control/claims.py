"""What a host tells the record's holder of a part: after a restart that it takes the next epoch (docs/design.md, section 8), and
how the part ended."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from sbon_node.control.context import Context
from sbon_node.errors import SbonError
from sbon_protocol.calls import Claimed, ClaimPart, ReportState

log = structlog.get_logger()

REFUSED = "query-refused"
"""The query's submission was refused: nothing of it is to stay, results included."""

OVER = frozenset({"query-over", REFUSED, "not-owner"})
"""Refusals that are final: the part is to be forgotten here."""


async def claim(context: Context, holder: str, query: str, part: str, epoch: int) -> int:
    """The epoch this host now holds ``part`` in. Waits for a holder that is out of reach: consistency before availability.

    Raises :class:`SbonError` with a code in :data:`OVER` where the query is over or the part belongs to another host.
    """
    while True:
        try:
            return (await context.ask(holder, ClaimPart(query=query, part=part, epoch=epoch), Claimed)).epoch
        except SbonError as error:
            if error.code in OVER:
                raise
            log.info("claim-waits", part=part, holder=holder, reason=str(error))
        await context.clock.sleep(context.settings.retry_s)


async def report(context: Context, holder: str, ended: ReportState, matters: Callable[[], bool]) -> None:
    """Tells the holder how the part ended, however long it is away, as long as it ``matters`` here."""
    while matters():
        try:
            await context.tell(holder, ended)
            return
        except SbonError as error:
            if error.code in OVER:
                return
            log.info("report-waits", part=ended.part, holder=holder, reason=str(error))
        await context.clock.sleep(context.settings.retry_s)
