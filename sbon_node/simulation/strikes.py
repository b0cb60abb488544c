"""Faults, as they strike a cluster and are mended."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from sbon_node.engine.checkpoint import BatchLog
from sbon_node.simulation.faults import Fault, FaultPlan
from sbon_node.simulation.network import SimulatedNetwork
from sbon_node.simulation.node import SimulatedNode

KILLS = ("kill", "orphan", "power", "lose-row")
CUTS = ("cut", "cut-one-way")
_NUMBER_BITS = 40


class Struck(Protocol):
    """A cluster, as far as faults go."""

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


class Strikes:
    """What befalls one cluster: as ``plan`` has it, or as :meth:`strike` is told. ``broken`` counts what is not mended."""

    def __init__(self, cluster: Struck) -> None:
        self._cluster = cluster
        self.plan = FaultPlan(())
        self.broken = 0

    def arm(self, faults: Sequence[Fault]) -> None:
        """From now on these may strike; steps and seconds are counted from now."""
        self.plan = FaultPlan(faults)
        for seconds, fault in self.plan.timed():
            self._cluster.loop.call_later(seconds, self.strike, fault)

    def strike(self, fault: Fault) -> None:
        """At once. The dead are not killed again."""
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
            strikes = {
                "kill-engine": node.engine.kill_host,
                "kill-worker": node.engine.kill_worker,
                "repeat": node.engine.repeat_write,
            }
            strikes[fault.action]()

    def _mend(self, fault: Fault, mend: Callable[..., None], *args: Any) -> None:
        self.broken += 1

        def mended() -> None:
            self.broken -= 1
            self._cluster.note(f"mended {fault.action} {fault.node} {fault.other}".rstrip())
            mend(*args)

        self._cluster.loop.call_later(fault.down_s, mended)

    def _kill(self, node: SimulatedNode, fault: Fault) -> None:
        engine, outbox = node.engine, node.outbox
        host = engine.host if engine is not None and engine.process is node.process else None
        if engine is not None and host is not None and fault.action == "orphan":
            host.stall(fault.down_s + 1.0)
            engine.orphan_s = fault.down_s + 4.0
        self._cluster.crash(node)
        if fault.action not in ("power", "lose-row"):
            return
        if engine is not None and engine.host is not None:
            engine.host.process.kill()
        if outbox is not None and fault.action == "lose-row":
            self._cluster.note(f"  {node.name} lost {lose_newest_batch(node.disk.folder / 'outbox.db')}")
        for operator in node.operators() if outbox is not None and fault.action == "power" else ():
            assert outbox is not None
            visible = outbox.visible_batch(operator) if operator in outbox.streams() else -1
            self._cluster.note(f"  {node.name} lost {tear_newest(node.checkpoint(operator), visible)}")


# -- what is lost with the power ---------------------------------------------------------------------------------------


def tear_newest(checkpoint: Path, visible_batch: int) -> str:
    """Empties the newest commit, unless what it says was relied on already, else the newest plan; says which."""
    log = BatchLog(checkpoint)
    offsets, commits = log.offsets(), log.commits()
    committed = commits[-1] if commits else -1
    if committed > visible_batch:
        torn = checkpoint / "commits" / str(committed)
    elif offsets and offsets[-1] > committed:
        torn = checkpoint / "offsets" / str(offsets[-1])
    else:
        return "nothing"
    torn.write_bytes(b"")
    return f"{torn.parent.name}/{torn.name}"


def lose_newest_batch(database: Path) -> str:
    """Takes the newest batch that nobody has seen out of an outbox that no process has open; says which."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        found = connection.execute("SELECT stream, batch FROM pending ORDER BY batch DESC LIMIT 2").fetchall()
        if not found:
            return "nothing"
        stream, batch = found[0]
        kept = connection.execute("SELECT max(last) FROM pending WHERE stream = ? AND batch < ?", (stream, batch)).fetchone()[0]
        if kept is None:
            kept = connection.execute("SELECT last FROM streams WHERE id = ?", (stream,)).fetchone()[0]
        first, end = (stream << _NUMBER_BITS) + kept, (stream + 1) << _NUMBER_BITS
        connection.execute("DELETE FROM frames WHERE id > ? AND id < ?", (first, end))
        connection.execute("DELETE FROM pending WHERE stream = ? AND batch = ?", (stream, batch))
        return f"batch {batch}"
