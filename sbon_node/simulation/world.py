"""What every simulated cluster has: nodes that live several times, a network, faults that strike at steps, a trace.

:mod:`sbon_node.simulation.harness` fills the nodes with the streams alone, :mod:`sbon_node.simulation.cluster` with the daemon.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sbon_node.net.transport import Address
from sbon_node.simulation.checks import CheckFailedError
from sbon_node.simulation.disk import SimulatedDisk
from sbon_node.simulation.engine import CheckpointLocks, SimulatedEngine
from sbon_node.simulation.faults import Fault, FaultPlan
from sbon_node.simulation.loop import VirtualLoop
from sbon_node.simulation.network import Latency, NetworkQuality, SimulatedNetwork
from sbon_node.simulation.parts import lose_newest_batch, tear_newest
from sbon_node.simulation.process import Process, current_process
from sbon_node.steps import Step
from sbon_node.streams.outbox import Outbox

CHECKPOINTS = "operators"
"""Where a node keeps its checkpoints, within its data directory."""
PORT = 7400


class SimulatedNode:
    """One node over all its lives."""

    def __init__(self, name: str, address: Address, root: Path) -> None:
        self.name = name
        self.address = address
        self.disk = SimulatedDisk(root / name, shared=(CHECKPOINTS,))
        self.locks = CheckpointLocks()
        self.lives = 0
        self.process: Process | None = None
        self.outbox: Outbox | None = None
        self.engine: SimulatedEngine | None = None
        self.task: asyncio.Task[Any] | None = None
        self.slow_until = 0.0

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def checkpoint(self, operator: str) -> Path:
        return self.disk.folder / CHECKPOINTS / operator

    def operators(self) -> list[str]:
        """Those that have a checkpoint here."""
        return sorted(path.name for path in (self.disk.folder / CHECKPOINTS).iterdir())


class World:
    """All nodes of one run and what befalls them. ``over`` is set to the reason when the run has failed."""

    def __init__(
        self,
        loop: VirtualLoop,
        seed: int | str,
        names: Sequence[str],
        root: Path,
        *,
        latency: Latency | None = None,
        quality: NetworkQuality | None = None,
    ) -> None:
        self.loop, self.seed = loop, seed
        self.clock = loop.clock()
        self.plan = FaultPlan(())
        self.network = SimulatedNetwork(random.Random(f"network/{seed}"), latency or (lambda a, b: 0.012), quality)
        addresses = {name: Address(f"10.0.{index // 250}.{index % 250 + 1}", PORT) for index, name in enumerate(names)}
        self.nodes = {name: self.make_node(name, address, root) for name, address in addresses.items()}
        self.disks: Mapping[str, SimulatedDisk] = {name: node.disk for name, node in self.nodes.items()}
        self.trace: list[str] = []
        self.over: asyncio.Future[str] = loop.create_future()

    # -- filled in -----------------------------------------------------------------------------------------------------

    def make_node(self, name: str, address: Address, root: Path) -> SimulatedNode:
        return SimulatedNode(name, address, root)

    async def live(self, node: SimulatedNode, process: Process) -> None:
        """One life of a node, in its process."""
        raise NotImplementedError

    def check(self, node: SimulatedNode, step: Step) -> None:
        """What must hold after a step of a living node."""

    def check_host(self, node: SimulatedNode, host: str) -> None:
        """What must hold after an engine host's step, its daemon alive or not."""

    # -- lives ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for node in self.nodes.values():
            self.boot(node)

    def arm(self, faults: Sequence[Fault]) -> None:
        """From now on these may strike; steps and seconds are counted from now."""
        self.plan = FaultPlan(faults)
        for seconds, fault in self.plan.timed():
            self.loop.call_later(seconds, self.strike, fault)

    def boot(self, node: SimulatedNode) -> None:
        node.lives += 1
        node.process = Process(f"{node.name}#{node.lives}")
        self.note(f"{node.process.name} starts")
        node.task = node.process.start(self.live(node, node.process))
        node.task.add_done_callback(self._ended)

    def crash(self, node: SimulatedNode) -> None:
        """The daemon dies at once; its disk stays as it is, its engine host notices a little later."""
        assert node.process is not None
        node.process.kill()
        node.disk.crash()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(f"{task.get_name()}: {type(error).__name__}: {error}")

    def rng(self, process: Process) -> random.Random:
        """A process's own chance."""
        return random.Random(f"{self.seed}/{process.name}")

    # -- steps ---------------------------------------------------------------------------------------------------------

    def taken(self, node: SimulatedNode, process: Process, step: Step) -> None:
        """A process has taken a step: checks first, then what strikes now."""
        caller = current_process.get()
        assert caller is not None
        caller.check()
        count, due = self.plan.taken(node.name, step)
        self.note(f"{caller.name} {step} {count}")
        if caller is not process:
            self.observe(self.check_host, node, caller.name)
        if process.alive and node.process is process:
            self.observe(self.check, node, step)
        for fault in due:
            self.strike(fault)
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

    # -- what goes wrong -----------------------------------------------------------------------------------------------

    def strike(self, fault: Fault) -> None:
        node = self.nodes[fault.node]
        cuts = fault.action in ("cut", "cut-one-way")
        if self.over.done() or not (node.alive or cuts):
            return
        self.note(f"! {fault.action} {fault.node} {fault.other}".rstrip())
        if fault.action in ("kill", "orphan", "power", "lose-row"):
            self._kill(node, fault)
            self.loop.call_later(fault.down_s, self.boot, node)
        elif cuts:
            self.network.cut(fault.node, fault.other, both=fault.action == "cut")
            self.loop.call_later(fault.down_s, self._heal, fault)
        elif fault.action == "slow":
            node.slow_until = self.loop.time() + fault.down_s
        elif fault.action == "disk-full":
            node.disk.fill()
            self.loop.call_later(fault.down_s, node.disk.free)
        elif node.engine is not None:
            strikes = {
                "kill-engine": node.engine.kill_host,
                "kill-worker": node.engine.kill_worker,
                "repeat": node.engine.repeat_write,
            }
            strikes[fault.action]()

    def _kill(self, node: SimulatedNode, fault: Fault) -> None:
        engine, outbox = node.engine, node.outbox
        host = engine.host if engine is not None and engine.process is node.process else None
        if engine is not None and host is not None and fault.action == "orphan":
            host.stall(fault.down_s + 1.0)
            engine.orphan_s = fault.down_s + 4.0
        self.crash(node)
        if fault.action not in ("power", "lose-row"):
            return
        if engine is not None and engine.host is not None:
            engine.host.process.kill()
        if outbox is not None and fault.action == "lose-row":
            self.note(f"  {node.name} lost {lose_newest_batch(node.disk.folder / 'outbox.db')}")
        for operator in node.operators() if outbox is not None and fault.action == "power" else ():
            assert outbox is not None
            visible = outbox.visible_batch(operator) if operator in outbox.streams() else -1
            self.note(f"  {node.name} lost {tear_newest(node.checkpoint(operator), visible)}")

    def _heal(self, fault: Fault) -> None:
        self.note(f"healed {fault.node} {fault.other}")
        self.network.heal(fault.node, fault.other)
