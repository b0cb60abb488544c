"""The whole daemon in virtual time: :class:`sbon_node.node.Node`, as it is, over a simulated network, disk and engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sbon_node.config import Config, NodeSettings
from sbon_node.control.machine import Machine
from sbon_node.control.settings import ControlSettings
from sbon_node.engine.interface import Engine, OnOperatorState
from sbon_node.net.counters import Counters
from sbon_node.net.transport import Address
from sbon_node.node import Node
from sbon_node.simulation.checks import Checker, CheckFailedError
from sbon_node.simulation.engine import EngineTimes, SimulatedEngine
from sbon_node.simulation.loop import VirtualLoop
from sbon_node.simulation.network import Latency, NetworkQuality
from sbon_node.simulation.process import Process
from sbon_node.simulation.world import SimulatedNode, World
from sbon_node.steps import Step

CONFIG = Config(control=ControlSettings(cores=4.0, memory_mb=8_000.0))
"""What every node is configured with, but for its name and addresses: nothing is asked of the machine the run is on."""


class IdleMachine(Machine):
    """Never loaded, whatever the machine the simulation runs on does meanwhile."""

    def load(self) -> float:
        return 0.0


class ClusterNode(SimulatedNode):
    """``node`` is the daemon's object once it has started."""

    def __init__(self, name: str, address: Address, root: Path) -> None:
        super().__init__(name, address, root)
        self.node: Node | None = None

    @property
    def ready(self) -> bool:
        return self.alive and self.node is not None

    @property
    def daemon(self) -> Node:
        """Raises ``AssertionError`` while the node is down."""
        assert self.alive, f"{self.name} is down"
        assert self.node is not None, f"{self.name} is not up yet"
        return self.node


class SimulatedCluster(World):
    """N daemons. Call :meth:`start`, then :meth:`together`; ``nodes[name].daemon`` is what the HTTP API would talk to."""

    def __init__(
        self,
        loop: VirtualLoop,
        seed: int | str,
        names: Sequence[str],
        root: Path,
        *,
        config: Config = CONFIG,
        latency: Latency | None = None,
        quality: NetworkQuality | None = None,
        times: EngineTimes | None = None,
    ) -> None:
        super().__init__(loop, seed, names, root, latency=latency, quality=quality)
        self.config, self.times = config, times
        self.checker = Checker(config.streams, {})

    def make_node(self, name: str, address: Address, root: Path) -> ClusterNode:
        return ClusterNode(name, address, root)

    def at(self, name: str) -> ClusterNode:
        node = self.nodes[name]
        assert isinstance(node, ClusterNode)
        return node

    async def together(self) -> None:
        """Waits until every node is up and knows every other."""
        await self.until(lambda: all(self.at(name).ready for name in self.nodes))
        await self.until(lambda: all(len(self.at(n).daemon.membership.alive()) == len(self.nodes) - 1 for n in self.nodes))

    async def until(self, condition: Callable[[], bool], *, pause_s: float = 0.1) -> None:
        """Waits for a condition; raises :class:`CheckFailedError` once the run has failed. Bounded by the loop's own limit."""
        while not condition():
            await asyncio.wait([self.over], timeout=pause_s)
            self.verify()

    def verify(self) -> None:
        """Raises :class:`CheckFailedError` where the run has failed so far."""
        if self.over.done():
            raise CheckFailedError(self.over.result())
        self.checker.quiet(self.loop.unhandled)

    def call(self, name: str, work: Any) -> asyncio.Task[Any]:
        """Runs a coroutine in the node's process, as its API server would; it dies with the node."""
        process = self.at(name).process
        assert process is not None
        return process.start(work)

    async def stop(self, name: str) -> None:
        """SIGTERM: the node goes away cleanly; :meth:`boot` brings it back."""
        node = self.at(name)
        await self.call(name, node.daemon.close())
        self.crash(node)

    # -- lives ---------------------------------------------------------------------------------------------------------

    async def live(self, node: SimulatedNode, process: Process) -> None:
        assert isinstance(node, ClusterNode)
        node.node = None
        rng = self.rng(process)

        def steps(step: Step) -> None:
            self.taken(node, process, step)

        def engine(folder: Path, on_state: OnOperatorState) -> Engine:
            node.engine = SimulatedEngine(
                process,
                random.Random(f"{self.seed}/{process.name}/engine"),
                steps,
                node.locks,
                on_state=self._noted(process, on_state),
                is_full=lambda: node.disk.is_full,
                times=self.times,
            )
            return node.engine

        daemon = Node(
            self._config(node),
            transport=self.network.transport(process, node.name, node.address.host),
            clock=self.clock,
            rng=rng,
            engine=engine,
            counters=Counters(self.clock.now),
            steps=steps,
            machine=IdleMachine(self.config.control),
        )
        node.outbox = daemon.outbox
        for stream in daemon.outbox.streams():
            self.observe(self.checker.recovered, daemon.outbox, stream, self._checkpoint(node, stream))
        await daemon.start()
        node.node = daemon
        await self.loop.create_future()

    def _config(self, node: SimulatedNode) -> Config:
        first = next(iter(self.nodes.values()))
        settings = NodeSettings(
            name=node.name,
            data_dir=str(node.disk.folder),
            bind=node.address.host,
            port=node.address.port,
            api_bind=node.address.host,
            join=() if node is first else (str(first.address),),
        )
        return msgspec.structs.replace(self.config, node=settings)

    def _noted(self, process: Process, on_state: OnOperatorState) -> OnOperatorState:
        def told(operator: str, state: Any, reason: str) -> None:
            self.note(f"{process.name} {operator} {state} {reason}".rstrip())
            on_state(operator, state, reason)

        return told

    # -- checks --------------------------------------------------------------------------------------------------------

    def check(self, node: SimulatedNode, step: Step) -> None:
        outbox = node.outbox
        if outbox is not None and step == "publish":
            for stream in outbox.streams():
                self.checker.published(outbox, stream, self._checkpoint(node, stream))

    def check_host(self, node: SimulatedNode, host: str) -> None:
        self.checker.wrote(node.name, host)

    def _checkpoint(self, node: SimulatedNode, stream: str) -> Path | None:
        folder = node.checkpoint(stream)
        return folder if not stream.startswith("source/") and folder.exists() else None
