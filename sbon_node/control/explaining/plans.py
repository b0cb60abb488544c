"""Plans explained, of queries that do not run and of those that do; nothing changes by it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sbon_node.control.context import Context
from sbon_node.control.explaining.plan_explanation import Explanation, explained
from sbon_node.control.planning import Planning
from sbon_node.control.questions import Questions
from sbon_node.control.report import Bill, QueryInfo, Question, SourceInfo
from sbon_node.control.sources import SourceHost
from sbon_node.errors import SbonError
from sbon_node.query.plan import Plan


class Explainer:
    """Asks who knows, and puts it together. Raises :class:`SbonError` as a submission does."""

    def __init__(self, context: Context, planning: Planning, questions: Questions, sources: SourceHost) -> None:
        self._context, self._planning, self._questions, self._sources = context, planning, questions, sources

    async def plan(self, question: Question) -> Explanation:
        """Of what would be submitted, placed where the strategy would place it now; nothing is reserved."""
        question.check()
        consumer = self._planning.consumer(question.consumer)
        plan = await self._planning.plan(question, "q")
        placement, sources = await asyncio.gather(self._planning.place(plan, question, consumer), self._described(plan))
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
        """Of a query of the cluster, as it is now, or was last where it is over."""
        info, bill = await self._questions.show(query_id)
        if info.plan is None or info.placement is None:
            raise SbonError("query-not-placed", f"the query {query_id} has not been placed", where="query", hint="ask again")
        told = _told(info, bill)

        def latency_ms(source: str, target: str) -> float | None:
            return told.get((source, target), self._latency_ms(source, target))

        return explained(
            info.plan,
            sql=info.sql,
            strategy=info.strategy,
            consumer=info.consumer,
            hosts=info.placement.hosts(),
            latency_ms=latency_ms,
            sources=await self._described(info.plan),
            operators={operator.id: operator for operator in info.operators},
            query=info.id,
            state=info.state,
            reason=info.reason,
            taken=info.rows,
        )

    async def _described(self, plan: Plan) -> dict[str, SourceInfo]:
        """By id; a stream that was dropped since is passed over, and so is what was declared again under its name."""
        names = sorted({planned.source.stream for planned in plan.sources})
        found: dict[str, SourceInfo] = {}
        for infos in await asyncio.gather(*(self._sources_of(name) for name in names)):
            found |= {info.source.id: info for info in infos}
        return found

    async def _sources_of(self, name: str) -> Iterable[SourceInfo]:
        try:
            return (await self._sources.describe(name)).sources
        except SbonError as error:
            if error.code != "unknown-stream":
                raise
            return ()

    def _latency_ms(self, source: str, target: str) -> float | None:
        return self._context.directory.estimate_rtt_ms(source, target).one_way_ms


def _told(info: QueryInfo, bill: Bill) -> dict[tuple[str, str], float]:
    """Latencies as the nodes of the links tell them, where they know."""
    whole = {(line.source_node, line.target_node): line.latency_ms for line in bill.whole}
    links = {(link.source_node, link.target_node): link.latency_ms for link in info.links}
    return {way: latency_ms for told in (whole, links) for way, latency_ms in told.items() if latency_ms is not None}
