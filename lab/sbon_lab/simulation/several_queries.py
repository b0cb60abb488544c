"""Several queries at once over whole daemons, under a schedule of faults: submitted, stopped, and submitted again.

Each life of a query reads a stream of its own, so that its oracle depends on nothing else. Once all faults are repaired, each
life has either finished with the oracle's rows, each exactly once; or it was stopped, and its rows are among the oracle's; or it
was refused, and has left nothing behind. A query that has lost a disk may fail, with a reason.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sbon_lab.simulation.casting import SCHEMA, Casting, Life, PlannedMove, numbers, read_result
from sbon_lab.simulation.checks import CheckFailedError
from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.faults.plan import Fault
from sbon_lab.simulation.leak_check import SETTLE_S, check_alive, settled
from sbon_lab.simulation.outcome import Ended
from sbon_lab.simulation.query_kinds import ORACLES, SQL, STEP_MS
from sbon_lab.simulation.query_run import expect, recorded, records_of
from sbon_node.model.records import QueryRecord
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.moves import MoveRequest
from sbon_protocol.api.queries import Accepted, Progress, SinkSpec, Submission
from sbon_protocol.api.states import query_states
from sbon_protocol.errors import SbonError

BY_USERS = ("again", "twin", "stop", "move", "stay")
"""Actions of users during the faults: a submission under the name of an ended query, one beside another of its name, a stop, a
move that has been committed, and one that has begun and was given up.
"""
RETRY_S = 1.0
MOST_TRIES = 200
"""Tries of a submission while its name is still taken by an earlier life."""
ENDS = (query_states.FINISHED, query_states.STOPPED, query_states.FAILED)


@dataclass(eq=False)
class _Running:
    """A life of a query, and the course it has taken."""

    name: str
    stream: str
    """The stream that it reads; no other life does."""
    life: Life
    rows: list[list[dict[str, Any]]]
    """Those of each source."""
    folders: dict[str, Path]
    accepted: bool | None = None
    """Whether its submission was accepted; None if its user did not learn it."""
    stopping: asyncio.Task[Any] | None = field(default=None)
    stop_confirmed: bool = False
    moving: asyncio.Task[Any] | None = field(default=None)
    ending: str = ""
    earlier: list[_Running] = field(default_factory=list, repr=False)
    """Lives before it under its name: a stop of theirs that nobody has confirmed may arrive late, and stops this one."""
    twins: tuple[_Running, ...] = field(default=(), repr=False)
    """Lives of other queries of the same name: while one of them lives, the submission is refused; its stop may stop this one."""

    @property
    def may_be_stopped(self) -> bool:
        """Return whether a stop by name, its own or another's, may have met this life."""
        late = any(one.stopping is not None and not one.stop_confirmed for one in self.earlier)
        return late or any(one.stopping is not None for one in (self, *self.twins))

    @property
    def output(self) -> Path:
        return self.folders[self.life.consumer] / f"{self.stream}.ndjson"

    @property
    def expected(self) -> list[tuple[object, ...]]:
        return ORACLES[self.life.sql]([row for rows in self.rows for row in rows])


