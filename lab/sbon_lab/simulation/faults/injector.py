"""Injection and repair of faults in a cluster."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import msgspec

from sbon_lab.simulation.faults.plan import Fault, FaultPlan
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.network.network import SimulatedNetwork
from sbon_lab.simulation.node import SimulatedNode
from sbon_lab.simulation.process import NO_PROCESS
from sbon_lab.simulation.watch import Watch

KILLS = ("kill", "orphan", "power", "lose-row", "wipe")
CUTS = ("cut", "cut-one-way", "partition")
OF_DEAD_NODES = (*CUTS, "skew", "take-address")
"""Faults that strike a node that is down, too."""
SLOW_DISK_S = 1.0
_NUMBER_BITS = 40


class Injected(Protocol):
    """The part of a cluster that the fault injector uses."""

    @property
    def loop(self) -> VirtualLoop: ...

    @property
    def nodes(self) -> Mapping[str, SimulatedNode]: ...

    @property
    def network(self) -> SimulatedNetwork: ...

    @property
    def watch(self) -> Watch: ...

    @property
    def over(self) -> asyncio.Future[str]: ...

    def boot(self, node: SimulatedNode) -> None: ...

    def crash(self, node: SimulatedNode) -> None: ...

    def give_up(self, name: str) -> None: ...

    def note(self, line: str) -> None: ...


class FaultInjector:
    """The faults of one cluster, from ``plan`` or from :meth:`inject`. ``broken`` counts those that are not repaired, ``struck``
    those that have struck. The last fault known so far is over at ``over_at``.
    """

    def __init__(self, cluster: Injected) -> None:
        self._cluster = cluster
        self.plan = FaultPlan(())
        self.broken = 0
        self.struck: Counter[str] = Counter()
        self.over_at = 0.0

    def arm(self, faults: Sequence[Fault]) -> None:
        """Let these faults strike from now on; their steps and seconds count from now."""
        self.plan = FaultPlan(faults)
        self.over_at = self._cluster.loop.time() + max((seconds for seconds, _ in self.plan.timed()), default=0.0)
        for seconds, fault in self.plan.timed():
            self._cluster.loop.call_later(seconds, self.inject, fault, context=NO_PROCESS)

    def inject(self, fault: Fault) -> None:
        """Inject a fault at once. A dead process is not killed again."""
        cluster, node = self._cluster, self._cluster.nodes[fault.node]
        if cluster.over.done() or not (node.alive or fault.action in OF_DEAD_NODES):
            return
        cluster.note(f"! {fault.action} {' '.join((fault.node, *fault.group))} {fault.other}".rstrip())
        self.struck[fault.action] += 1
        self.over_at = max(self.over_at, cluster.loop.time() + fault.down_s)
        if fault.action in KILLS:
            self._kill(node, fault)
            self._mend(fault, cluster.boot, node)
        elif fault.action in CUTS:
            self._cut(fault)
        elif fault.action == "take-address":
            self._swap(node, cluster.nodes[fault.other], fault)
        elif fault.action in ("kill-engine", "kill-worker", "repeat"):
            self._strike_engine(node, fault)
        else:
            self._hinder(node, fault)

    def _hinder(self, node: SimulatedNode, fault: Fault) -> None:
        """Inject a fault that the node's process survives."""
        cluster = self._cluster
        if fault.action == "slow":
            node.slow_until = cluster.loop.time() + fault.down_s
        elif fault.action == "disk-full":
            node.disk.fill()
            self._mend(fault, node.disk.free)
        elif fault.action == "give-up":
            cluster.give_up(fault.node)
        elif fault.action == "slow-disk":
            node.threads.slow_s, node.threads.slow_until = SLOW_DISK_S, cluster.loop.time() + fault.down_s
        elif fault.action == "skew":
            node.skew(fault.offset_s)
            self._mend(fault, node.skew, -fault.offset_s)
        elif node.process is not None and not node.process.paused:
            cluster.loop.pause(node.process)
            self._mend(fault, cluster.loop.resume, node.process)

    def _strike_engine(self, node: SimulatedNode, fault: Fault) -> None:
        if node.engine is None:
            return
        if fault.action == "kill-engine":
            node.engine.kill_engine_process()
        elif fault.action == "kill-worker":
            node.engine.kill_worker()
        else:
            node.engine.repeat_write()

    def _cut(self, fault: Fault) -> None:
        network = self._cluster.network
        if fault.action == "partition":
            side = (fault.node, *fault.group)
            rest = tuple(name for name in self._cluster.nodes if name not in side)
            network.partition(side, rest)
            self._mend(fault, network.rejoin, side, rest)
        else:
            network.cut(fault.node, fault.other, both=fault.action == "cut")
            self._mend(fault, network.heal, fault.node, fault.other)

    def _swap(self, node: SimulatedNode, other: SimulatedNode, fault: Fault) -> None:
        """Restart both nodes, the other one at once; each gets the address of the other."""
        cluster = self._cluster
        alive = [one for one in (node, other) if one.alive]
        for one in alive:
            cluster.crash(one)
        node.address, other.address = other.address, node.address
        if other in alive:
            self._mend(msgspec.structs.replace(fault, down_s=0.0), cluster.boot, other)
        if node in alive:
            self._mend(fault, cluster.boot, node)

    def _mend(self, fault: Fault, mend: Callable[..., None], *args: Any) -> None:
        self.broken += 1

        def mended() -> None:
            self.broken -= 1
            self._cluster.note(f"mended {fault.action} {fault.node} {fault.other}".rstrip())
            mend(*args)

        self._cluster.loop.call_later(fault.down_s, mended, context=NO_PROCESS)

    def _kill(self, node: SimulatedNode, fault: Fault) -> None:
        engine = node.engine
        engine_process = engine.engine_process if engine is not None and engine.process is node.process else None
        if engine is not None and engine_process is not None and fault.action == "orphan":
            engine_process.stall(fault.down_s + 1.0)
            engine.orphan_s = fault.down_s + 4.0
        self._cluster.crash(node)
        if fault.action not in ("power", "lose-row", "wipe"):
            return
        for process in node.locks.engine_processes:
            process.kill()
        if fault.action == "power":
            lost = node.disk.lose_power(fault.survives)
            self._cluster.note(f"  {node.name} lost {', '.join(lost) or 'nothing'}")
        elif fault.action == "wipe":
            node.wipe()
        elif node.outbox is not None:
            self._cluster.note(f"  {node.name} lost {lose_newest_batch(node.disk.folder / 'outbox.db')}")


def lose_newest_batch(database: Path) -> str:
    """Remove the newest unseen batch from an outbox that no process has open; return its name."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        rows = connection.execute("SELECT stream, batch FROM pending ORDER BY batch DESC LIMIT 2").fetchall()
        if not rows:
            return "nothing"
        stream, batch = rows[0]
        row = connection.execute("SELECT max(last) FROM pending WHERE stream = ? AND batch < ?", (stream, batch)).fetchone()[0]
        if row is None:
            row = connection.execute("SELECT last FROM streams WHERE id = ?", (stream,)).fetchone()[0]
        first, end = (stream << _NUMBER_BITS) + row, (stream + 1) << _NUMBER_BITS
        connection.execute("DELETE FROM frames WHERE id > ? AND id < ?", (first, end))
        connection.execute("DELETE FROM pending WHERE stream = ? AND batch = ?", (stream, batch))
        return f"batch {batch}"
