"""One query over whole daemons, from its submission until nothing is left of it, under a schedule of faults.

A file at ``s`` provides the rows. At ``c`` a file sink takes them, or a user who follows. Once all faults are repaired,
either the query was rejected and has left nothing behind anywhere; or it has run, its rows are the oracle's, each exactly
once, and it leaves nothing but its result. A query that has lost a disk may fail, with a reason.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from sbon_lab.simulation.casting import QUERY, SCHEMA, Casting, numbers, read_result
from sbon_lab.simulation.checks import CheckFailedError
from sbon_lab.simulation.cluster import NodeDiedError, SimulatedCluster
from sbon_lab.simulation.faults.plan import Fault
from sbon_lab.simulation.leak_check import SETTLE_S, check_alive, settled
from sbon_lab.simulation.outcome import Ended
from sbon_lab.simulation.query_kinds import FRAGMENT, STEP_MS, oracle
from sbon_lab.simulation.query_run import expect, record_of, recorded
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.delivery import Finished, Rows
from sbon_protocol.api.queries import Accepted, Progress, SinkSpec, Submission
from sbon_protocol.api.states import query_states
from sbon_protocol.errors import SbonError

ALLOWED = {
    True: (query_states.RUNNING, query_states.FINISHED),
    None: (query_states.PLACING, query_states.RUNNING),
    False: (query_states.PLACING,),
}
"""States of a query before its end, by whether its submission was accepted; None if that is unknown."""


class OneQuery:
    """The life of one query; :meth:`run` ends with it, or raises :class:`CheckFailedError`."""

    def __init__(self, cluster: SimulatedCluster, casting: Casting, faults: Sequence[Fault], root: Path) -> None:
        self.cluster, self.casting, self.faults = cluster, casting, faults
        self.input = root / "numbers.ndjson"
        self.output = cluster.at("c").disk.add(root / "results") / "result.ndjson"
        self.rows = numbers(casting.rows, casting.text_bytes, cluster.seed)
        self.follower = Follower(cluster, "c", QUERY)

    async def run(self) -> Ended:
        cluster = self.cluster
        self.input.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        cluster.start()
        await cluster.together()
        await cluster.answer(self.casting.submitter, self._declare())
        cluster.fault_injector.arm(self.faults)
        accepted = await self._submit()
        submission = len(cluster.fault_injector.plan.history)
        following = cluster.loop.create_task(self.follower.run()) if self.casting.sink == "follow" else None
        try:
            ending = await self._ending(accepted)
            await settled(cluster)
        finally:
            if following is not None:
                following.cancel()
                await asyncio.wait([following])
        self._check(ending)
        cluster.verify()
        return Ended(submission, ending)

    async def _declare(self) -> None:
        daemon = self.cluster.nodes[self.casting.submitter].daemon
        await daemon.queries.declarations.create_stream(StreamDeclaration(name="numbers", schema=SCHEMA, event_time="ts"))
        await daemon.hosting.sources.attach(self._source())

    def _source(self) -> SourceDeclaration:
        options = {"path": str(self.input), "replay": 1.0}
        return SourceDeclaration(stream="numbers", name="all", node="s", connector="file", options=options, rows_s=1000 / STEP_MS)

    # -- the query's life ----------------------------------------------------------------------------------------------

    async def _submit(self) -> bool | None:
        """Submit the query; return whether it was accepted, or None if the user did not learn it."""
        submission = self.cluster.user(self.casting.submitter, self._submission())
        await self.cluster.until(submission.done)
        if submission.cancelled():
            return None
        try:
            submission.result()
        except SbonError as error:
            self.cluster.note(f"refused: {error}")
            return False
        return True

    async def _submission(self) -> None:
        daemon = self.cluster.nodes[self.casting.submitter].daemon
        sink = SinkSpec(kind="follow")
        if self.casting.sink == "file":
            sink = SinkSpec(kind="file", options={"path": str(self.output)})
        submission = Submission(
            sql=FRAGMENT.format("numbers"), name=QUERY, strategy=self.casting.strategy, consumer="c", sink=sink
        )
        async for event in daemon.submitting.submitter.submit(submission):
            self.cluster.note("accepted" if isinstance(event, Accepted) else f"{event.step}: {event.message}")
            if isinstance(event, Progress) and event.step == "placing":
                expect(self.cluster, record_of(self.cluster, QUERY))

    async def _ending(self, accepted: bool | None) -> str:
        """Wait for the end and return ``finished``, ``refused`` or, if a disk was lost, ``failed``.

        An accepted query must finish; a rejected one must not run.
        """
        submitter, answered_s = self.cluster.nodes[self.casting.submitter], self.cluster.loop.time()
        while True:
            record = await recorded(self.cluster, submitter, lambda: record_of(self.cluster, QUERY))
            state = record.state if record is not None else "gone"
            if state == query_states.FINISHED and accepted is not False:
                return "finished"
            # A user who did not learn the answer may have been accepted; then what was delivered stays.
            undone = record is None or record.refused or accepted is False
            if state in ("gone", query_states.FAILED) and not accepted and undone:
                return "refused"
            if (
                state == query_states.FAILED
                and record is not None
                and record.reason
                and self.cluster.fault_injector.struck["wipe"]
            ):
                return "failed"
            allowed = ALLOWED[accepted]
            timely = state != query_states.PLACING or self.cluster.loop.time() < answered_s + 2 * SETTLE_S
            if state not in allowed or not timely:
                reason = record.reason if record is not None else ""
                outcome = {True: "accepted", False: "refused", None: "cut short"}[accepted]
                raise CheckFailedError(f"the submission was {outcome}, and the query is {state}: {reason}")
            check_alive(self.cluster, f"the query is {state}")
            await self.cluster.sleep(0.25)

    def _check(self, ending: str) -> None:
        checker = self.cluster.watch.checker
        delivered = self.follower.rows if self.casting.sink == "follow" else read_result(self.output)
        if ending == "finished":
            checker.delivered(delivered, oracle(self.rows))
        elif ending == "failed":
            checker.delivered(delivered, (Counter(delivered) & Counter(oracle(self.rows))).elements())
        elif self.casting.sink == "file" and list(self.output.parent.glob(f"{self.output.name}*")) and not self._is_forgotten():
            raise CheckFailedError("the result of a refused query is left behind")

    def _is_forgotten(self) -> bool:
        """Whether the consumer has lost its data directory: then it cannot know of a result in another folder."""
        return self.cluster.at("c").wiped


# -- A user who follows a query through every death of its consumer and takes each frame once -------------------------

PATIENCE_S = 0.3
SLOW_S = 0.5
"""Seconds that a slow user needs for a frame."""


class Follower:
    """A user at the node ``name``: ``rows`` are those taken, ``taken`` their frames by stream; both outlive the node."""

    def __init__(self, cluster: SimulatedCluster, name: str, query: str) -> None:
        self._cluster, self._name, self._query = cluster, name, query
        self._word = f"who follows {query} at {name}"
        self.rows: list[tuple[object, ...]] = []
        self.taken: dict[str, int] = {}

    async def run(self) -> None:
        """Follow until the query reports its end; a missing query may come, or come back."""
        cluster, node = self._cluster, self._cluster.nodes[self._name]
        while True:
            await cluster.until(lambda: node.ready)
            try:
                if await cluster.answer(self._name, self._follow()):
                    return
            except (NodeDiedError, SbonError) as error:
                cluster.note(f"{self._name} is not followed: {error}")
            await cluster.sleep(PATIENCE_S)

    async def _follow(self) -> bool:
        daemon, node = self._cluster.nodes[self._name].daemon, self._cluster.nodes[self._name]
        again = asyncio.ensure_future(self._acknowledge_again(dict(self.taken)))
        try:
            async with aclosing(daemon.queries.follows.follow(self._query, dict(self.taken), word=self._word)) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        return event.state == query_states.FINISHED
                    self._take(event)
                    if self._cluster.loop.time() < node.slow_until:
                        await self._cluster.clock.sleep(SLOW_S)
                    await daemon.queries.follows.acknowledge(self._query, {event.stream: event.number}, word=self._word)
            return False
        finally:
            again.cancel()
            await asyncio.wait([again])

    async def _acknowledge_again(self, taken: dict[str, int]) -> None:
        """Acknowledge the frames taken before, which do not come again; repeat it until the consumer has them again."""
        while taken:
            await self._cluster.clock.sleep(PATIENCE_S)
            try:
                await self._cluster.nodes[self._name].daemon.queries.follows.acknowledge(self._query, taken, word=self._word)
                return
            except SbonError as error:
                self._cluster.note(f"{self._name} does not acknowledge again: {error}")

    def _take(self, frame: Rows) -> None:
        if frame.number > self.taken.get(frame.stream, 0):
            self.rows += frame.rows
            self.taken[frame.stream] = frame.number
