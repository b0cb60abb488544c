"""The fast harness: the streams' real classes on simulated nodes, without membership, catalogue and placement.

A source at ``s``, an operator at ``o``, a second one over its output at ``p``, and a sink at ``c`` that keeps a file. A run of a
few hundred rows takes some tens of milliseconds, so that hundreds of fault schedules can be tried. ``run_schedule`` is all of it.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from sbon_node.engine.interface import Column, InputSpec, OperatorSpec, OperatorState
from sbon_node.net.counters import Counters
from sbon_node.net.peers import FrameChannel, Identity, Peers, PeerServer
from sbon_node.net.settings import NetSettings
from sbon_node.net.transport import Address
from sbon_node.simulation.checks import Checker, CheckFailedError
from sbon_node.simulation.disk import watched_databases
from sbon_node.simulation.engine import EngineTimes, SimulatedEngine
from sbon_node.simulation.evaluate import fragment
from sbon_node.simulation.faults import Fault, Stage, replay_command
from sbon_node.simulation.loop import VirtualLoop, VirtualTimeError, run
from sbon_node.simulation.network import NetworkQuality
from sbon_node.simulation.parts import (
    FileSink,
    Source,
    open_stream,
    read_position,
    read_sink,
)
from sbon_node.simulation.process import Process
from sbon_node.simulation.world import SimulatedNode, World
from sbon_node.steps import Step
from sbon_node.streams.link import Link
from sbon_node.streams.outbox import Outbox
from sbon_node.streams.port import NodePort, PortInput
from sbon_node.streams.publisher import Publisher
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.messages import Hello

STAGE = Stage(sources=("s",), operators=("o", "p"), consumers=("c",))
SOURCE, FIRST, SECOND, SINK = "source/numbers/all", "first", "second", "sink"
COLUMNS = (Column("id", "bigint"), Column("v", "double"), Column("t", "string"))
FRAGMENTS = {
    FIRST: "SELECT id, v * 2 AS w, t FROM in0 WHERE v > 0 OR t IS NULL",
    SECOND: "SELECT id, w, upper(t) AS u FROM in0 WHERE id % 5 <> 0",
}
SCHEMAS = {FIRST: COLUMNS, SECOND: (Column("id", "bigint"), Column("w", "double"), Column("t", "string"))}
HOSTS = {SOURCE: "s", FIRST: "o", SECOND: "p", SINK: "c"}
INPUTS = {FIRST: SOURCE, SECOND: FIRST, SINK: SECOND}
READERS = {SOURCE: (f"{FIRST}#0",), FIRST: (f"{SECOND}#0",), SECOND: (SINK,)}
BATCH_BYTES = 16_000
ROWS = 120
SETTINGS = StreamSettings(
    inbox_credit_bytes=8_000, outbox_quota_bytes=6_000, batch_span_bytes=4_000, batch_span_frames=6, read_bytes=4_000
)
NET = NetSettings()
MAX_TIME_S = 900.0
TIMES = EngineTimes(watch=(0.001, 0.2))


class Outcome(NamedTuple):
    """How a run went: ``failure`` is empty where every check held."""

    failure: str
    trace: tuple[str, ...]
    checks: int
    virtual_s: float
    unstruck: tuple[Fault, ...]


def numbers(count: int, seed: int | str) -> Any:
    """Rows with an identity each, nulls among their values."""
    rng = random.Random(f"rows/{seed}")
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "v": pa.array([rng.choice((None, rng.uniform(-10, 30))) for _ in range(count)], pa.float64()),
            "t": pa.array([rng.choice((None, "some", "other", "x" * rng.randint(0, 60))) for _ in range(count)], pa.string()),
        }
    )


def oracle(rows: Any) -> list[tuple[object, ...]]:
    table = fragment(FRAGMENTS[SECOND])(fragment(FRAGMENTS[FIRST])(rows))
    return [tuple(row.values()) for row in table.to_pylist()]


class HarnessNode(SimulatedNode):
    """``links`` are those of its present life, each with its reader."""

    def __init__(self, name: str, address: Address, root: Path) -> None:
        super().__init__(name, address, root)
        self.links: list[tuple[Link, str]] = []

    @property
    def streams(self) -> list[str]:
        return [stream for stream, host in HOSTS.items() if host == self.name and stream != SINK]


class Harness(World):
    """The stage's nodes, and what is checked meanwhile."""

    def __init__(self, loop: VirtualLoop, seed: int | str, faults: Sequence[Fault], rows: Any, root: Path) -> None:
        super().__init__(loop, seed, STAGE.nodes, root, quality=NetworkQuality(jitter=0.3))
        self.faults, self.rows = faults, rows
        self.checker = Checker(SETTINGS, READERS)
        self.epochs = dict.fromkeys((FIRST, SECOND), 0)

    def make_node(self, name: str, address: Address, root: Path) -> HarnessNode:
        return HarnessNode(name, address, root)

    # -- the run -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until all is delivered and acknowledged; raises what failed."""
        with watched_databases(self.disks):
            self.arm(self.faults)
            self.start()
            while not self._settled():
                self.checker.quiet(self.loop.unhandled)
                await asyncio.wait([self.over], timeout=0.25)
                if self.over.done():
                    raise CheckFailedError(self.over.result())
            self.checker.delivered(read_sink(self.nodes["c"].disk.folder), oracle(self.rows))
            self.checker.quiet(self.loop.unhandled)

    def _settled(self) -> bool:
        """The sink has the end, and every operator's frames are acknowledged and trimmed."""
        if not all(node.alive for node in self.nodes.values()) or not read_position(self.nodes["c"].disk.folder).ended:
            return False
        for stream in (FIRST, SECOND):
            outbox = self.nodes[HOSTS[stream]].outbox
            if outbox is None or stream not in outbox.streams() or outbox.earliest(stream) <= outbox.latest(stream):
                return False
        return True

    # -- lives ---------------------------------------------------------------------------------------------------------

    async def live(self, node: SimulatedNode, process: Process) -> None:
        assert isinstance(node, HarnessNode)
        rng = self.rng(process)
        transport = self.network.transport(process, node.name, node.address.host)
        identity, counters = Identity("test", node.name, node.name), Counters(self.clock.now)
        peers = Peers(transport, self.clock, identity, NET, counters)
        server = PeerServer(transport, self.clock, identity, NET, counters)

        def steps(step: Step) -> None:
            self.taken(node, process, step)

        node.outbox = Outbox(node.disk.folder / "outbox.db", SETTINGS, steps)
        self._recovered(node, node.outbox)
        publisher = Publisher(node.outbox, self.clock, SETTINGS, steps)

        async def serve(channel: FrameChannel, hello: Hello) -> None:
            await publisher.serve(channel, hello)

        server.on_stream(serve)
        await server.start(node.address)
        node.links = []
        if node.name == HOSTS[SOURCE]:
            await Source(node.outbox, SOURCE, self.rows, self.clock, rng).run()
        elif node.name == HOSTS[SINK]:
            await self._sink(node, peers, rng, steps)
        else:
            await self._operate(node, process, peers, rng, steps)
        await self.loop.create_future()

    async def _operate(self, node: HarnessNode, process: Process, peers: Peers, rng: random.Random, steps: Any) -> None:
        (operator,) = node.streams
        assert node.outbox is not None
        self.epochs[operator] += 1
        await open_stream(node.outbox, operator, "operator", self.clock, epoch=self.epochs[operator])
        stream = INPUTS[operator]
        where = PortInput(stream=stream, locate=lambda: self.nodes[HOSTS[stream]].address)
        port = NodePort(
            operator, [where], outbox=node.outbox, peers=peers, clock=self.clock, settings=SETTINGS, rng=rng, steps=steps
        )

        def on_state(name: str, state: OperatorState, reason: str) -> None:
            node.links = [(link, f"{name}#0") for link in port.links]
            self.note(f"{process.name} {name} {state} {reason}".rstrip())
            if state == "failed":
                self.fail(f"{name} failed: {reason}")

        spec = OperatorSpec(
            id=operator,
            query="q",
            fragment=FRAGMENTS[operator],
            inputs=(InputSpec(stream=stream, node=HOSTS[stream], schema=SCHEMAS[operator]),),
            schema=(),
            epoch=self.epochs[operator],
        )
        node.engine = SimulatedEngine(
            process, rng, steps, node.locks, on_state=on_state, is_full=lambda: node.disk.is_full, times=TIMES
        )
        await node.engine.instantiate(spec, port, node.checkpoint(operator))

    async def _sink(self, node: HarnessNode, peers: Peers, rng: random.Random, steps: Any) -> None:
        def connect(start_after: int) -> Link:
            link = Link(
                SECOND,
                SINK,
                locate=lambda: self.nodes[HOSTS[SECOND]].address,
                peers=peers,
                clock=self.clock,
                settings=SETTINGS,
                rng=rng,
                start_after=start_after,
                steps=steps,
            )
            node.links = [(link, SINK)]
            return link

        def pause() -> float:
            return rng.uniform(0.0, 0.004) + (0.5 if self.loop.time() < node.slow_until else 0.0)

        await FileSink(node.disk.folder, connect, steps, pause, self.clock).run()

    # -- steps and checks ----------------------------------------------------------------------------------------------

    def check_host(self, node: SimulatedNode, host: str) -> None:
        self.checker.wrote(node.name, host)

    def _recovered(self, node: HarnessNode, outbox: Outbox) -> None:
        for stream in outbox.streams():
            self.observe(self.checker.recovered, outbox, stream, node.checkpoint(stream) if stream in INPUTS else None)
            self._shown(outbox, stream)

    def _shown(self, outbox: Outbox, stream: str) -> None:
        """What an operator has shown, it has finished reading."""
        if stream in INPUTS and (visible := outbox.visible_batch(stream)) >= 0:
            (offset,) = outbox.batch_offsets(stream, visible)
            self.checker.done(INPUTS[stream], f"{stream}#0", offset.frame)

    def check(self, node: SimulatedNode, step: Step) -> None:
        assert isinstance(node, HarnessNode)
        outbox, checker = node.outbox, self.checker
        assert outbox is not None
        for stream in outbox.streams():
            if step == "publish":
                checker.published(outbox, stream, node.checkpoint(stream) if stream in INPUTS else None)
                self._shown(outbox, stream)
            elif step == "outbox-write":
                checker.bounded(outbox, stream, BATCH_BYTES)
            elif step == "trim":
                checker.trimmed(outbox, stream)
        if step == "position-write" and node.name == HOSTS[SINK]:
            checker.done(SECOND, SINK, read_position(node.disk.folder).frame)
        for link, reader in node.links:
            if step == "receive":
                checker.received(link)
            elif step == "acknowledge":
                checker.acknowledged(link, reader)


def run_schedule(faults: Sequence[Fault], *, seed: int | str, rows: int = ROWS) -> Outcome:
    """One run from the first row to the last acknowledgement, with all checks on."""
    harness: list[Harness] = []

    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        harness.append(Harness(loop, seed, faults, numbers(rows, seed), Path(root)))
        await harness[0].run()

    failure = ""
    with tempfile.TemporaryDirectory(prefix="sbon-simulation-", dir=in_memory()) as root:
        try:
            run(main, seed=seed, max_time_s=MAX_TIME_S, max_turns=400_000)
        except (CheckFailedError, VirtualTimeError) as error:
            failure = f"{error}\nreplay: {replay_command(seed, faults, rows)}"
    (one,) = harness
    return Outcome(failure, tuple(one.trace), one.checker.checks, one.loop.time(), tuple(one.plan.never_struck()))


def in_memory() -> str | None:
    """Files in memory, where the machine has such a folder."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
