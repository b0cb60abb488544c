"""Messages of a host to the query holder about a part: its next epoch after a restart, and its end.

Source: docs/design.md, section 8.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from sbon_node.errors import SbonError
from sbon_node.model.bounded import MAX_EPOCH_LEAP
from sbon_node.workflow.context import Context
from sbon_protocol.calls import ClaimComponent, Claimed, ReportState

log = structlog.get_logger()

REFUSED = "query-refused"
"""The query's submission was refused: its host keeps nothing, not even results."""

OVER = frozenset({"query-over", REFUSED, "not-owner"})
"""Final refusals: the host forgets the part."""


def check_epoch(epoch: int, component: str) -> None:
    """Raise :class:`SbonError` ``bad-epoch`` for an epoch that no new part can have."""
    if not 1 <= epoch <= MAX_EPOCH_LEAP:
        raise SbonError("bad-epoch", f"no part begins in epoch {epoch}", where=component)


def is_same_submission(hosted_ms: int, called_ms: int) -> bool:
    """Return whether a call is for the submission that a part belongs to; 0 is unknown, as in records of earlier versions."""
    return hosted_ms == called_ms or 0 in (hosted_ms, called_ms)


async def claim(context: Context, holder: str, call: ClaimComponent) -> int:
    """Return the epoch in which this host now holds the part.

    Waits for an unreachable holder, and for one without a record of the query: consistency before availability.

    Raises :class:`SbonError` with a code in :data:`OVER` if the query is over or the part belongs to another host.
    """
    component, epoch = call.component, call.epoch
    while True:
        try:
            claimed = (await context.ask(holder, call, Claimed)).epoch
            if epoch < claimed <= epoch + MAX_EPOCH_LEAP:
                return claimed
            context.counters.refuse("epoch-refused", peer=holder, component=component, epoch=claimed, known=epoch)
        except SbonError as error:
            if error.code in OVER:
                raise
            log.info("claim-waits", component=component, holder=holder, reason=str(error))
        await context.clock.sleep(context.settings.retry_s)


async def report(context: Context, holder: str, ended: ReportState, matters: Callable[[], bool]) -> None:
    """Report the part's end to the holder; retry while the holder is away and ``matters()`` is true."""
    while matters():
        try:
            await context.call(holder, ended)
            return
        except SbonError as error:
            if error.code in OVER:
                return
            log.info("report-waits", component=ended.component, holder=holder, reason=str(error))
        await context.clock.sleep(context.settings.retry_s)
