"""Submission: parse, estimate, place the whole query, reserve, start, or leave nothing behind; and again for lost queries.

Source: docs/design.md, section 10.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import NamedTuple

import msgspec
import structlog

from sbon_node.base.tasks import Loop, check_cancelled
from sbon_node.connectors.access.secrets import check_no_secrets
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.registry import check_sink
from sbon_node.connectors.sinks.results import STREAM
from sbon_node.context import PASSING, Context, backoff_of
from sbon_node.hosting.components import new_claim
from sbon_node.model.records import QueryRecord
from sbon_node.ownership.consensus.states import Acceptor, State
from sbon_node.ownership.names import NameRecord, QueryNames
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.ownership.queries import Records
from sbon_node.placement.strategies.registry import Strategy
from sbon_node.queries.describing.lookup import QueryLookup
from sbon_node.queries.driving import deploy
from sbon_node.queries.driving.deploy import NotStartedError
from sbon_node.queries.driving.leader import QueryLeader
from sbon_node.queries.driving.record_steps import end_error, has_begun, in_place_of, restarted, sink_of_restart
from sbon_node.queries.submitting.hooks import SubmissionHook
from sbon_node.queries.submitting.planning import Planning, StepTimes
from sbon_node.queries.submitting.reuse import Reuse
from sbon_protocol.api.plan import Plan
from sbon_protocol.api.queries import Accepted, Progress, QueryInfo, SinkSpec, Submission
from sbon_protocol.api.query_ids import name_of, new_name, new_uid, uid_of
from sbon_protocol.api.states import query_states
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

SHARE_TRIES = 3
"""Times that operators to share are looked for, each without those that have refused before."""


class _Attempt(NamedTuple):
    """One attempt to submit a query, with no operator at ``silent`` hosts: their engines did not start before."""

    submission: Submission
    name: str
    consumer: str
    lost: QueryRecord | None
    """The query in place of which this one begins anew."""
    silent: frozenset[str]
    found: asyncio.Future[State | None] | None
    """Knowledge of the members about the name, if a user has chosen it."""
    times: StepTimes

    @property
    def sink_follows(self) -> bool:
        """Whether the stream that is the result is at the node of the operator that makes it: no consumer was named."""
        return self.submission.sink.kind == STREAM and not self.submission.consumer


class Submitter:
    """Takes queries at this node, which then holds their records."""

    def __init__(
        self,
        context: Context,
        planning: Planning,
        leader: QueryLeader,
        operators: OperatorRegisters,
        names: QueryNames,
        settings: ConnectorSettings,
        reuse: Reuse,
        hooks: Sequence[SubmissionHook],
    ) -> None:
        self._context, self._planning, self._leader, self._operators, self._names = context, planning, leader, operators, names
        self._settings, self._reuse, self._hooks = settings, reuse, hooks
        self._instead: Mapping[str, Strategy] = {hook.strategy: hook.place for hook in hooks}
        self._ending: dict[asyncio.Task[QueryRecord | None], None] = {}
        """Tasks that undo submissions."""

    async def close(self) -> None:
        """Leave the submissions that are being undone to the next start."""
        for task in self._ending:
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def submit(self, submission: Submission, lost: QueryRecord | None = None) -> AsyncIterator[Progress | Accepted]:
        """Yield the steps of a submission and last its acceptance; raise :class:`SbonError` if it is refused.

        The query begins anew in place of a ``lost`` one, if given.
        """
        context = self._context
        context.drained.check()
        submission.check()
        check_no_secrets(submission.sink.options)
        consumer = self._planning.consumer(submission.consumer)
        if consumer == context.name or submission.sink.kind == STREAM:
            check_sink(submission.sink.kind, submission.sink.options, self._settings)
        if submission.sink.kind == STREAM:
            self._planning.check_new(submission.sink.options["stream"])
        name = submission.name or new_name(context.rng)
        failures: list[NotStartedError] = []
        while True:
            silent = frozenset(failure.where for failure in failures)
            try:
                await self._leader.check_name(name)
                async with self._looking_up(submission.name) as found:
                    attempt = _Attempt(submission, name, consumer, lost, silent, found, StepTimes(context.clock))
                    async with aclosing(self._submit(attempt)) as events:
                        async for event in events:
                            yield event
                return
            except SbonError as error:
                if not isinstance(error, NotStartedError) or len(failures) + 1 >= context.settings.placement_rounds:
                    if not failures:
                        raise
                    raise _not_started(failures, error) from error
                failures.append(error)
            yield Progress(step="placing", message=f"{failures[-1].message}; placing the query without {failures[-1].where}")

    @asynccontextmanager
    async def _looking_up(self, name: str) -> AsyncIterator[asyncio.Future[State | None] | None]:
        """Ask the members for the name, if there is one, while the query is planned."""
        found = asyncio.ensure_future(self._names.look_up(name)) if name else None
        try:
            yield found
        finally:
            if found is not None:
                found.cancel()
                await asyncio.gather(found, return_exceptions=True)

    async def _submit(self, attempt: _Attempt) -> AsyncGenerator[Progress | Accepted, None]:
        submission, found, times = attempt.submission, attempt.found, attempt.times
        context, uid = self._context, new_uid(attempt.name, self._context.rng)
        start = "" if self._planning.engine_runs else ", which has to start first: that takes some seconds"
        yield Progress(step="parsing", message=f"reading the query; the engine analyses it{start}", query=uid)
        plan = await self._planning.plan(submission, uid, times)
        acceptors, instead = self._leader.new_acceptors(uid), self._instead
        if attempt.lost is None:  # One that begins anew reads its sources from their first frames on, whatever runs.
            with times.step("share"):
                plan, instead = await self._shared(attempt, plan, uid, acceptors)
        try:
            if plan.shared:
                yield Progress(step="sharing", message=f"reading {_named(plan)} in place of its own")
            described = in_place_of(self._record(attempt, uid, plan), submission, attempt.lost)
            record = await self._leader.create(described, acceptors)
        except BaseException:
            await self._reuse.give_back(plan.shared, uid)
            raise
        # Registers take round trips, in which the query is placed and started.
        stored = list[asyncio.Task[None]]()
        if found is not None:
            stored.append(asyncio.ensure_future(self._names.take(attempt.name, NameRecord(uid, context.name), found)))
        try:
            count = f"{len(plan.operators)} operator{'s' if len(plan.operators) != 1 else ''}"
            yield Progress(step="placing", message=f"placing {count} by {submission.strategy}")
            record = await self._place(attempt, record, stored, instead)
            if found is not None and stored[0].done():
                await stored[0]
            if record.placement is not None and record.placement.reason:
                yield Progress(step="placed", message=record.placement.reason)
            for assignment in record.placement.assignments if record.placement else ():
                yield Progress(step="placed", message=f"{assignment.operator} -> {assignment.node}: {assignment.reason}")
            # Closed before the undoing, so that no part is still starting then.
            with times.step("start"):
                async with aclosing(deploy.start(context, record, self._leader.acceptors(uid))) as starting:
                    async for progress in starting:
                        yield progress
            for storing in stored:
                await storing
            self._operators.check_hosts(record)
            record = await self._leader.mark_running(record.id)
        except BaseException as error:
            # In a task of its own: a user who leaves meanwhile must not end it half done.
            ending = asyncio.get_running_loop().create_task(self._end(record.id, stored, error), name=f"undo {record.id}")
            self._ending[ending] = None
            ending.add_done_callback(self._ended)
            begun = await asyncio.shield(ending)
            if begun is None:
                raise
            record = begun
        yield Accepted(query=await self._leader.describe(record), seconds=times.seconds())

    async def _shared(
        self, attempt: _Attempt, plan: Plan, uid: str, acceptors: tuple[Acceptor, ...]
    ) -> tuple[Plan, Mapping[str, Strategy]]:
        """Return the plan with operators of other queries, to which this one refers by then; without those that refuse.

        A hook may choose among equal operators. The strategies that are taken instead of others know what hooks have found.
        """
        submission, consumer, times = attempt.submission, attempt.consumer, attempt.times
        without: list[str] = []
        adapt = self._planning.adaptation(submission)
        hook = next((one for one in self._hooks if one.chooses(submission, adapt)), None)
        for _ in range(SHARE_TRIES):
            shared, instead = plan, self._instead
            if hook is not None:
                shared, place = await hook.shared(
                    plan, submission, consumer, without, silent=attempt.silent, sink_follows=attempt.sink_follows
                )
                instead = {**instead, hook.strategy: place}
            if not shared.shared:
                shared = await self._reuse.shared(plan, submission, uid, consumer, without, times, equal=hook is None)
            try:
                return await self._reuse.refer(shared, submission, uid, consumer, acceptors, times), instead
            except SbonError as error:
                log.info("not-shared", query=uid, operator=error.where, code=error.code, reason=error.message)
                without.append(error.where)
        return plan, self._instead

    async def _end(self, query: str, stored: list[asyncio.Task[None]], error: BaseException) -> QueryRecord | None:
        """Undo a submission after an error; return its record if the query has begun nevertheless.

        Raises the reason of the query's end, if it ended meanwhile: its parts then only report that they were stopped.
        """
        for storing in stored:
            storing.cancel()
        await asyncio.gather(*stored, return_exceptions=True)
        latest = await self._leader.latest(query) if isinstance(error, SbonError) else None
        if latest is not None and has_begun(latest):
            # It was marked as running by an attempt without an answer, or its rows were delivered while an answer to a start was
            # still awaited: there is nothing to undo.
            log.info("submission-begun-before", query=query, reason=str(error))
            try:
                return await self._leader.mark_running(query)
            except SbonError as refusal:
                await self._leader.undo(query, str(refusal)[:500])
                raise
        log.info("submission-undone", query=query, reason=str(error))
        undone = await self._leader.undo(query, str(error)[:500] or "the submission was given up")
        if isinstance(error, SbonError) and undone is not None and has_begun(undone):
            return undone  # It has finished meanwhile.
        if latest is not None and (ended := end_error(latest)) is not None:
            raise ended from error
        return None

    def _ended(self, task: asyncio.Task[QueryRecord | None]) -> None:
        del self._ending[task]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, SbonError):
            log.error("undo-failed", task=task.get_name(), exc_info=error)

    def _record(self, attempt: _Attempt, uid: str, plan: Plan) -> QueryRecord:
        submission = attempt.submission
        return QueryRecord(
            id=uid,
            name=attempt.name,
            sql=submission.sql,
            state=query_states.PLACING,
            submitted_ms=self._context.clock.wall_ms(),
            consumer=attempt.consumer,
            sink=self._sink(submission.sink, plan),
            on_error=submission.on_error,
            adapt=self._planning.adaptation(submission),
            durability=self._planning.durability(submission),
            **submission.goal_options(),
            plan=plan,
            hosts={p.source.id: p.source.node for p in plan.sources} | {one.id: one.node for one in plan.shared},
        )

    def _sink(self, sink: SinkSpec, plan: Plan) -> SinkSpec:
        """Return the sink as its node needs it. Raises ``no-event-time`` for a result that cannot be a stream."""
        if sink.kind == STREAM:
            if not plan.event_time:
                hint = "select the event time, or the start of a window"
                raise SbonError("no-event-time", "no column of the result is an event time", where="sql", hint=hint)
            return msgspec.structs.replace(sink, options={**sink.options, "event_time": plan.event_time})
        return msgspec.structs.replace(sink, claim=new_claim(self._context.rng) if sink.failover else "")

    async def _place(
        self, attempt: _Attempt, record: QueryRecord, stored: list[asyncio.Task[None]], instead: Mapping[str, Strategy]
    ) -> QueryRecord:
        """Place and reserve; exclude a host that refuses from the next round, and silent hosts from all.

        ``stored`` gets the tasks that store the hosts. Strategies ``instead`` of those of their names place the query.
        """
        times, sink_follows = attempt.times, attempt.sink_follows
        refused = {one.id: attempt.silent for one in record.plan.operators} if attempt.silent else {}
        reasons: list[str] = []
        for number in range(self._context.settings.placement_rounds):
            with times.step("place"):
                placement = await self._planning.place(
                    record.plan, record, record.consumer, refused, adapt=record.adapt, sink_follows=sink_follows, instead=instead
                )
            hosts = {**record.hosts, **placement.hosts()}
            consumer = hosts[record.plan.outputs[0]] if sink_follows else record.consumer
            if number:
                await stored[-1]
            placed = msgspec.structs.replace(record, hosts=hosts, consumer=consumer)
            stored.append(asyncio.ensure_future(self._operators.place(placed, again=number > 0)))
            record = await self._leader.place(record.id, placement, hosts, consumer)
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


def _named(plan: Plan) -> str:
    """Name the operators that a plan shares, by the queries that run them."""
    queries = sorted({name_of(uid_of(one.id)) for one in plan.shared})
    count = len(plan.shared)
    return f"{count} operator{'s' if count != 1 else ''} of {', '.join(queries)}"


def _not_started(failures: list[NotStartedError], last: SbonError) -> SbonError:
    """Return the first error of those of engines that did not start, with the others and the ``last`` one as details."""
    first = failures[0]
    others = tuple(str(error) for error in (*failures[1:], last))
    return SbonError(first.code, first.message, where=first.where, hint=first.hint, details=others)


# -- Queries that begin anew from their sources -----------------------------------------------------------------------

WAITS = PASSING | {"node-away", "unknown-node", "peer-unreachable", "no-majority", "too-many-queries"}
"""Codes of refusals that pass once nodes are back, or have room."""


class Restarts(Loop):
    """Looks from time to time for lost queries that this node leads, and submits them again.

    All parts are new, under a new uid: whatever follows a lost operator has shown rows that cannot be repeated alike, and the
    frames that its inputs have been read by others are deleted. The old query fails first, and its record says that a restart is
    due. The leader of that record submits the query again, until it is accepted or refused for good. A source must still have
    frame 1.
    """

    def __init__(
        self, context: Context, records: Records, leader: QueryLeader, lookup: QueryLookup, submitter: Submitter
    ) -> None:
        super().__init__("looks")
        self._context, self._records, self._leader, self._lookup, self._submitter = context, records, leader, lookup, submitter

    async def _run(self) -> None:
        while True:
            await self._context.clock.sleep(self._context.settings.drive_s * self._context.rng.uniform(0.5, 1.0))
            for record in self._leader.records():
                if record.restart_due and self._leader.leader_of(record.id) == self._context.name:
                    self._tasks.start(f"restart {record.id}", self._restart(record.id))

    async def _restart(self, query: str) -> None:
        """Submit the query again; retry while nodes are away, and a few times after other errors."""
        tries, backoff = 0, backoff_of(self._context.settings)
        while True:
            try:
                record = await self._leader.read_record(query)
                if not record.restart_due or record.submission is None:
                    return
                uid = await self._successor(record) or await self._submit(record, record.submission)
                await self._records.change(query, partial(restarted, uid=uid))
                log.warning("query-restarted", query=query, successor=uid)
                return
            except SbonError as error:
                check_cancelled()
                tries += error.code not in WAITS
                log.warning("restart-waits", query=query, code=error.code, reason=str(error))
                if tries >= self._context.settings.resume_tries:
                    await self._records.change(query, partial(restarted, uid="", reason=str(error)))
                    return
            await self._context.clock.sleep(backoff.next_s())

    async def _successor(self, record: QueryRecord) -> str:
        """Return the uid under which an earlier leader has submitted it again; empty if none has."""
        try:
            info: QueryInfo = (await self._lookup.show(record.called))[0]
        except SbonError as error:
            if error.code != "unknown-query":
                raise
            return ""
        return info.uid if info.restarted_from == record.id else ""

    async def _submit(self, record: QueryRecord, submission: Submission) -> str:
        sink = sink_of_restart(submission.sink, record.restarts + 1)
        async for event in self._submitter.submit(msgspec.structs.replace(submission, sink=sink), record):
            if isinstance(event, Accepted):
                return event.query.uid
        raise SbonError("internal", "the submission ended without an answer", where=record.id)
