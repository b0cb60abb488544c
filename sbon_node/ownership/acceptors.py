"""Calls of a host to the acceptors of a query's record: any one of them may answer."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import msgspec
import structlog

from sbon_node.base.caller_checks import CallerChecks
from sbon_node.context import Context
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.ownership.store.query_keys import key_of
from sbon_node.ownership.store.registers import Registers
from sbon_protocol.api.bounded import MAX_EPOCH_LEAP
from sbon_protocol.base import Call
from sbon_protocol.calls import ClaimComponent, Claimed, ReportState
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

Reply = TypeVar("Reply", bound=msgspec.Struct)
T = TypeVar("T")


class RecordAcceptors:
    """Asks the acceptors of a record in their order, live ones first; looks for others where none of these has the record.

    Of a source, by its id, ``node_of`` returns the present node, empty for an unknown one, and ``is_detached`` whether it is so
    for good: the catalogue knows it.
    """

    def __init__(
        self,
        context: Context,
        registers: Registers,
        node_of: Callable[[str], str] = lambda source: "",
        is_detached: Callable[[str], bool] = lambda source: False,
    ) -> None:
        self._context, self._registers, self.node_of, self.is_detached = context, registers, node_of, is_detached
        self._checks = CallerChecks(context.settings.checks, "control.checks")

    async def ask(self, query: str, acceptors: Iterable[Acceptor], call: Call, reply: type[Reply]) -> Reply:
        """Return the first answer; raise a final refusal (:data:`~sbon_node.ownership.acceptors.OVER`), or the last error."""
        return await self._first(query, acceptors, lambda node: self._context.ask(node, call, reply))

    async def call(self, query: str, acceptors: Iterable[Acceptor], call: Call) -> None:
        """Call as :meth:`ask` does, for calls whose reply is empty."""
        await self._first(query, acceptors, lambda node: self._context.call(node, call))

    async def is_acceptor(self, query: str, acceptors: Iterable[Acceptor], node: str, *, insist: bool = False) -> bool:
        """Return whether ``node`` is an acceptor of the record, now or when its components were started.

        False if no majority says so; with ``insist``, the error is raised, so that an acceptor asks again. Raises
        ``too-many-checks``.
        """
        if any(one.node == node for one in acceptors):
            return True
        with self._checks.one(node, query):
            try:
                state = await self._registers.read(key_of(query))
            except SbonError as error:
                log.info("acceptors-unknown", query=query, code=error.code, reason=str(error))
                if insist:
                    raise
                return False
        return state is not None and any(one.node == node for one in state.configuration.members)

    async def _first(self, query: str, acceptors: Iterable[Acceptor], ask: Callable[[str], Awaitable[T]]) -> T:
        nodes = dict.fromkeys(one.node for one in acceptors)
        known = self._registers.configuration(key_of(query))
        if known is not None:
            nodes = dict.fromkeys((*(one.node for one in known.members), *nodes))
        try:
            return await in_turn(self._context, nodes, ask, is_final=_is_over)
        except SbonError as error:
            if _is_over(error):
                raise
            found = (await self._registers.find(key_of(query))).configuration
            others = [] if found is None else [one.node for one in found.members if one.node not in nodes]
            if not others:
                raise
            return await in_turn(self._context, others, ask, is_final=_is_over)


def _is_over(error: SbonError) -> bool:
    return error.code in OVER


async def in_turn(
    context: Context,
    nodes: Iterable[str],
    ask: Callable[[str], Awaitable[T]],
    *,
    is_final: Callable[[SbonError], bool] = lambda error: False,
    tells_more: Callable[[SbonError], bool] = lambda error: True,
) -> T:
    """Return the answer of the first node that gives one; nodes that are away come last.

    Raises a final error at once; else the last one that ``tells_more`` than those before, or ``record-unknown`` without a node.
    """
    last: SbonError | None = None
    for node in sorted(nodes, key=lambda name: bool(context.presence.away(name))):
        try:
            return await ask(node)
        except SbonError as error:
            if is_final(error):
                raise
            log.info("acceptor-not-asked", node=node, code=error.code, reason=str(error))
            last = error if last is None or tells_more(error) else last
    raise last or SbonError("record-unknown", "no node that answers has a record of it", where="query")


# -- Messages of a host about a part: its next epoch after a restart, and its end (docs/design.md, section 10) ---------

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


async def claim(context: Context, records: RecordAcceptors, acceptors: Iterable[Acceptor], call: ClaimComponent) -> int:
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


async def report(
    context: Context, records: RecordAcceptors, acceptors: Iterable[Acceptor], ended: ReportState, matters: Callable[[], bool]
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
