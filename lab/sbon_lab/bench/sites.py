"""The benchmark's own side: two nodes' streams, real connections between them, and the Spark engine at the second.

Sources are at the first node, the operator at the second, its consumer at the first: outbox, link, port, engine, outbox,
link. Membership and control, which no frame passes through, are left out. Both nodes share this process, and so its core.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import structlog

from sbon_lab.bench.rows import Outputs
from sbon_lab.bench.work import FILTER, Work
from sbon_node.base.clock import Clock
from sbon_node.base.tasks import Tasks
from sbon_node.engine.interface import Footprint
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_node.model.frames import FrameDraft
from sbon_node.net.counters import Counters
from sbon_node.net.peers import Identity, Peers, PeerServer
from sbon_node.net.settings import NetSettings
from sbon_node.net.sockets import SocketTransport
from sbon_node.net.transport import Address
from sbon_node.streams.links.link import Link
from sbon_node.streams.links.publisher import Publisher, ReaderChecks
from sbon_node.streams.links.shared import SharedConnections
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.port import NodePort, PortInput
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from sbon_protocol.api.states import operator_states
from sbon_protocol.messages import Hello

log = structlog.get_logger()

_FRAMES_OF_A_WRITE = 4


class Site:
    """The parts of a node that its streams need."""

    def __init__(self, name: str, folder: Path, clock: Clock) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        settings, counters = NetSettings(), Counters(clock.now)
        self._counters = counters
        transport = SocketTransport(clock, settings, counters)
        identity = Identity("bench", name, name)
        self.outbox = Outbox(self.folder / "outbox.db", StreamSettings())
        self.peers = Peers(transport, clock, identity, settings, counters)
        self.connections = SharedConnections(self.peers, StreamSettings())
        self._server = PeerServer(transport, clock, identity, settings, counters)
        self._publisher = Publisher(self.outbox, clock, StreamSettings())
        self.address = Address("", 0)

    @property
    def sent_bytes(self) -> int:
        """Return the bytes of all frames that this site has sent, with their lengths."""
        return sum(flow.bytes for (_, direction, _), flow in self._counters.traffic.snapshot().items() if direction == "sent")

    async def start(self) -> None:
        self._server.on_stream(partial(self._publisher.serve, checks=ReaderChecks(_anybody, _any_host)))
        self.address = await self._server.start(Address("127.0.0.1", 0))

    async def disconnect(self) -> None:
        """End the connections of readers, and accept no more."""
        await self._server.close()

    async def close(self) -> None:
        await self.connections.close()
        await self.peers.close()
        await self.disconnect()
        self.outbox.close()


async def _anybody(follower: str, hello: Hello) -> None:
    """Admit every follower: the nodes of a bench are its own."""


async def _any_host(component: str, epoch: int, hello: Hello) -> None:
    """Admit every host of a reader."""


class OursFlow:
    """An operator between its sources and its consumer."""

    def __init__(self, operator: str, work: Work, near: Site, far: Site, clock: Clock) -> None:
        self.outputs = Outputs()
        self.sources = [f"source {position} of {operator}" for position in range(len(work.inputs))]
        self._operator, self._near, self._far, self._clock = operator, near, far, clock
        self._tasks = Tasks()
        rng = random.Random(1)
        self.port = NodePort(
            operator,
            [PortInput(stream=source, locate=lambda: near.address) for source in self.sources],
            outbox=far.outbox,
            peers=far.connections,
            clock=clock,
            settings=StreamSettings(),
            rng=rng,
            limits=work.limits(StreamSettings()),
        )
        self._link = Link(
            operator,
            "consumer",
            locate=lambda: far.address,
            peers=near.connections,
            clock=clock,
            settings=StreamSettings(),
            rng=rng,
        )

    def open(self) -> None:
        for source in self.sources:
            self._near.outbox.open_stream(source, "source")
        self._far.outbox.open_stream(self._operator, "operator")
        self._link.start()
        self._tasks.start("consume", self._consume())

    async def arrive(self, drafts: Sequence[Sequence[FrameDraft]]) -> None:
        await asyncio.gather(*(self._write(*arguments) for arguments in zip(self.sources, drafts, strict=True)))

    async def _write(self, source: str, drafts: Sequence[FrameDraft]) -> None:
        """Write as a source's runner does: a few frames in a transaction, as long as there is room."""
        outbox = self._near.outbox
        for first in range(0, len(drafts), _FRAMES_OF_A_WRITE):
            await outbox.wait_room(source)
            outbox.write_source(source, drafts[first : first + _FRAMES_OF_A_WRITE], b"")
            await self._clock.sleep(0)

    async def close(self) -> None:
        await self._tasks.close()
        await self._link.close(unsubscribe=True)
        await self.port.close(unsubscribe=True)
        self._far.outbox.drop_stream(self._operator)
        for source in self.sources:
            self._near.outbox.drop_stream(source)

    async def _consume(self) -> None:
        number = 0
        while True:
            await self._link.wait(number)
            frames = self._link.inbox.frames(number, self._link.inbox.received)
            self.outputs.add(sum(frame.rows for frame in frames), self._clock.now())
            number = frames[-1].number
            self._link.acknowledge(number)


class Ours:
    """The two nodes and the engine."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._clock = clock
        self._near, self._far = Site("near", folder, clock), Site("far", folder, clock)
        self._engine = SparkEngine(EngineSettings(), self._far.folder, clock, self._told)
        self._flows: dict[str, OursFlow] = {}

    @property
    def pid(self) -> int:
        """Return the id of the engine process, the parent of all other engine processes."""
        pid = self._engine.engine_pid
        assert pid is not None
        return pid

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the engine; enter when it has answered for the first time."""
        await self._near.start()
        await self._far.start()
        try:
            await self._engine.analyse(FILTER.fragment, FILTER.inputs)
            yield
        finally:
            await self._engine.close()
            for flow in self._flows.values():
                await flow.close()
            await self._near.close()
            await self._far.close()

    async def start(self, operator: str, reader: Literal["simple", "partitioned"], work: Work) -> OursFlow:
        flow = OursFlow(operator, work, self._near, self._far, self._clock)
        flow.open()
        self._flows[operator] = flow
        spec = OperatorSpec(
            id=operator,
            query="bench",
            fragment=work.fragment,
            inputs=tuple(
                InputSpec(stream=source, node="near", schema=schema, view=view, event_time=work.event_time)
                for view, (source, schema) in enumerate(zip(flow.sources, work.inputs, strict=True))
            ),
            schema=work.schema,
            reader=reader,
            buckets=work.buckets,
            blocks=reader == "partitioned" and bool(work.buckets),
        )
        checkpoint = self._far.folder / "operators" / operator
        checkpoint.mkdir(parents=True)
        await self._engine.instantiate(spec, flow.port, checkpoint)
        return flow

    async def footprint(self) -> Footprint:
        """Return the engine's footprint, after a garbage collection."""
        return await self._engine.footprint(collect=True)

    async def stop(self, operator: str) -> None:
        await self._engine.destroy(operator)
        await self._flows.pop(operator).close()

    def _told(self, operator: str, state: str, reason: str) -> None:
        if reason:
            log.warning("operator", operator=operator, state=state, reason=reason)
        if state == operator_states.FAILED and operator in self._flows:
            self._flows[operator].outputs.fail(reason)
