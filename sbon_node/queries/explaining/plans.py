"""Explanations of plans, of queries that run or do not; nothing changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sbon_node.context import Context
from sbon_node.hosting.sources.host import SourceHost
from sbon_node.queries.describing.lookup import QueryLookup
from sbon_node.queries.explaining.plan_explanation import explained
from sbon_node.queries.submitting.planning import Planning
from sbon_node.queries.submitting.reuse import Reuse
from sbon_protocol.api.explanations import Explanation
from sbon_protocol.api.plan import Plan
from sbon_protocol.api.queries import QueryInfo, QuerySpec
from sbon_protocol.api.streams import SourceInfo
from sbon_protocol.api.usage import QueryUsage
from sbon_protocol.errors import SbonError


class Explainer:
    """Collects and combines the data of an explanation. Raises :class:`SbonError` as a submission does."""

    def __init__(self, context: Context, planning: Planning, lookup: QueryLookup, sources: SourceHost, reuse: Reuse) -> None:
        self._context, self._planning, self._lookup, self._sources = context, planning, lookup, sources
        self._reuse = reuse

    async def plan(self, question: QuerySpec) -> Explanation:
        """Explain a query that could be submitted, at the strategy's current placement; reserve nothing."""
        question.check()
        consumer = self._planning.consumer(question.consumer)
        plan = await self._planning.plan(question, "q")
        plan = await self._reuse.shared(plan, question, "q", consumer)
        placement, sources = await asyncio.gather(
            self._planning.place(plan, question, consumer, adapt=self._planning.adaptation(question)), self._described(plan)
        )
        return explained(
            plan,
            sql=question.sql,
            strategy=question.strategy,
            consumer=consumer,
            hosts=placement.hosts(),
            latency_ms=self._latency_ms,
            sources=sources,
            operators={},
        )

    async def query(self, query_id: str) -> Explanation:
        """Explain a query of the cluster in its current or last state."""
        info, query_usage = await self._lookup.show(query_id)
        if info.plan is None or info.placement is None:
            raise SbonError("query-not-placed", f"the query {query_id} has not been placed", where="query", hint="ask again")
        latencies = _latencies_of(info, query_usage)

        def latency_ms(source: str, target: str) -> float | None:
            return latencies.get((source, target), self._latency_ms(source, target))

        return explained(
            info.plan,
            sql=info.sql,
            strategy=info.strategy,
            consumer=info.consumer,
            hosts=info.hosts(),
            latency_ms=latency_ms,
            sources=await self._described(info.plan),
            operators={operator.id: operator for operator in (*info.operators, *info.shared)},
            query=info.id,
            uid=info.uid,
            state=info.state,
            reason=info.reason,
            taken=info.rows,
            sink_lost=info.sink_lost,
            usage=query_usage,
            life_ms=query_usage.at_ms - info.submitted_ms,
        )

    async def _described(self, plan: Plan) -> dict[str, SourceInfo]:
        """Describe sources by id; skip dropped streams, and streams declared again under their names."""
        names = sorted({planned.source.stream for planned in plan.sources})
        described: dict[str, SourceInfo] = {}
        for infos in await asyncio.gather(*(self._sources_of(name) for name in names)):
            described |= {info.source.id: info for info in infos}
        return described

    async def _sources_of(self, name: str) -> Iterable[SourceInfo]:
        try:
            return (await self._sources.describe(name)).sources
        except SbonError as error:
            if error.code != "unknown-stream":
                raise
            return ()

    def _latency_ms(self, source: str, target: str) -> float | None:
        return self._context.directory.estimate_rtt_ms(source, target).one_way_ms


def _latencies_of(info: QueryInfo, query_usage: QueryUsage) -> dict[tuple[str, str], float]:
    """Return latencies as the links' nodes report them, if known."""
    baseline = {(line.source_node, line.target_node): line.latency_ms for line in query_usage.baseline}
    links = {(link.source_node, link.target_node): link.latency_ms for link in info.links}
    return {
        path: latency_ms for latencies in (baseline, links) for path, latency_ms in latencies.items() if latency_ms is not None
    }
