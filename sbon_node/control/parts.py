"""Ending the parts of a query that live on this node."""

from __future__ import annotations

from sbon_node.control.context import Context
from sbon_node.control.operators import OperatorHost
from sbon_node.control.sinks import SinkHost
from sbon_node.net.peers import Caller
from sbon_protocol.calls import DestroyParts, PartsDestroyed


class PartDestroyer:
    """Answers a record's holder that ends a query."""

    def __init__(self, context: Context, operators: OperatorHost, sinks: SinkHost) -> None:
        self._outbox, self._operators, self._sinks = context.outbox, operators, sinks
        context.server.handle(DestroyParts, self._destroy)

    async def _destroy(self, call: DestroyParts, caller: Caller) -> PartsDestroyed:
        rows, sink = await self._sinks.destroy(call.query, call.parts, caller.node, refused=call.refused)
        await self._operators.destroy(call.query, call.parts, caller.node)
        self._forget_subscribers(frozenset(call.parts))
        return PartsDestroyed(rows=rows, sink=sink)

    def _forget_subscribers(self, parts: frozenset[str]) -> None:
        """Parts on other nodes, perhaps unable to say so themselves, take nothing more from streams of this node."""
        for stream in self._outbox.streams():
            for subscriber in self._outbox.link_counts(stream).links:
                if subscriber.partition("#")[0] in parts:
                    self._outbox.unsubscribe(stream, subscriber)
