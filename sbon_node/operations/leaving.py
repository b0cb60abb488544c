"""Leaving for good: refused while others need this node; if forced, they are informed first."""

from __future__ import annotations

import structlog

from sbon_node.errors import SbonError
from sbon_node.hosting.operators import OperatorHost
from sbon_node.hosting.sinks import SinkHost
from sbon_node.model.catalogue import is_source
from sbon_node.model.states import query_states
from sbon_node.model.states.query_states import LIVE
from sbon_node.queries.holder import QueryHolder
from sbon_node.workflow.context import Context
from sbon_protocol.calls import ReportState

log = structlog.get_logger()


class Leaving:
    """Uses of this node by others: records of queries, parts of them, sources they read."""

    def __init__(self, context: Context, book: QueryHolder, operators: OperatorHost, sinks: SinkHost) -> None:
        self._context, self._book, self._operators, self._sinks = context, book, operators, sinks

    def needed_for(self) -> list[str]:
        """Return a line for each part, record or source that would be missed."""
        hosted = [f"hosts {component} of query {query}" for query, component, _ in self._components()]
        reasons = [
            f"keeps the record of query {record.id}" + ("" if record.state in LIVE else "; some nodes do not know of its end yet")
            for record in self._book.records()
            if record.state in LIVE or not record.cleaned
        ]
        return [*reasons, *hosted, *self._sources_in_use()]

    async def leave(self, *, force: bool) -> None:
        """Leave the cluster; raise ``node-in-use`` if the node is needed and ``force`` is false.

        If forced, queries whose records are here are stopped, and queries with parts here fail, as far as their holders are
        reachable.
        """
        needed = self.needed_for()
        if needed and not force:
            raise SbonError(
                "node-in-use",
                f"{self._context.name} {'; '.join(needed)}",
                where="node",
                hint="stop those queries first, or force it",
                details=tuple(needed),
            )
        for record in self._book.records():
            if record.state in LIVE:
                await self._book.stop(record.id)
        for query, component, holder in self._components():
            await self._give_up(query, component, holder)
        await self._context.membership.leave()

    def _components(self) -> list[tuple[str, str, str]]:
        return [*self._operators.components(), *self._sinks.components()]

    def _sources_in_use(self) -> list[str]:
        outbox = self._context.outbox
        reasons = []
        for stream in outbox.streams():
            if is_source(stream):
                readers = [name.partition("#")[0] for name, link in outbox.link_counts(stream).links.items() if not link.failed]
                reasons += [f"has {stream}, which {reader} reads" for reader in sorted(set(readers))]
        return reasons

    async def _give_up(self, query: str, component: str, holder: str) -> None:
        reason = f"{self._context.name} has left the cluster"
        epoch, submitted_ms = {**self._operators.epochs(), **self._sinks.epochs()}.get(component, (0, 0))
        report = ReportState(
            query=query,
            component=component,
            state=query_states.FAILED,
            reason=reason,
            epoch=epoch,
            submitted_ms=submitted_ms,
        )
        try:
            await self._context.call(holder, report)
        except SbonError as error:
            log.warning("leaving-not-sent", query=query, component=component, holder=holder, reason=str(error))
