"""Removal of a query's parts from this node."""

from __future__ import annotations

from sbon_node.hosting.operators import OperatorHost
from sbon_node.hosting.sinks import SinkHost
from sbon_node.net.peers import Caller
from sbon_node.workflow.context import Context
from sbon_protocol.calls import ComponentsDestroyed, DestroyComponents


class ComponentDestroyer:
    """Answers a query holder that ends a query."""

    def __init__(self, context: Context, operators: OperatorHost, sinks: SinkHost) -> None:
        self._outbox, self._operators, self._sinks = context.outbox, operators, sinks
        context.server.handle(DestroyComponents, self._destroy)

    async def _destroy(self, call: DestroyComponents, caller: Caller) -> ComponentsDestroyed:
        rows, sink = await self._sinks.destroy(call, caller.node)
        await self._operators.destroy(call, caller.node)
        self._forget_subscribers(frozenset(call.components))
        return ComponentsDestroyed(rows=rows, sink=sink)

    def _forget_subscribers(self, components: frozenset[str]) -> None:
        """Remove subscriptions of parts on other nodes, which may be unable to unsubscribe themselves."""
        for stream in self._outbox.streams():
            for subscriber in self._outbox.link_counts(stream).links:
                if subscriber.partition("#")[0] in components:
                    self._outbox.unsubscribe(stream, subscriber)
