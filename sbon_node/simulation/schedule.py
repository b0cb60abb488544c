"""One query over whole daemons, from its submission until nothing is left of it, under a schedule of faults.

Rows are born from a file at ``s``, and taken at ``c`` by a sink that keeps a file, or by a user who follows. Whatever happens,
and whenever: once all is mended the query was either refused, and has left nothing behind anywhere, or it has run, its rows are
the oracle's, each exactly once, and it leaves nothing but its result.
"""

from __future__ import annotations

import asyncio
import functools
import json
import random
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa

from sbon_node.config import Config
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.control.records import QueryRecord
from sbon_node.control.report import Accepted, SinkSpec, Submission
from sbon_node.control.settings import ControlSettings
from sbon_node.engine.interface import Column
from sbon_node.errors import SbonError
from sbon_node.query.catalog import SourceDeclaration, StreamDeclaration
from sbon_node.simulation.checks import CheckFailedError
from sbon_node.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.simulation.evaluate import rows_of
from sbon_node.simulation.faults import Fault, Stage, occurrences, random_plan
from sbon_node.simulation.follower import Follower
from sbon_node.simulation.host import EngineTimes
from sbon_node.simulation.left import SETTLE_S, settled
from sbon_node.simulation.loop import VirtualLoop
from sbon_node.simulation.outcome import Ended, Outcome, run_cluster
from sbon_node.simulation.paths import NetworkQuality
from sbon_node.space.settings import SpaceSettings
from sbon_node.steps import Step
from sbon_node.streams.settings import StreamSettings

NODES = ("h", "s", "o", "c")
QUERY = "query"
FRAGMENT = "SELECT id, v * 2 AS w, upper(t) AS u FROM {} WHERE v > 0 OR t IS NULL"
SCHEMA = (Column("id", "bigint"), Column("v", "double"), Column("t", "string"), Column("ts", "timestamp"))
FIRST_MS, STEP_MS = 1_600_000_000_000, 25
ROWS = 56
MAX_TIME_S = 1800.0
CONNECTORS = ConnectorSettings(linger_s=0.1, retry_max_s=2.0)
SPACE = SpaceSettings(algorithm="vivaldi", probe_interval_s=60.0)
"""Where the nodes are is no matter here."""
NO_ROOM = ControlSettings(cores=0.01, memory_mb=10.0)
TIMES = EngineTimes(watch=(0.001, 0.2))


