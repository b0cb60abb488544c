"""The whole daemon in virtual time: :class:`sbon_node.node.Node`, as it is, over a simulated network, disk and engine.

Nodes live several times, faults strike at steps, and what happened is in the trace.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from sbon_node.blocking import inline
from sbon_node.config import Config, NodeSettings
from sbon_node.control.machine import Machine
from sbon_node.control.settings import ControlSettings
from sbon_node.engine.interface import Engine, OnOperatorState
from sbon_node.net.counters import Counters
from sbon_node.net.transport import Address
from sbon_node.node import Node
from sbon_node.simulation.acquainted import acquaint
from sbon_node.simulation.checks import CheckFailedError
from sbon_node.simulation.disk import SimulatedDisk
from sbon_node.simulation.engine import SimulatedEngine
from sbon_node.simulation.host import EngineTimes
from sbon_node.simulation.loop import VirtualLoop
from sbon_node.simulation.network import SimulatedNetwork
from sbon_node.simulation.node import SimulatedNode
from sbon_node.simulation.paths import Latency, NetworkQuality
from sbon_node.simulation.process import Process, current_process
from sbon_node.simulation.strikes import Strikes
from sbon_node.simulation.watch import Watch
from sbon_node.space.coordinate import Coordinate
from sbon_node.steps import Step

T = TypeVar("T")


@dataclass(frozen=True)
class Spent:
    """Seconds of a core that this process was charged with, turns of the loop, and virtual seconds."""

    cpu_s: float = field(compare=False)
    """Hangs on the machine, and makes no difference between two runs."""
    events: int
    virtual_s: float

    def since(self, before: Spent) -> Spent:
        return Spent(self.cpu_s - before.cpu_s, self.events - before.events, self.virtual_s - before.virtual_s)


CONFIG = Config(control=ControlSettings(cores=4.0, memory_mb=8_000.0))
"""What every node is configured with, but for its name and addresses: nothing is asked of the machine the run is on."""
PORT = 7400


class NodeDiedError(Exception):
    """Nobody will ever answer: whoever was asked has died, or gone away."""


class IdleMachine(Machine):
    """Never loaded, whatever the machine the simulation runs on does meanwhile."""

    def load(self) -> float:
        return 0.0


class SimulatedCluster:
    """N daemons. Call :meth:`start`, then :meth:`together`; ``nodes[name].daemon`` is what the HTTP API would talk to.

    ``over`` is set to the reason when the run has failed. ``configs`` are those of the nodes that differ from ``config``, and
    every node but the first joins through the first, or through ``seeds[name]``.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        seed: int | str,
        names: Sequence[str],
        root: Path,
        *,
        config: Config = CONFIG,
        configs: Mapping[str, Config] | None = None,
        latency: Latency | None = None,
        quality: NetworkQuality | None = None,
        times: EngineTimes | None = None,
    ) -> None:
        self.loop, self.seed = loop, seed
        self.clock = loop.clock()
        self.config, self.configs, self.times = config, configs or {}, times
        self.network = SimulatedNetwork(random.Random(f"network/{seed}"), latency or (lambda a, b: 0.012), quality)
        self.nodes = {name: SimulatedNode(name, _address(index), root) for index, name in enumerate(names)}
        self.disks: Mapping[str, SimulatedDisk] = {name: node.disk for name, node in self.nodes.items()}
        self.strikes = Strikes(self)
        self.watch = Watch(config.streams)
        self.trace: list[str] = []
        self.over: asyncio.Future[str] = loop.create_future()
        self.met = self.spent()
        """What it took until all knew each other, or so far."""
        self._users: dict[str, asyncio.Task[Any]] = {}
        self._acquainted = False

    def at(self, name: str) -> SimulatedNode:
        return self.nodes[name]

    # -- lives ---------------------------------------------------------------------------------------------------------

    def start(self, names: Sequence[str] = ()) -> None:
        """Boots all, or these; the others may follow."""
        for name in names or self.nodes:
            self.boot(self.nodes[name])

    def boot(self, node: SimulatedNode) -> None:
        node.lives += 1
        node.node = node.outbox = node.engine = None
        node.process = Process(f"{node.name}#{node.lives}")
        self.note(f"{node.process.name} starts")
        node.task = node.process.start(self._live(node, node.process))
        node.task.add_done_callback(self._ended)

    async def refusal(self, name: str) -> BaseException | None:
        """Boots a node that cannot start, and returns why it says it cannot."""
        node = self.nodes[name]
        self.boot(node)
        assert node.task is not None
        node.task.remove_done_callback(self._ended)
        await asyncio.wait([node.task])
        self.crash(node)
        return node.task.exception()

    def crash(self, node: SimulatedNode) -> None:
        """The daemon dies at once; its disk stays as it is, its engine host notices a little later."""
        assert node.process is not None
        node.process.kill()
        node.disk.crash()

    async def stop(self, name: str) -> None:
        """SIGTERM: the node goes away cleanly; :meth:`boot` brings it back."""
        node = self.nodes[name]
        await self.call(name, node.daemon.close())
        self.crash(node)

    def call(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs a coroutine in the node's process, as its API server would; it dies with the node."""
        process = self.nodes[name].process
        assert process is not None
        return process.start(work)

    def user(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """As :meth:`call`, for a user who may :meth:`give_up`."""
        task = self._users[name] = self.call(name, work)
        return task

    def give_up(self, name: str) -> None:
        if (task := self._users.pop(name, None)) is not None:
            task.cancel()

    async def _live(self, node: SimulatedNode, process: Process) -> None:
        """One life of a node, in its process."""

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
            self.config_of(node),
            transport=self.network.transport(process, node.name, node.address.host),
            clock=self.clock,
            rng=random.Random(f"{self.seed}/{process.name}"),
            engine=engine,
            counters=Counters(self.clock.now),
            steps=steps,
            blocking=node.disk.blocking,
            computing=inline,
            machine=IdleMachine(self.config_of(node).control),
        )
        node.outbox = daemon.outbox
        self.observe(self.watch.started, node)
        await daemon.start()
        node.node = daemon
        await self.loop.create_future()

    def config_of(self, node: SimulatedNode) -> Config:
        first = next(iter(self.nodes.values()))
        config = self.configs.get(node.name, self.config)
        alone = node is first or (self._acquainted and node.lives == 1)
        join = config.node.join or (() if alone else (str(first.address),))
        settings = NodeSettings(
            name=config.node.name or node.name,
            data_dir=str(node.disk.folder),
            bind=node.address.host,
            port=node.address.port,
            api_bind=node.address.host,
            join=join,
        )
        return msgspec.structs.replace(config, node=settings)

    def _noted(self, process: Process, on_state: OnOperatorState) -> OnOperatorState:
        def told(operator: str, state: Any, reason: str) -> None:
            self.note(f"{process.name} {operator} {state} {reason}".rstrip())
            on_state(operator, state, reason)

        return told

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(f"{task.get_name()}: {type(error).__name__}: {error}")

    # -- steps ---------------------------------------------------------------------------------------------------------

    def taken(self, node: SimulatedNode, process: Process, step: Step) -> None:
        """A process has taken a step: checks first, then what strikes now."""
        caller = current_process.get()
        assert caller is not None
        caller.check()
        count, due = self.strikes.plan.taken(node.name, step)
        self.note(f"{caller.name} {step} {count}")
        if caller is not process:
            self.observe(self.watch.host_stepped, node, caller.name)
        if process.alive and node.process is process:
            self.observe(self.watch.stepped, node, step)
        for fault in due:
            self.strikes.strike(fault)
        caller.check()

    def observe(self, check: Callable[..., None], *args: Any) -> None:
        """Runs a check within a node's code, which must not notice."""
        try:
            check(*args)
        except CheckFailedError as error:
            self.fail(str(error))

    def fail(self, reason: str) -> None:
        if not self.over.done():
            self.note(f"FAILED: {reason}")
            self.over.set_result(reason)

    def note(self, line: str) -> None:
        self.trace.append(f"{self.loop.time():11.6f} {line}")

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def acquainted(self, places: Mapping[str, Coordinate]) -> None:
        """Boots all, and returns when they are as if they had been together for long, in these places."""
        self._acquainted = True
        self.start()
        await self.until(lambda: all(node.ready for node in self.nodes.values()), pause_s=0.001)
        members = {name: node.daemon.membership for name, node in self.nodes.items()}
        acquaint(members, places, random.Random(f"acquainted/{self.seed}"))
        self.met = self.spent()

    async def together(self) -> None:
        """Waits until every node that was booted is up and knows every other."""
        booted = [node for node in self.nodes.values() if node.lives]
        await self.until(lambda: all(node.ready for node in booted))
        await self.until(lambda: all(node.daemon.membership.others_alive == len(booted) - 1 for node in booted))
        self.met = self.spent()

    def spent(self) -> Spent:
        return Spent(time.process_time(), self.loop.turns, self.loop.time())

    async def until(self, condition: Callable[[], bool], *, pause_s: float = 0.1) -> None:
        """Waits for a condition; raises :class:`CheckFailedError` once the run has failed. Bounded by the loop's own limit."""
        while not condition():
            await asyncio.wait([self.over], timeout=pause_s)
            self.verify()

    async def sleep(self, seconds: float) -> None:
        """As :meth:`until`, for a time to pass."""
        end = self.loop.time() + seconds
        await self.until(lambda: self.loop.time() >= end, pause_s=seconds)

    async def answer(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """What a call in the node's process returns or raises; :class:`NodeDiedError` where the node died over it."""
        asked = self.call(name, work)
        waited: list[asyncio.Future[Any]] = [asked, self.over]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        self.verify()
        if asked.cancelled():
            raise NodeDiedError(name)
        return asked.result()

    def verify(self) -> None:
        """Raises :class:`CheckFailedError` where the run has failed so far."""
        if self.over.done():
            raise CheckFailedError(self.over.result())
        self.watch.checker.quiet(self.loop.unhandled)


def _address(index: int) -> Address:
    return Address(f"10.0.{index // 250}.{index % 250 + 1}", PORT)
