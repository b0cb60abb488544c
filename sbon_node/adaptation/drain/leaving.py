"""Leaving for good: refused while others need this node; if forced, they are informed first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from sbon_node.context import Context
from sbon_node.hosting.components import HostedComponent
from sbon_node.hosting.destroy import ComponentDestroyer
from sbon_node.ownership.acceptors import RecordAcceptors
from sbon_node.ownership.store.query_keys import query_of
from sbon_node.ownership.store.repair import Repair
from sbon_node.queries.driving.holder import QueryHolder
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.query_ids import name_of, shown
from sbon_protocol.api.states import query_states
from sbon_protocol.api.states.query_states import LIVE
from sbon_protocol.api.subscribers import component_of
from sbon_protocol.calls import ReportState
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


class Leaving:
    """Uses of this node by others: records of queries, parts of them, sources they read."""

    def __init__(
        self,
        context: Context,
        book: QueryHolder,
        destroyer: ComponentDestroyer,
        records: RecordAcceptors,
        repair: Repair,
        epochs: Callable[[], dict[str, int]],
    ) -> None:
        self._context, self._book, self._destroyer, self._epochs = context, book, destroyer, epochs
        self._records, self._repair = records, repair
        self.left = asyncio.Event()
        """Set when the daemon of a node that has left is to stop."""

    def needed_for(self) -> list[str]:
        """Return a line for each component or source that would be missed."""
        hosted = [f"hosts {shown(one.component)} of query {name_of(one.query)}" for one in self._destroyer.needed()]
        return [*hosted, *self._sources_in_use()]

    async def leave_and_stop(self, *, force: bool = False) -> None:
        """Leave as :meth:`leave` does, and have the daemon stop."""
        await self.leave(force=force)
        self.left.set()

    async def leave(self, *, force: bool) -> None:
        """Leave the cluster; raise ``node-in-use`` if the node is needed and ``force`` is false.

        Other nodes take the records of queries that are here; a record is needed here if none can. If forced, queries with such
        records are stopped, and queries with components here fail, as far as a majority of their acceptors is reachable.
        """
        self._check(self.needed_for(), force=force)
        for component in self._destroyer.needed():
            await self._give_up(component)
        left = {query_of(key) for key in await self._repair.hand_over()}
        kept = [record for record in self._book.records() if record.id in left]
        self._check(
            [
                f"keeps the record of query {name_of(record.id)}"
                + ("" if record.state in LIVE else "; some nodes do not know of its end yet")
                for record in kept
                if record.state in LIVE or not record.cleaned
            ],
            force=force,
        )
        for record in kept:
            if record.state in LIVE:
                await self._book.stop(record.id)
        await self._context.membership.leave()

    def _check(self, needed: list[str], *, force: bool) -> None:
        if needed and not force:
            raise SbonError(
                "node-in-use",
                f"{self._context.name} {'; '.join(needed)}",
                where="node",
                hint="stop those queries first, or force it",
                details=tuple(needed),
            )

    def _sources_in_use(self) -> list[str]:
        outbox = self._context.outbox
        reasons = []
        for stream in outbox.streams():
            if is_source(stream):
                readers = [component_of(name) for name, link in outbox.link_counts(stream).links.items() if not link.failed]
                reasons += [f"has {stream}, which {shown(reader)} reads" for reader in sorted(set(readers))]
        return reasons

    async def _give_up(self, hosted: HostedComponent) -> None:
        report = ReportState(
            query=hosted.query,
            component=hosted.component,
            state=query_states.FAILED,
            reason=f"{self._context.name} has left the cluster",
            epoch=self._epochs().get(hosted.component, 0),
        )
        try:
            await self._records.call(hosted.query, hosted.acceptors, report)
        except SbonError as error:
            log.warning("leaving-not-sent", query=hosted.query, component=hosted.component, reason=str(error))
