"""One query over whole daemons, from its submission until nothing is left of it, under a schedule of faults.

A file at ``s`` provides the rows. At ``c`` a file sink takes them, or a user who follows. Once all faults are repaired,
either the query was rejected and has left nothing behind anywhere; or it has run, its rows are the oracle's, each exactly
once, and it leaves nothing but its result.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa

from sbon_node.config.config import Config
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.errors import SbonError
from sbon_node.failpoints import Failpoint
from sbon_node.model.catalogue import SourceDeclaration, StreamDeclaration
from sbon_node.model.columns import Column
from sbon_node.model.queries import Accepted, SinkSpec, Submission
from sbon_node.model.records import QueryRecord
from sbon_node.model.states import query_states
from sbon_node.simulation.checks import CheckFailedError
from sbon_node.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.simulation.engine.engine_process import EngineTimes
from sbon_node.simulation.engine.evaluate import rows_of
from sbon_node.simulation.faults.plan import Fault, Stage, occurrences, random_plan
from sbon_node.simulation.follower import Follower
from sbon_node.simulation.leak_check import SETTLE_S, settled
from sbon_node.simulation.loop import VirtualLoop
from sbon_node.simulation.network.paths import NetworkQuality
from sbon_node.simulation.outcome import Ended, Outcome, run_cluster
from sbon_node.space.settings import SpaceSettings
from sbon_node.streams.settings import StreamSettings
from sbon_node.workflow.settings import ControlSettings

NODES = ("h", "s", "o", "c")
QUERY = "query"
FRAGMENT = "SELECT id, v * 2 AS w, upper(t) AS u FROM {} WHERE v > 0 OR t IS NULL"
SCHEMA = (Column("id", "bigint"), Column("v", "double"), Column("t", "string"), Column("ts", "timestamp"))
FIRST_MS, STEP_MS = 1_600_000_000_000, 25
ROWS = 56
MAX_TIME_S = 1800.0
CONNECTORS = ConnectorSettings(linger_s=0.1, retry_max_s=2.0)
SPACE = SpaceSettings(algorithm="vivaldi", probe_interval_s=60.0)
"""Coordinate settings; the nodes' coordinates do not matter here."""
NO_ROOM = ControlSettings(cores=0.01, memory_mb=10.0)
TIMES = EngineTimes(watch=(0.001, 0.2))
ALLOWED = {
    True: (query_states.RUNNING, query_states.FINISHED),
    None: (query_states.PLACING, query_states.RUNNING),
    False: (query_states.PLACING,),
}
"""States of a query before its end, by whether its submission was accepted; None if that is unknown."""


