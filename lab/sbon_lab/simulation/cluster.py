"""The whole daemon in virtual time: the unchanged :class:`sbon_node.node.Node` over a simulated network, disk and engine.

A node can have several lives. Faults strike at steps. The trace records the events.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from sbon_lab.simulation.checks import CheckFailedError
from sbon_lab.simulation.engine.engine import SimulatedEngine
from sbon_lab.simulation.engine.engine_process import EngineTimes
from sbon_lab.simulation.faults.disk import SimulatedDisk
from sbon_lab.simulation.faults.injector import FaultInjector
from sbon_lab.simulation.inline_planner import InlinePlanner
from sbon_lab.simulation.loop import EPOCH_S, VirtualLoop
from sbon_lab.simulation.network.network import SimulatedNetwork
from sbon_lab.simulation.network.paths import Latency, NetworkQuality
from sbon_lab.simulation.node import SimulatedNode
from sbon_lab.simulation.process import NO_PROCESS, Process, current_process
from sbon_lab.simulation.threads import SimulatedThreads
from sbon_lab.simulation.warm_start import warm_start
from sbon_lab.simulation.watch import Watch
from sbon_node.adaptation.settings import AdaptationSettings
from sbon_node.base.clock import Clock
from sbon_node.base.failpoints import Failpoint
from sbon_node.config.config import Config
from sbon_node.context import ControlSettings
from sbon_node.engine.interface import MovingEngine, OnOperatorState
from sbon_node.hosting.machine.machine_resources import Machine
from sbon_node.net.counters import Counters
from sbon_node.net.transport import Address
from sbon_node.node import Node
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.papers.ants.settings import AntSettings
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.errors import SbonError

T = TypeVar("T")


@dataclass(frozen=True)
class Spent:
    """CPU seconds charged to this process, turns of the loop, and virtual seconds."""

    cpu_s: float = field(compare=False)
    """Depends on the machine; not compared between two runs."""
    events: int
    virtual_s: float

    def since(self, before: Spent) -> Spent:
        return Spent(self.cpu_s - before.cpu_s, self.events - before.events, self.virtual_s - before.virtual_s)


RESTING_ANTS = AntSettings(explore_s=86_400.0, tell_s=86_400.0)
"""Ants that walk only for queries: all runs but those about ants save their turns."""
CONFIG = Config(
    control=ControlSettings(cores=4.0, memory_mb=8_000.0), ants=RESTING_ANTS, adaptation=AdaptationSettings(default="off")
)
"""Configuration of every node except its name and addresses; it reads nothing from the machine of the run.