class SeveralQueries:
    """The lives of the queries of one casting; :meth:`run` ends with them, or raises :class:`CheckFailedError`."""

    def __init__(self, cluster: SimulatedCluster, casting: Casting, faults: Sequence[Fault], root: Path) -> None:
        self.cluster, self.casting, self.faults, self.root = cluster, casting, faults, root
        folders = {name: node.disk.add(root / f"results at {name}") for name, node in cluster.nodes.items()}
        self.moving: list[list[tuple[int, int]]] = []
        """The steps, by their numbers, during which users waited for moves."""
        self.lives = [
            [
                _Running(
                    query.name, f"{query.name}_{index}_{number}", life, self._rows((query.name, index, number), life), folders
                )
                for number, life in enumerate(query.lives)
            ]
            for index, query in enumerate(casting.queries)
        ]
        for index, query in enumerate(casting.queries):
            for number, running in enumerate(self.lives[index]):
                running.earlier = self.lives[index][:number]
                others = (other for place, lives in enumerate(self.lives) if place != index for other in lives)
                running.twins = tuple(other for other in others if other.name == query.name)

    async def run(self) -> Ended:
        cluster = self.cluster
        cluster.start()
        await cluster.together()
        for running in self._all():
            await cluster.answer(running.life.submitter, self._declare(running))
        await cluster.sleep(1.0)
        cluster.fault_injector.arm(self.faults)
        tasks = [cluster.loop.create_task(self._live(lives)) for lives in self.lives]
        try:
            await cluster.until(lambda: all(task.done() for task in tasks) or any(_failed(task) for task in tasks))
            for task in tasks:
                if task.done():
                    task.result()
            await settled(cluster)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for running in self._all():
            self._check(running)
        cluster.verify()
        registers, struck = cluster.watch.checker.registers, cluster.fault_injector.struck
        struck["move"], struck["stay"] = len(registers.moved), len(registers.moving - registers.moved)
        during = tuple((start, end) for spans in self.moving for start, end in spans)
        return Ended(len(cluster.fault_injector.plan.history), " ".join(running.ending for running in self._all()), moving=during)

    def _all(self) -> list[_Running]:
        return [running for lives in self.lives for running in lives]

    def _rows(self, key: tuple[str, int, int], life: Life) -> list[list[dict[str, Any]]]:
        """Return the rows of each source; they share no id."""
        every = numbers(self.casting.rows, self.casting.text_bytes, f"{self.cluster.seed}/{key}")
        return [every[index :: len(life.sources)] for index in range(len(life.sources))]

    async def _declare(self, running: _Running) -> None:
        daemon = self.cluster.nodes[running.life.submitter].daemon
        await daemon.queries.declarations.create_stream(StreamDeclaration(name=running.stream, schema=SCHEMA, event_time="ts"))
        for node, rows in zip(running.life.sources, running.rows, strict=True):
            path = self.root / f"{running.stream} at {node}.ndjson"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            source = SourceDeclaration(
                stream=running.stream,
                name=f"at-{node}",
                node=node,
                connector="file",
                options={"path": str(path), "replay": 1.0},
                rows_s=1000 / STEP_MS,
            )
            await daemon.hosting.sources.attach(source)

    # -- the lives of one name -----------------------------------------------------------------------------------------

    async def _live(self, lives: list[_Running]) -> None:
        for running in lives:
            await self.cluster.sleep(running.life.after_s)
            await self._submit(running, again=running is not lives[0])
            try:
                running.ending = await self._ending(running)
                await self._moves_end(running)
            finally:
                for task in (running.stopping, running.moving):
                    if task is not None:
                        task.cancel()
                        await asyncio.wait([task])

    async def _moves_end(self, running: _Running) -> None:
        """Wait for the end of the user's moves, and raise what no user may see."""
        while running.moving is not None and not running.moving.done():
            check_alive(self.cluster, f"a move of {running.stream} goes on")
            await self.cluster.sleep(0.25)
        if running.moving is not None:
            running.moving.result()

    async def _submit(self, running: _Running, *, again: bool) -> None:
        """Submit the query, and again while an earlier life of its name is still there."""
        struck = self.cluster.fault_injector.struck
        struck["again"] += again
        struck["twin"] += bool(running.twins)
        for _ in range(MOST_TRIES):
            submission = self.cluster.user(running.life.submitter, self._submission(running))
            await self.cluster.until(submission.done)
            error = None if submission.cancelled() else submission.exception()
            if isinstance(error, SbonError) and error.code == "query-exists" and again:
                await self.cluster.sleep(RETRY_S)
                continue
            if error is not None and not isinstance(error, SbonError):
                raise error
            running.accepted = None if submission.cancelled() else error is None
            self.cluster.note(f"{running.stream} is accepted: {running.accepted} {error or ''}".rstrip())
            break
        if running.life.stop_after_s is not None and running.accepted is not False:
            running.stopping = self.cluster.loop.create_task(self._stop(running))
        if running.life.moves and running.accepted is not False:
            moves = UserMoves(self.cluster, running.life, running.stream, lambda: self._record(running))
            self.moving.append(moves.during)
            running.moving = self.cluster.loop.create_task(moves.run())

    async def _submission(self, running: _Running) -> None:
        await self.cluster.until(lambda: self.cluster.nodes[running.life.submitter].ready)
        daemon = self.cluster.nodes[running.life.submitter].daemon
        submission = Submission(
            sql=SQL[running.life.sql].format(running.stream),
            name=running.name,
            strategy=self.casting.strategy,
            consumer=running.life.consumer,
            sink=SinkSpec(kind="file", options={"path": str(running.output)}),
        )
        async for event in daemon.submitting.submitter.submit(submission):
            if isinstance(event, Progress) and event.step == "placing":
                expect(self.cluster, self._record(running))
            self.cluster.note(f"{running.stream} accepted" if isinstance(event, Accepted) else f"{event.step}: {event.message}")

    async def _stop(self, running: _Running) -> None:
        """Stop the query, again and again until a node confirms it or has no such query."""
        assert running.life.stop_after_s is not None
        await self.cluster.sleep(running.life.stop_after_s)
        node = self.cluster.nodes[running.life.stop_at]
        self.cluster.fault_injector.struck["stop"] += 1
        for _ in range(MOST_TRIES):
            await self.cluster.until(lambda: node.ready)
            call = self.cluster.call(node.name, node.daemon.queries.lookup.stop(running.name))
            await self.cluster.until(call.done)
            error = None if call.cancelled() else call.exception()
            self.cluster.note(f"{running.stream} stopped: {'cut short' if call.cancelled() else error or 'yes'}")
            if not call.cancelled() and (error is None or (isinstance(error, SbonError) and error.code == "unknown-query")):
                return
            await self.cluster.sleep(RETRY_S)

    async def _ending(self, running: _Running) -> str:
        """Wait for the end of the life, and return it."""
        submitter, submitted_s = self.cluster.nodes[running.life.submitter], self.cluster.loop.time()
        while True:
            record = await recorded(self.cluster, submitter, lambda: self._record(running))
            state = record.state if record is not None else "gone"
            reason = record.reason if record is not None else ""
            undoing = self.cluster.loop.time() < submitted_s + 2 * SETTLE_S
            if running.twins and running.accepted is False and state in ("gone", query_states.FAILED):
                return "refused"
            # A user who did not learn the answer may have been accepted; then what was delivered stays.
            undone = record is None or record.refused or running.accepted is False
            if state in ("gone", query_states.FAILED) and not running.accepted and undone and self.faults:
                return "refused"
            if state == query_states.FINISHED or (state == query_states.STOPPED and running.may_be_stopped):
                return state
            if state == query_states.FAILED and reason and self.cluster.fault_injector.struck["wipe"]:
                return state
            if state in ("gone", *ENDS) or (running.accepted is False and not (state == query_states.PLACING and undoing)):
                outcome = {True: "accepted", False: "refused", None: "cut short"}[running.accepted]
                raise CheckFailedError(f"the submission of {running.stream} was {outcome}, and the query is {state}: {reason}")
            check_alive(self.cluster, f"{running.stream} is {state}")
            await self.cluster.sleep(0.25)

    def _record(self, running: _Running) -> QueryRecord | None:
        """Return the newest record of this life, whose stream no other life reads."""
        records = (record for record in records_of(self.cluster) if running.stream in record.streams and not record.withdrawn)
        return max(records, key=lambda record: record.submitted_ms, default=None)

    def _check(self, running: _Running) -> None:
        checker, delivered = self.cluster.watch.checker, read_result(running.output)
        if running.ending == query_states.FINISHED:
            checker.delivered(delivered, running.expected)
        elif running.ending == "refused":
            forgotten = self.cluster.nodes[running.life.consumer].wiped  # It cannot know of a result in another folder.
            if not forgotten and list(running.output.parent.glob(f"{running.output.name}*")):
                raise CheckFailedError(f"the result of {running.stream}, which was refused, is left behind")
        else:
            checker.delivered(delivered, (Counter(delivered) & Counter(running.expected)).elements())


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None


