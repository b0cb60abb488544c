"""Removal of a query's parts from this node."""

from __future__ import annotations

import msgspec

from sbon_node.context import Context
from sbon_node.hosting.components import HostedComponent
from sbon_node.hosting.moving.moves import Moves
from sbon_node.hosting.operators.host import OperatorHost
from sbon_node.hosting.operators.shared_operators import SharedOperators
from sbon_node.hosting.sinks.ended_queries import EndedQueries
from sbon_node.hosting.sinks.host import SinkHost
from sbon_node.hosting.standby.operator import OperatorKeeper
from sbon_node.net.peers import Caller
from sbon_node.ownership.acceptors import RecordAcceptors
from sbon_protocol.api.query_ids import sink_of, uid_of
from sbon_protocol.api.subscribers import component_of
from sbon_protocol.calls import ComponentsDestroyed, DestroyComponents


class ComponentDestroyer:
    """Answers an acceptor of a query's record that ends the query."""

    def __init__(
        self,
        context: Context,
        operators: OperatorHost,
        sinks: SinkHost,
        records: RecordAcceptors,
        ended: EndedQueries,
        moves: Moves,
        backups: OperatorKeeper,
        shared: SharedOperators,
    ) -> None:
        self._outbox, self._operators, self._sinks, self._records = context.outbox, operators, sinks, records
        self._ended, self._moves, self._backups, self._shared = ended, moves, backups, shared
        context.server.handle(DestroyComponents, self._destroy)

    def components(self) -> list[HostedComponent]:
        """Return all operators and sinks of this node, also those that only follow."""
        return [
            *self._operators.components(),
            *self._moves.arrivals.components(),
            *self._backups.components(),
            *self._sinks.components(),
        ]

    def hosted(self) -> set[str]:
        """Return the operators and sinks that this node hosts, without those that only follow."""
        return {one.component for one in (*self._operators.components(), *self._sinks.components())}

    def needed(self) -> list[HostedComponent]:
        """Return the components that a query would miss: all but backups whose hosts are there, and find others."""
        spare = self._backups.spare()
        return [one for one in self.components() if one.component not in spare]

    async def _destroy(self, call: DestroyComponents, caller: Caller) -> ComponentsDestroyed:
        acceptors = [one.acceptors for one in self.components() if one.query == call.query and one.component in call.components]
        known = acceptors[0] if acceptors else ()
        subscribed = bool(self._subscriptions(call))
        needed = bool(acceptors) or subscribed or self._operators.reserved_by_others(call, caller.node)
        if needed and not await self._records.is_acceptor(call.query, known, caller.node, insist=subscribed):
            self._operators.release(call, caller.node)
            return ComponentsDestroyed()
        if sink_of(call.query) in call.components:  # A sink ends with its query alone.
            self._ended.add(call.query, caller.node)
        return await self.end(call)

    async def end(self, call: DestroyComponents) -> ComponentsDestroyed:
        """End components, and release reservations for them; operators that other queries share stay."""
        kept = self._shared.keep(call)
        call = msgspec.structs.replace(call, components=tuple(one for one in call.components if one not in kept))
        with self._shared.ending(call.components):
            rows, sink = await self._sinks.destroy(call)
            await self._moves.departures.end_with_query(call.query, call.components)
            await self._moves.arrivals.destroy(call)
            await self._backups.destroy(call)
            await self._operators.destroy(call)
        for stream, subscriber in self._subscriptions(call):  # Parts on other nodes may be unable to unsubscribe themselves.
            self._outbox.unsubscribe(stream, subscriber)
        for unread in self._shared.give_back(call):
            await self.end(unread)
        return ComponentsDestroyed(rows=rows, sink=sink, kept=kept)

    def _subscriptions(self, call: DestroyComponents) -> list[tuple[str, str]]:
        """Return streams of this node with the subscribers that are among the query's named components."""
        components = frozenset(one for one in call.components if uid_of(one) == call.query)
        links = ((stream, name) for stream in self._outbox.streams() for name in self._outbox.link_counts(stream).links)
        return [(stream, name) for stream, name in links if component_of(name) in components]