Nothing moves by itself unless a query asks for it, so that a schedule has no moves but its own.
"""
SYNCED = msgspec.structs.replace(CONFIG, streams=StreamSettings(fsync=True))
"""Configuration with which a node may lose power."""
PORT = 7400
RESTART_S = 1.0
"""Pause after which a service manager starts a daemon again that ended."""
UNJOINED = frozenset({"name-taken", "join-failed"})
"""Errors with which the daemon of a wiped node ends, and which pass."""


class NodeDiedError(Exception):
    """The called node has died or gone away, and no answer will come."""


class SimulatedMachine(Machine):
    """A machine with the load of its simulated node and the reference speed, whatever those of the real machine are."""

    counts_usage = False

    def __init__(self, settings: ControlSettings, node: SimulatedNode) -> None:
        super().__init__(settings)
        self._node = node

    def load(self) -> float:
        return self._node.load_per_core

    def speed(self) -> float:
        return self._settings.speed or 1.0


class SimulatedCluster:
    """N daemons. Call :meth:`start`, then :meth:`together`; ``nodes[name].daemon`` has the interface that the HTTP API
    calls.

    ``over`` is the reason once the run has failed. ``configs`` are those of the nodes that differ from ``config``. Every node
    but the first joins through the first, or through ``seeds[name]``.
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
        self.nodes = {
            name: SimulatedNode(name, _address(index), root, SimulatedThreads(random.Random(f"threads/{seed}/{name}")))
            for index, name in enumerate(names)
        }
        self.disks: Mapping[str, SimulatedDisk] = {name: node.disk for name, node in self.nodes.items()}
        for node in self.nodes.values():
            node.disk.on_call = partial(self.called, node)
        self.fault_injector = FaultInjector(self)
        self.watch = Watch(config.streams)
        self.trace: list[str] = []
        self.over: asyncio.Future[str] = loop.create_future()
        self.met = self.spent()
        """Cost until all nodes knew each other, or cost so far."""
        self._users: dict[str, asyncio.Task[Any]] = {}
        self._unchecked: dict[str, SimulatedNode] = {}
        """Nodes whose registers may have changed since they were checked."""
        self._warm = False

    def at(self, name: str) -> SimulatedNode:
        return self.nodes[name]

    # -- lives ---------------------------------------------------------------------------------------------------------

    def start(self, names: Sequence[str] = ()) -> None:
        """Boot all nodes, or those in ``names``; the others may follow."""
        for name in names or self.nodes:
            self.boot(self.nodes[name])

    def boot(self, node: SimulatedNode) -> None:
        node.lives += 1
        node.created = node.node = node.outbox = node.engine = None
        self._unchecked[node.name] = node
        node.process = Process(f"{node.name}#{node.lives}")
        self.note(f"{node.process.name} starts")
        node.task = node.process.start(self._live(node, node.process))
        node.task.add_done_callback(self._ended)

    async def refusal(self, name: str) -> BaseException | None:
        """Boot a node that cannot start, and return its error."""
        node = self.nodes[name]
        self.boot(node)
        assert node.task is not None
        node.task.remove_done_callback(self._ended)
        await asyncio.wait([node.task])
        self.crash(node)
        return node.task.exception()

    def crash(self, node: SimulatedNode) -> None:
        """Kill the daemon at once. Its disk stays as it is; its engine process notices a little later."""
        assert node.process is not None
        node.process.kill()
        node.disk.crash()

    async def stop(self, name: str) -> None:
        """Stop the node cleanly, as SIGTERM does; :meth:`boot` starts it again."""
        node = self.nodes[name]
        await self.call(name, node.daemon.operations.before_stop())
        await self.call(name, node.daemon.close())
        self.crash(node)

    def call(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in the node's process, as its API server would; it dies with the node."""
        process = self.nodes[name].process
        assert process is not None
        return process.start(work)

    def user(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as :meth:`call` does, for a user who may :meth:`give_up`."""
        task = self._users[name] = self.call(name, work)
        return task

    def give_up(self, name: str) -> None:
        if (task := self._users.pop(name, None)) is not None:
            task.cancel()

    async def _live(self, node: SimulatedNode, process: Process) -> None:
        """Run one life of a node, in its process."""

        def failpoint(step: Failpoint) -> None:
            self.taken(node, process, step)

        def engine(folder: Path, on_state: OnOperatorState) -> MovingEngine:
            node.engine = SimulatedEngine(
                process,
                random.Random(f"{self.seed}/{process.name}/engine"),
                failpoint,
                node.locks,
                on_state=self._noted(process, on_state),
                is_full=lambda: node.disk.is_full,
                times=self.times,
                fsync=self.config_of(node).streams.fsync,
            )
            return node.engine

        daemon = Node(
            self.config_of(node),
            transport=self.network.transport(process, node.name, node.address.host),
            clock=Clock(wall_s=lambda: EPOCH_S + node.offset_s + self.loop.time(), monotonic_s=self.loop.time),
            rng=random.Random(f"{self.seed}/{process.name}"),
            engine=engine,
            counters=Counters(self.clock.now),
            failpoint=failpoint,
            executor=node.disk.executor,
            computing=node.threads,
            planner=InlinePlanner(self.config_of(node).query),
            machine=SimulatedMachine(self.config_of(node).control, node),
        )
        node.created, node.outbox = daemon, daemon.outbox
        self.observe(self.watch.started, node)
        await daemon.start()
        node.node = daemon
        await self.loop.create_future()

    def config_of(self, node: SimulatedNode) -> Config:
        first = next(iter(self.nodes.values()))
        if node is first and node.wiped:  # it remembers nobody
            first = next(other for other in self.nodes.values() if other is not node)
        config = self.configs.get(node.name, self.config)
        alone = node is first or (self._warm and node.lives == 1)
        join = config.node.join or (() if alone else (str(first.address),))
        settings = msgspec.structs.replace(
            config.node,
            name=config.node.name or node.name,
            data_dir=str(node.disk.folder),
            bind=node.address.host,
            port=node.address.port,
            api_bind=node.address.host,
            join=join,
        )
        membership = msgspec.structs.replace(config.membership, replace=node.wiped)
        return msgspec.structs.replace(config, node=settings, membership=membership)

    def _noted(self, process: Process, on_state: OnOperatorState) -> OnOperatorState:
        def note(operator: str, state: Any, reason: str) -> None:
            self.note(f"{process.name} {operator} {state} {reason}".rstrip())
            on_state(operator, state, reason)

        return note

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        node = next((one for one in self.nodes.values() if one.task is task), None)
        if node is not None and node.wiped and isinstance(error, SbonError) and error.code in UNJOINED:
            self._start_again(node, error.code)
        else:
            self.fail(f"{task.get_name()}: {type(error).__name__}: {error}")

    def _start_again(self, node: SimulatedNode, reason: str) -> None:
        """Start a wiped node later, as a service manager does: once the others know of its death, and its seed is up."""
        process = node.process
        assert process is not None
        self.note(f"{process.name} ends: {reason}")
        self.crash(node)

        def start() -> None:
            if node.process is process and not self.over.done():
                self.boot(node)

        self.loop.call_later(RESTART_S, start, context=NO_PROCESS)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def taken(self, node: SimulatedNode, process: Process, step: Failpoint) -> None:
        """Handle a step that a process has taken: check first, then let due faults strike."""
        caller = current_process.get()
        assert caller is not None
        caller.check_alive()
        count, due = self.fault_injector.plan.taken(node.name, step)
        self.note(f"{caller.name} {step} {count}")
        if caller is not process:
            self.observe(self.watch.engine_stepped, node, caller.name)
        if process.alive and node.process is process:
            self.observe(self.watch.stepped, node, step)
        if step == "store":
            self._check_registers(node)
        for fault in due:
            self.fault_injector.inject(fault)
        caller.check_alive()

    def _check_registers(self, storing: SimulatedNode) -> None:
        """Check the registers of all nodes that have stored something or started since they were last checked.

        The node that stores now takes over the new register after this step; so it is checked at the next one again.
        """
        self._unchecked[storing.name] = storing
        for node in self._unchecked.values():
            self.observe(self.watch.stored, node)
        self._unchecked = {name: node for name, node in self._unchecked.items() if node is storing or not node.ready}

    def called(self, node: SimulatedNode) -> None:
        """Handle a process that is about to call its node's disk."""
        for fault in self.fault_injector.plan.called(node.name):
            self.fault_injector.inject(fault)

    def observe(self, check: Callable[..., None], *args: Any) -> None:
        """Run a check within a node's code; the node does not notice it."""
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

    async def warm_start(self, coordinates: Mapping[str, Coordinate]) -> None:
        """Boot all nodes, and return when they are as after a long time together at these coordinates."""
        self._warm = True
        self.start()
        await self.until(lambda: all(node.ready for node in self.nodes.values()), pause_s=0.001)
        members = {name: node.daemon.membership for name, node in self.nodes.items()}
        warm_start(members, coordinates, self.loop.time())
        self.met = self.spent()

    async def together(self) -> None:
        """Wait until every booted node is up and knows every other."""
        booted = [node for node in self.nodes.values() if node.lives]
        await self.until(lambda: all(node.ready for node in booted))
        await self.until(lambda: all(node.daemon.membership.others_alive == len(booted) - 1 for node in booted))
        self.met = self.spent()

    def spent(self) -> Spent:
        return Spent(time.process_time(), self.loop.turns, self.loop.time())

    async def until(self, condition: Callable[[], bool], *, pause_s: float = 0.1) -> None:
        """Wait for a condition, within the loop's own limit.

        Raises :class:`CheckFailedError` once the run has failed.
        """
        while not condition():
            await asyncio.wait([self.over], timeout=pause_s)
            self.verify()

    async def sleep(self, seconds: float) -> None:
        """Let a time pass, with the errors of :meth:`until`."""
        end = self.loop.time() + seconds
        await self.until(lambda: self.loop.time() >= end, pause_s=seconds)

    async def answer(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Return or raise the result of a call in the node's process; :class:`NodeDiedError` if the node died during it."""
        call = self.call(name, work)
        waited: list[asyncio.Future[Any]] = [call, self.over]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        self.verify()
        if call.cancelled():
            raise NodeDiedError(name)
        return call.result()

    def verify(self) -> None:
        """Raise :class:`CheckFailedError` if the run has failed so far."""
        if self.over.done():
            raise CheckFailedError(self.over.result())
        self.watch.checker.quiet(self.loop.unhandled)


def _address(index: int) -> Address:
    return Address(f"10.0.{index // 250}.{index % 250 + 1}", PORT)