class Casting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The roles of the nodes: ``holder`` takes the submission, and the operator goes to one of ``room``.

    The input is ``rows`` with texts of up to ``text_bytes``. ``credit_bytes``, which determines the other limits of streams,
    exceeds the largest frame: rows that have waited for long come in one frame, of all rows or of a quarter of a megabyte.
    Power may be lost only with ``fsync``.
    """

    holder: str = "h"
    room: tuple[str, ...] = ("o",)
    strategy: str = "relaxation"
    sink: Literal["file", "follow"] = "file"
    rows: int = ROWS
    text_bytes: int = 60
    credit_bytes: int = 8_000
    fsync: bool = True

    @property
    def config(self) -> Config:
        """Return the configuration of a node with room."""
        streams = StreamSettings(
            inbox_credit_bytes=self.credit_bytes,
            outbox_quota_bytes=self.credit_bytes * 3 // 4,
            batch_span_bytes=self.credit_bytes // 2,
            batch_span_frames=6,
            read_bytes=self.credit_bytes // 2,
            fsync=self.fsync,
        )
        return msgspec.structs.replace(CONFIG, streams=streams, connectors=CONNECTORS, space=SPACE)

    @property
    def stage(self) -> Stage:
        return Stage(sources=("s",), operators=self.room, consumers=("c",), holders=(self.holder,), fsync=self.fsync)


class Schedule(NamedTuple):
    """A planned run: the seed of its world, its casting, and its faults."""

    seed: int
    casting: Casting
    faults: tuple[Fault, ...]


WORLDS = 50
"""Number of different runs that the random schedules disturb."""


def random_schedule(seed: int) -> Schedule:
    """Draw a schedule: any node may hold the record or host the operator.

    The faults strike at steps that the undisturbed run takes, so that the first of them surely strikes.
    """
    world = seed % WORLDS
    rng = random.Random(f"casting/{world}")
    casting = Casting(
        holder=rng.choice(NODES),
        room=NODES,
        strategy=rng.choice(("relaxation", "producer", "consumer", "random")),
        sink=rng.choice(("file", "follow")),
        fsync=rng.random() < 0.7,
    )
    steps, calls = _undisturbed(world, casting)
    failpoint = occurrences(steps)
    hosts = tuple(node for node in NODES if any(when.node == node and when.step == "plan" for when in failpoint))
    return Schedule(world, casting, random_plan(seed, msgspec.structs.replace(casting.stage, operators=hosts), failpoint, calls))


@functools.cache
def _undisturbed(world: int, casting: Casting) -> tuple[tuple[tuple[str, Failpoint], ...], Mapping[str, int]]:
    outcome = run_schedule((), seed=world, casting=casting)
    if outcome.failure:
        raise CheckFailedError(f"without any fault: {outcome.failure}")
    return outcome.failpoint, outcome.calls


def run_schedule(faults: Sequence[Fault], *, seed: int | str, casting: Casting = Casting()) -> Outcome:  # noqa: B008 - immutable
    """Run once with all checks on; the faults may strike from the submission on."""

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        config, full = casting.config, msgspec.structs.replace(casting.config, control=NO_ROOM)
        configs = {name: config if name in casting.room else full for name in NODES}
        quality = NetworkQuality(jitter=0.3)
        return SimulatedCluster(loop, seed, NODES, root, config=config, configs=configs, quality=quality, times=TIMES)

    async def query_run(cluster: SimulatedCluster, root: Path) -> Ended:
        return await _QueryRun(cluster, casting, faults, root).run()

    return run_cluster(build, query_run, seed=seed, max_time_s=MAX_TIME_S, replay=_replay_command(seed, faults, casting))


def _replay_command(seed: int | str, faults: Sequence[Fault], casting: Casting) -> str:
    """Return the command that replays the run, and prints its trace."""
    plan, cast = msgspec.json.encode(list(faults)).decode(), msgspec.json.encode(casting).decode()
    return f"python -m sbon_node.simulation --seed {seed} --casting {shlex.quote(cast)} --faults {shlex.quote(plan)}"


class _QueryRun:
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
        await cluster.answer(self.casting.holder, self._declare())
        branch = f"{QUERY}.b0"
        cluster.watch.expect(QUERY, {branch: (self._source().id,)}, (branch,))
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
        daemon = self.cluster.nodes[self.casting.holder].daemon
        await daemon.create_stream(StreamDeclaration(name="numbers", schema=SCHEMA, event_time="ts"))
        await daemon.attach_source(self._source())

    def _source(self) -> SourceDeclaration:
        options = {"path": str(self.input), "replay": 1.0}
        return SourceDeclaration(stream="numbers", name="all", node="s", connector="file", options=options, rows_s=1000 / STEP_MS)

    # -- the query's life ----------------------------------------------------------------------------------------------

    async def _submit(self) -> bool | None:
        """Submit the query; return whether it was accepted, or None if the user did not learn it."""
        submission = self.cluster.user(self.casting.holder, self._submission())
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
        daemon = self.cluster.nodes[self.casting.holder].daemon
        sink = SinkSpec(kind="follow")
        if self.casting.sink == "file":
            sink = SinkSpec(kind="file", options={"path": str(self.output)})
        submission = Submission(
            sql=FRAGMENT.format("numbers"), name=QUERY, strategy=self.casting.strategy, consumer="c", sink=sink
        )
        async for event in daemon.submit(submission):
            self.cluster.note("accepted" if isinstance(event, Accepted) else f"{event.step}: {event.message}")

    async def _ending(self, accepted: bool | None) -> str:
        """Wait for the end and return ``finished`` or ``refused``.

        An accepted query must finish; a rejected one must not run.
        """
        holder, answered_s = self.cluster.nodes[self.casting.holder], self.cluster.loop.time()
        while True:
            await self.cluster.until(lambda: holder.ready)
            record = holder.daemon.context.store.get("query", QUERY, QueryRecord)
            state = record.state if record is not None else "gone"
            if state == query_states.FINISHED and accepted is not False:
                return "finished"
            if state in ("gone", query_states.FAILED) and not accepted:
                return "refused"
            allowed = ALLOWED[accepted]
            undone = state != query_states.PLACING or self.cluster.loop.time() < answered_s + 2 * SETTLE_S
            if state not in allowed or not undone:
                reason = record.reason if record is not None else ""
                outcome = {True: "accepted", False: "refused", None: "cut short"}[accepted]
                raise CheckFailedError(f"the submission was {outcome}, and the query is {state}: {reason}")
            await self.cluster.sleep(0.25)

    def _check(self, ending: str) -> None:
        checker = self.cluster.watch.checker
        delivered = self.follower.rows if self.casting.sink == "follow" else read_result(self.output)
        if ending == "finished":
            checker.delivered(delivered, oracle(self.rows))
        elif self.casting.sink == "file" and list(self.output.parent.glob(f"{self.output.name}*")):
            raise CheckFailedError("the result of a refused query is left behind")


def numbers(count: int, text_bytes: int, seed: int | str) -> list[dict[str, Any]]:
    """Return rows with an identity each, and nulls among their values."""
    rng = random.Random(f"rows/{seed}")
    return [
        {
            "id": number,
            "v": rng.choice((None, rng.uniform(-10, 30))),
            "t": rng.choice((None, "some", "other", rng.randbytes(text_bytes // 2).hex()[: rng.randint(0, text_bytes)])),
            "ts": pa.scalar(FIRST_MS + number * STEP_MS, pa.timestamp("ms", tz="UTC")).as_py().isoformat(),
        }
        for number in range(count)
    ]


def oracle(rows: Sequence[dict[str, Any]]) -> list[tuple[object, ...]]:
    columns = {"id": pa.int64(), "v": pa.float64(), "t": pa.string()}
    table = pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in columns.items()})
    return [tuple(row.values()) for row in rows_of(FRAGMENT.format("in0"), table).to_pylist()]


def read_result(path: Path) -> list[tuple[object, ...]]:
    with suppress(FileNotFoundError):
        return [tuple(json.loads(line).values()) for line in path.read_text().splitlines()]
    return []
