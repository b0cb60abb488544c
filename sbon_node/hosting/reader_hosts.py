"""The nodes of the readers of this node's operators, asked for once for each connection."""

from __future__ import annotations

from sbon_node.hosting.hosted_operator import HostedOperator
from sbon_node.hosting.record_acceptors import RecordAcceptors
from sbon_node.model.query_ids import uid_of
from sbon_node.model.subscribers import component_of
from sbon_node.workflow.context import Context
from sbon_protocol.moving import ComponentHost, LocateComponent


class ReaderHosts:
    """The nodes that host the readers of this node's operators, by their registers.

    A register is read once for each connection of a reader: a reader that moves connects anew.
    """

    def __init__(self, context: Context, records: RecordAcceptors) -> None:
        self._context, self._records = context, records
        self._known: dict[str, dict[str, tuple[int, str]]] = {}
        """The connection and the node of each subscriber, by operator."""

    async def node_of(self, hosted: HostedOperator, subscriber: str) -> str:
        """Return the node that hosts a subscriber of an operator; errors are those of :meth:`RecordAcceptors.ask`."""
        operator, reader = hosted.spec.id, component_of(subscriber)
        query = uid_of(reader)
        connection = self._context.publisher.connection(operator, subscriber)
        known = self._known.get(operator, {}).get(subscriber)
        if known is not None and known[0] == connection:
            return known[1]
        acceptors = next((one.acceptors for one in hosted.readers if one.query == query), ())
        call = LocateComponent(query=query, component=reader)
        node = (await self._records.ask(query, acceptors, call, ComponentHost)).node
        if connection is not None:
            served = self._context.outbox.link_counts(operator).links
            others = {one: found for one, found in self._known.get(operator, {}).items() if one in served}
            self._known[operator] = others | {subscriber: (connection, node)}
        return node

    def forget(self, operator: str) -> None:
        """Forget an operator that is no more hosted here."""
        self._known.pop(operator, None)
