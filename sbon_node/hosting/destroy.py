"""Removal of a query's parts from this node."""

from collections.abc import Container, Iterable

import msgspec
import structlog

from sbon_node.context import Context
from sbon_node.hosting.components import HostedComponent
from sbon_node.hosting.moving.arrivals import Moves
from sbon_node.hosting.operators.host import OperatorHost
from sbon_node.hosting.operators.shared_operators import SharedOperators, is_shared
from sbon_node.hosting.sinks.host import EndedQueries, SinkHost
from sbon_node.hosting.sinks.open_sinks import ReaderPositions
from sbon_node.hosting.standby.operator import OperatorKeeper
from sbon_node.net.peers import Caller
from sbon_node.ownership.acceptors import RecordAcceptors
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.ownership.store.query_keys import key_of
from sbon_node.ownership.store.registers import UNDECIDED, Registers
from sbon_protocol.api.query_ids import sink_of, uid_of
from sbon_protocol.api.states.lifecycle import LOST, UNREACHABLE
from sbon_protocol.api.subscribers import component_of
from sbon_protocol.calls import CheckQueries, ComponentsDestroyed, DestroyComponents, QueriesChecked
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


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


# -- Components whose query is over although this host has missed its end, and readers that are ------------------------

# A host asks the acceptors of its queries now and then. It ends components for a tombstone alone: a record that no node has is
# no proof that the query is over.

MOST_SEARCHED = 8
"""Queries unknown to their acceptors that one round looks for at all members."""
NOBODY = ""
MOST_ASKED = 1024
"""Queries in one call."""


class OrphanCheck:
    """Asks every ``control.orphan_check_s`` whether the queries of this host's components still live.

    One call names all queries with the same first live acceptor, so that a node at rest sends few bytes.
    """

    def __init__(
        self,
        context: Context,
        registers: Registers,
        owners: OperatorRegisters,
        destroyer: ComponentDestroyer,
        readers: ReaderPositions,
    ) -> None:
        self._context, self._registers, self._owners = context, registers, owners
        self._destroyer, self._readers = destroyer, readers
        self._unrecorded: dict[str, None] = {}
        """Queries that refer to operators here, and of which no member had a record in the last round."""
        self._lost: list[str] = []
        """Queries with components here, and without a record in the last round."""

    async def run(self) -> None:
        while True:
            await self._context.clock.sleep(self._context.settings.orphan_check_s * self._context.rng.uniform(0.75, 1.25))
            await self._round()

    async def _round(self) -> None:
        unknown: list[str] = []
        by_acceptor = self._by_acceptor()
        unknown += by_acceptor.pop(NOBODY, [])
        for node, queries in sorted(by_acceptor.items()):
            unknown += await self._ask(node, queries[:MOST_ASKED])
        before, self._unrecorded = self._unrecorded, {}
        self._lost = [query for query in unknown[:MOST_SEARCHED] if await self._is_lost(query, before)]
        await self._readers.end_removed()

    def without_record(self) -> dict[str, int]:
        """Return the number of queries here that are ``lost``, and of those ``unreachable``: most of their acceptors are away."""
        acceptors = {one.query: one.acceptors for one in self._destroyer.components()}
        unreachable = [query for query, known in acceptors.items() if query not in self._lost and self._is_cut_off(query, known)]
        return {LOST: sum(query in acceptors for query in self._lost), UNREACHABLE: len(unreachable)}

    def _is_cut_off(self, query: str, acceptors: Iterable[Acceptor]) -> bool:
        known = self._registers.configuration(key_of(query))
        nodes = [one.node for one in (acceptors if known is None else known.members)]
        return bool(nodes) and 2 * sum(not self._context.presence.away(node) for node in nodes) <= len(nodes)

    def _by_acceptor(self) -> dict[str, list[str]]:
        """Return this host's queries by the first acceptor that is present, :data:`NOBODY` if none is known."""
        by_node: dict[str, list[str]] = {}
        for query in sorted({one.query for one in self._destroyer.components()}):
            acceptors = self._acceptors_of(query)
            nodes = [node for node in acceptors if not self._context.presence.away(node)]
            if nodes or not acceptors:
                by_node.setdefault(nodes[0] if nodes else NOBODY, []).append(query)
        return by_node

    def _acceptors_of(self, query: str) -> list[str]:
        known = self._registers.configuration(key_of(query))
        acceptors = [one for component in self._destroyer.components() if component.query == query for one in component.acceptors]
        return list(dict.fromkeys(one.node for one in (*(() if known is None else known.members), *acceptors)))

    async def _ask(self, node: str, queries: Iterable[str]) -> list[str]:
        """End components of queries that are over; return the queries that are unknown at the acceptor."""
        try:
            checked = await self._context.ask(node, CheckQueries(queries=tuple(queries)), QueriesChecked)
        except SbonError as error:
            log.info("orphans-not-checked", node=node, code=error.code, reason=str(error))
            return []
        for query in checked.over:
            await self._end(query, refused=False)
        for query in checked.refused:
            await self._end(query, refused=True)
        return list(checked.unknown)

    async def _is_lost(self, query: str, before: Container[str]) -> bool:
        """Look for a record at all members, and ask an acceptor that has it; without one, any that remembers the query's end.

        Returns whether the record is lost.

        A query that only refers to operators of others, and has no record at any member, now and in the round ``before``, was
        never made: the node that took it has died.
        """
        search = await self._registers.find(key_of(query))
        found = search.configuration
        nodes = self._acceptors_of(query) if found is None else [one.node for one in found.members]
        present = [node for node in nodes if not self._context.presence.away(node)]
        for node in present if found is None else present[:1]:
            if query not in await self._ask(node, (query,)):
                return False
        held = (one.component for one in self._destroyer.components() if one.query == query)
        if found is None and not search.silent and all(uid_of(component) != query for component in held):
            self._unrecorded[query] = None
            if query in before:
                await self._end(query, refused=True)
            return False
        if found is None:
            log.warning("record-lost", query=query, hint=f"its components end with: sbon query stop {query}")
        return found is None

    async def _end(self, query: str, *, refused: bool) -> None:
        held = [one.component for one in self._destroyer.components() if one.query == query]
        components = tuple([one for one in held if not await self._goes_on(query, one)])
        if components:
            log.info("orphans-ended", query=query, components=components)
            call = DestroyComponents(query=query, components=components, refused=refused)
            await self._destroyer.end(call)

    async def _goes_on(self, query: str, component: str) -> bool:
        """Return whether a component that is not hosted here, but may come, goes on for other queries, or lacks a majority."""
        if component in self._destroyer.hosted():
            return False
        try:
            return is_shared(await self._owners.read(query, component), query)
        except SbonError as error:
            return error.code in UNDECIDED
