"""Messages of a host to the acceptors of a query's record about a part: its next epoch after a restart, and its end.

Source: docs/design.md, section 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from sbon_node.errors import SbonError
from sbon_node.hosting.hosted_operator import HostedOperator
from sbon_node.registers.states import Acceptor
from sbon_node.workflow.context import Context
from sbon_protocol.api.bounded import MAX_EPOCH_LEAP
from sbon_protocol.calls import ClaimComponent, Claimed, ReportState
from sbon_protocol.messages import Call

log = structlog.get_logger()

QUERY_OVER = "query-over"
REFUSED = "query-refused"
"""The query's submission was refused: its host keeps nothing, not even results."""

NOT_OWNER = "not-owner"
OVER = frozenset({QUERY_OVER, REFUSED, NOT_OWNER})
"""Final refusals: the host forgets the part."""


def check_epoch(epoch: int, component: str) -> None:
    """Raise :class:`SbonError` ``bad-epoch`` for an epoch that no new part can have."""
    if not 1 <= epoch <= MAX_EPOCH_LEAP:
        raise SbonError("bad-epoch", f"no part begins in epoch {epoch}", where=component)


class Acceptors(Protocol):
    """The acceptors of records, as :class:`~sbon_node.hosting.record_acceptors.RecordAcceptors` asks them."""

    async def ask(self, query: str, acceptors: Iterable[Acceptor], call: Call, reply: type[Claimed]) -> Claimed: ...

    async def call(self, query: str, acceptors: Iterable[Acceptor], call: Call) -> None: ...


async def claim(context: Context, records: Acceptors, acceptors: Iterable[Acceptor], call: ClaimComponent) -> int:
    """Return the epoch in which this host now holds the part.

    Waits for a majority of the acceptors, and while no node has the record: consistency before availability.

    Raises :class:`SbonError` with a code in :data:`OVER` if the query is over or the part belongs to another host.
    """
    component, epoch = call.component, call.epoch
    while True:
        try:
            claimed = (await records.ask(call.query, acceptors, call, Claimed)).epoch
            if epoch < claimed <= epoch + MAX_EPOCH_LEAP:
                return claimed
            context.counters.refuse("epoch-refused", query=call.query, component=component, epoch=claimed, known=epoch)
        except SbonError as error:
            if error.code in OVER:
                raise
            log.info("claim-waits", component=component, reason=str(error))
        await context.clock.sleep(context.settings.retry_s)


async def report_failure(
    context: Context, records: Acceptors, hosted: HostedOperator, reason: str, matters: Callable[[], bool]
) -> None:
    """Report the end of an operator to all queries that read it, as :func:`report` does."""
    reports = [(one.acceptors, hosted.failure(one.query, reason)) for one in hosted.readers]
    await asyncio.gather(*(report(context, records, *one, matters) for one in reports))


async def report(
    context: Context, records: Acceptors, acceptors: Iterable[Acceptor], ended: ReportState, matters: Callable[[], bool]
) -> str:
    """Report the part's end; retry while too few acceptors answer and ``matters()`` is true.

    Returns the code in :data:`OVER` of a final refusal; empty without one.
    """
    while matters():
        try:
            await records.call(ended.query, acceptors, ended)
            return ""
        except SbonError as error:
            if error.code in OVER:
                return error.code
            log.info("report-waits", component=ended.component, reason=str(error))
        await context.clock.sleep(context.settings.retry_s)
    return ""
