"""Injection and repair of faults in a cluster."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from sbon_node.simulation.faults.plan import Fault, FaultPlan
from sbon_node.simulation.network.network import SimulatedNetwork
from sbon_node.simulation.node import SimulatedNode

KILLS = ("kill", "orphan", "power", "lose-row")
CUTS = ("cut", "cut-one-way")
_NUMBER_BITS = 40


class Injected(Protocol):
    """The part of a cluster that the fault injector uses."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def nodes(self) -> Mapping[str, SimulatedNode]: ...

    @property
    def network(self) -> SimulatedNetwork: ...

    @property
    def over(self) -> asyncio.Future[str]: ...

    def boot(self, node: SimulatedNode) -> None: ...

    def crash(self, node: SimulatedNode) -> None: ...

    def give_up(self, name: str) -> None: ...

    def note(self, line: str) -> None: ...


class FaultInjector:
    """The faults of one cluster, from ``plan`` or from :meth:`inject`. ``broken`` counts those that are not repaired."""

    def __init__(self, cluster: Injected) -> None:
        self._cluster = cluster
        self.plan = FaultPlan(())
        self.broken = 0

    def arm(self, faults: Sequence[Fault]) -> None:
        """Let these faults strike from now on; their steps and seconds count from now."""
        self.plan = FaultPlan(faults)
        for seconds, fault in self.plan.timed():
            self._cluster.loop.call_later(seconds, self.inject, fault)

    def inject(self, fault: Fault) -> None:
        """Inject a fault at once. A dead process is not killed again."""
        cluster, node = self._cluster, self._cluster.nodes[fault.node]
        if cluster.over.done() or not (node.alive or fault.action in CUTS):
            return
        cluster.note(f"! {fault.action} {fault.node} {fault.other}".rstrip())
        if fault.action in KILLS:
            self._kill(node, fault)
            self._mend(fault, cluster.boot, node)
        elif fault.action in CUTS:
            cluster.network.cut(fault.node, fault.other, both=fault.action == "cut")
            self._mend(fault, cluster.network.heal, fault.node, fault.other)
        elif fault.action == "slow":
            node.slow_until = cluster.loop.time() + fault.down_s
        elif fault.action == "disk-full":
            node.disk.fill()
            self._mend(fault, node.disk.free)
        elif fault.action == "give-up":
            cluster.give_up(fault.node)
        elif node.engine is not None:
            fault_injector = {
                "kill-engine": node.engine.kill_engine_process,
                "kill-worker": node.engine.kill_worker,
                "repeat": node.engine.repeat_write,
            }
            fault_injector[fault.action]()

    def _mend(self, fault: Fault, mend: Callable[..., None], *args: Any) -> None:
        self.broken += 1

        def mended() -> None:
            self.broken -= 1
            self._cluster.note(f"mended {fault.action} {fault.node} {fault.other}".rstrip())
            mend(*args)

        self._cluster.loop.call_later(fault.down_s, mended)

    def _kill(self, node: SimulatedNode, fault: Fault) -> None:
        engine = node.engine
        engine_process = engine.engine_process if engine is not None and engine.process is node.process else None
        if engine is not None and engine_process is not None and fault.action == "orphan":
            engine_process.stall(fault.down_s + 1.0)
            engine.orphan_s = fault.down_s + 4.0
        self._cluster.crash(node)
        if fault.action not in ("power", "lose-row"):
            return
        for process in node.locks.engine_processes:
            process.kill()
        if fault.action == "power":
            lost = node.disk.lose_power(fault.survives)
            self._cluster.note(f"  {node.name} lost {', '.join(lost) or 'nothing'}")
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