class Casting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who plays what: the query is submitted at ``holder``, and its operator goes to one of ``room``.

    The input is ``rows`` with texts of up to ``text_bytes``. ``credit_bytes``, which the other bounds of streams go by, is more
    than the largest frame: what has waited for long comes in one, of all rows or of a quarter of a megabyte.
    """

    holder: str = "h"
    room: tuple[str, ...] = ("o",)
    strategy: str = "relaxation"
    sink: Literal["file", "follow"] = "file"
    rows: int = ROWS
    text_bytes: int = 60
    credit_bytes: int = 8_000

    @property
    def config(self) -> Config:
        """Of a node with room."""
        streams = StreamSettings(
            inbox_credit_bytes=self.credit_bytes,
            outbox_quota_bytes=self.credit_bytes * 3 // 4,
            batch_span_bytes=self.credit_bytes // 2,
            batch_span_frames=6,
            read_bytes=self.credit_bytes // 2,
        )
        return msgspec.structs.replace(CONFIG, streams=streams, connectors=CONNECTORS, space=SPACE)

    @property
    def stage(self) -> Stage:
        return Stage(sources=("s",), operators=self.room, consumers=("c",), holders=(self.holder,))


class Schedule(NamedTuple):
    """A run to be: the seed of its world, who plays what in it, and what goes wrong."""

    seed: int
    casting: Casting
    faults: tuple[Fault, ...]


WORLDS = 50
"""How many different runs the random schedules disturb."""


def random_schedule(seed: int) -> Schedule:
    """Any node holds the record, any may host the operator; the faults strike at steps which that run takes undisturbed, so that
    the first of them surely does."""
    world = seed % WORLDS
    rng = random.Random(f"casting/{world}")
    casting = Casting(
        holder=rng.choice(NODES),
        room=NODES,
        strategy=rng.choice(("relaxation", "producer", "consumer", "random")),
        sink=rng.choice(("file", "follow")),
    )
    steps = occurrences(_undisturbed_steps(world, casting))
    hosts = tuple(node for node in NODES if any(when.node == node and when.step == "plan" for when in steps))
    return Schedule(world, casting, random_plan(seed, msgspec.structs.replace(casting.stage, operators=hosts), steps))


@functools.cache
def _undisturbed_steps(world: int, casting: Casting) -> tuple[tuple[str, Step], ...]:
    outcome = run_schedule((), seed=world, casting=casting)
    if outcome.failure:
        raise CheckFailedError(f"without any fault: {outcome.failure}")
    return outcome.steps


def run_schedule(faults: Sequence[Fault], *, seed: int | str, casting: Casting = Casting()) -> Outcome:  # noqa: B008 - immutable
    """One run with all checks on; the faults may strike from the submission on."""

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        config, full = casting.config, msgspec.structs.replace(casting.config, control=NO_ROOM)
        configs = {name: config if name in casting.room else full for name in NODES}
        quality = NetworkQuality(jitter=0.3)
        return SimulatedCluster(loop, seed, NODES, root, config=config, configs=configs, quality=quality, times=TIMES)

    async def play(cluster: SimulatedCluster, root: Path) -> Ended:
        return await _Play(cluster, casting, faults, root).run()

    return run_cluster(build, play, seed=seed, max_time_s=MAX_TIME_S, replay=_replay_command(seed, faults, casting))


def _replay_command(seed: int | str, faults: Sequence[Fault], casting: Casting) -> str:
    """The one command that runs it again, and prints its trace."""
    plan, cast = msgspec.json.encode(list(faults)).decode(), msgspec.json.encode(casting).decode()
    return f"python -m sbon_node.simulation --seed {seed} --casting {shlex.quote(cast)} --faults {shlex.quote(plan)}"


class _Play:
    def __init__(self, cluster: SimulatedCluster, casting: Casting, faults: Sequence[Fault], root: Path) -> None:
        self.cluster, self.casting, self.faults = cluster, casting, faults
        self.input, self.output = root / "numbers.ndjson", root / "result.ndjson"
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
        cluster.strikes.arm(self.faults)
        accepted = await self._submit()
        submission = len(cluster.strikes.plan.history)
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
        """Whether it was accepted; None where the user never got to know."""
        asked = self.cluster.user(self.casting.holder, self._submission())
        await self.cluster.until(asked.done)
        if asked.cancelled():
            return None
        try:
            asked.result()
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
        """``finished`` or ``refused``; waits for it. What was accepted must finish, what was refused must not run."""
        holder, answered_s = self.cluster.nodes[self.casting.holder], self.cluster.loop.time()
        while True:
            await self.cluster.until(lambda: holder.ready)
            record = holder.daemon.context.store.get("query", QUERY, QueryRecord)
            state = record.state if record is not None else "gone"
            if state == "finished" and accepted is not False:
                return "finished"
            if state in ("gone", "failed") and not accepted:
                return "refused"
            allowed = ("running", "finished") if accepted else ("placing", "running") if accepted is None else ("placing",)
            undone = state != "placing" or self.cluster.loop.time() < answered_s + 2 * SETTLE_S
            if state not in allowed or not undone:
                reason = record.reason if record is not None else ""
                told = {True: "accepted", False: "refused", None: "cut short"}[accepted]
                raise CheckFailedError(f"the submission was {told}, and the query is {state}: {reason}")
            await self.cluster.sleep(0.25)

    def _check(self, ending: str) -> None:
        checker = self.cluster.watch.checker
        delivered = self.follower.rows if self.casting.sink == "follow" else read_result(self.output)
        if ending == "finished":
            checker.delivered(delivered, oracle(self.rows))
        elif self.casting.sink == "file" and list(self.output.parent.glob(f"{self.output.name}*")):
            raise CheckFailedError("the result of a refused query is left behind")


def numbers(count: int, text_bytes: int, seed: int | str) -> list[dict[str, Any]]:
    """Rows with an identity each, nulls among their values."""
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
