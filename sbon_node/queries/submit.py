"""Submission: parse, estimate, place the whole query, reserve, start; or leave nothing behind.

Source: docs/design.md, section 10.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import structlog

from sbon_node.connectors.access.secrets import check_no_secrets
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.registry import check_sink
from sbon_node.errors import SbonError
from sbon_node.model.plan import Plan
from sbon_node.model.queries import Accepted, Progress, Submission
from sbon_node.model.records import QueryRecord
from sbon_node.model.states import query_states
from sbon_node.queries import deploy
from sbon_node.queries.holder import QueryHolder
from sbon_node.queries.lookup import QueryLookup
from sbon_node.queries.planning import Planning
from sbon_node.queries.step_times import StepTimes
from sbon_node.workflow.context import Context

log = structlog.get_logger()


class Submitter:
    """Takes queries at this node, which then holds their records."""

    def __init__(
        self, context: Context, planning: Planning, book: QueryHolder, lookup: QueryLookup, settings: ConnectorSettings
    ) -> None:
        self._context, self._planning, self._book, self._lookup = context, planning, book, lookup
        self._settings = settings

    async def submit(self, submission: Submission) -> AsyncIterator[Progress | Accepted]:
        """Yield the steps of a submission and last its acceptance; raise :class:`SbonError` if it is refused."""
        context = self._context
        context.drained.check()
        submission.check()
        check_no_secrets(submission.sink.options)
        consumer = self._planning.consumer(submission.consumer)
        if consumer == context.name:
            check_sink(submission.sink.kind, submission.sink.options, self._settings)
        query = await self._name(submission.name)
        start = "" if self._planning.engine_runs else ", which has to start first: that takes some seconds"
        yield Progress(step="parsing", message=f"reading the query; the engine analyses it{start}")
        times = StepTimes(context.clock)
        plan = await self._planning.plan(submission, query, times)
        record = self._book.create(self._record(submission, query, consumer, plan))
        try:
            count = f"{len(plan.operators)} operator{'s' if len(plan.operators) != 1 else ''}"
            yield Progress(step="placing", message=f"placing {count} by {submission.strategy}")
            record = await self._place(record, times)
            if record.placement is not None and record.placement.reason:
                yield Progress(step="placed", message=record.placement.reason)
            for assignment in record.placement.assignments if record.placement else ():
                yield Progress(step="placed", message=f"{assignment.operator} -> {assignment.node}: {assignment.reason}")
            # Closed before the undoing, so that no part is still starting then.
            with times.step("start"):
                async with aclosing(deploy.start(context, record)) as starting:
                    async for progress in starting:
                        yield progress
            record = self._book.begin(record.id)
        except BaseException as error:
            ended = self._book.end_error(record.id)
            if isinstance(error, SbonError) and self._book.record(record.id).state == query_states.FINISHED:
                # Its rows were delivered while an answer to a start was still awaited: there is nothing to undo.
                log.info("submission-finished-early", query=record.id, reason=str(error))
                yield Accepted(query=await self._book.describe(self._book.begin(record.id)), seconds=times.seconds())
                return
            log.info("submission-undone", query=record.id, reason=str(error))
            await self._book.undo(record.id, str(error)[:500] or "the submission was given up")
            if ended is not None and isinstance(error, SbonError):
                raise ended from error  # the other parts then only report that they were stopped
            raise
        yield Accepted(query=await self._book.describe(record), seconds=times.seconds())

    async def _name(self, wished: str) -> str:
        """Return the query's name; raise ``query-exists`` if a reachable node holds a query of that name."""
        query = self._book.new_id(wished)
        if wished and await self._lookup.is_taken(wished):
            raise SbonError("query-exists", f"there is a query {wished!r} already", where="name", hint="choose another name")
        return query

    def _record(self, submission: Submission, query: str, consumer: str, plan: Plan) -> QueryRecord:
        return QueryRecord(
            id=query,
            sql=submission.sql,
            state=query_states.PLACING,
            submitted_ms=self._context.clock.wall_ms(),
            consumer=consumer,
            sink=submission.sink,
            on_error=submission.on_error,
            **submission.goal_options(),
            plan=plan,
            hosts={p.source.id: p.source.node for p in plan.sources},
        )

    async def _place(self, record: QueryRecord, times: StepTimes) -> QueryRecord:
        """Place and reserve; exclude a host that refuses from the next round."""
        refused: dict[str, frozenset[str]] = {}
        reasons: list[str] = []
        for _ in range(self._context.settings.placement_rounds):
            with times.step("place"):
                placement = await self._planning.place(record.plan, record, record.consumer, refused)
            hosts = {**record.hosts, **placement.hosts()}
            epochs = dict.fromkeys((*placement.hosts(), record.sink_component), 1)
            record = self._book.place(record.id, placement, hosts, epochs)
            with times.step("reserve"):
                failed = await deploy.reserve(self._context, record)
            if not failed:
                return record
            for operator, error in sorted(failed.items()):
                refused[operator] = refused.get(operator, frozenset()) | {hosts[operator]}
                reasons.append(f"{operator} at {hosts[operator]}: {error}")
        raise SbonError(
            "no-capacity",
            f"every placement tried was refused ({self._context.settings.placement_rounds} rounds)",
            hint="add nodes, or stop queries",
            details=tuple(reasons),
        )