# -- A user who has operators of a running query moved, one after another or at once ----------------------------------


class UserMoves:
    """The moves of one life of a query. Whether a move succeeds must make no difference to the rows.

    ``during`` are the spans of steps, by their numbers, in which the user waited for a move.
    """

    def __init__(self, cluster: SimulatedCluster, life: Life, query: str, record: Callable[[], QueryRecord | None]) -> None:
        self._cluster, self._life, self._query, self._record = cluster, life, query, record
        self.during: list[tuple[int, int]] = []

    async def run(self) -> None:
        """Ask the query's submitter for each move, and raise an error that no user may see."""
        waiting: list[asyncio.Task[None]] = []
        try:
            for move in self._life.moves:
                await self._cluster.sleep(move.after_s)
                waiting.append(self._cluster.loop.create_task(self._move(move)))
                if move.waits:
                    await asyncio.wait(waiting)
            await asyncio.gather(*waiting)
        finally:
            for task in waiting:
                task.cancel()

    async def _move(self, move: PlannedMove) -> None:
        cluster = self._cluster
        node = cluster.nodes[self._life.submitter]
        await cluster.until(lambda: node.ready)
        history = cluster.fault_injector.plan.history
        begun = len(history)
        call = cluster.call(node.name, self._moved(move, node.daemon))
        try:
            await cluster.until(call.done)
        finally:
            self.during.append((begun, len(history)))
        error = asyncio.CancelledError() if call.cancelled() else call.exception()
        if error is not None and not isinstance(error, SbonError | asyncio.CancelledError):
            raise error
        cluster.note(f"{self._query} moved to {move.to}: {error or 'yes'}")

    async def _moved(self, move: PlannedMove, daemon: Any) -> None:
        record = self._record()
        if record is None:
            raise SbonError("unknown-query", "its record is gone", where=self._query)
        operators = record.plan.operators
        request = MoveRequest(operator=operators[move.operator % len(operators)].id, to=move.to, how=move.how)
        async for event in daemon.adaptation.requested.move(record.id, request):
            self._cluster.note(f"{self._query} moves: {event}")
