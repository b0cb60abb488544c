"""Calls of a host to the acceptors of a query's record: any one of them may answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import msgspec
import structlog

from sbon_node.errors import SbonError
from sbon_node.hosting.claims import OVER
from sbon_node.registers.states import Acceptor
from sbon_node.replication.query_keys import key_of
from sbon_node.replication.registers import Registers
from sbon_node.workflow.caller_checks import CallerChecks
from sbon_node.workflow.context import Context
from sbon_protocol.messages import Call

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
        """Return the first answer; raise a final refusal (:data:`~sbon_node.hosting.claims.OVER`), or the last error."""
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
        last: SbonError | None = None
        for node in sorted(nodes, key=lambda name: bool(self._context.away(name))):
            try:
                return await ask(node)
            except SbonError as error:
                if error.code in OVER:
                    raise
                last = error
        found = (await self._registers.find(key_of(query))).configuration
        for node in [one.node for one in found.members if one.node not in nodes] if found is not None else ():
            try:
                return await ask(node)
            except SbonError as error:
                if error.code in OVER:
                    raise
                last = error
        raise last or SbonError("record-unknown", f"no node that answers has a record of {query}", where="query")
