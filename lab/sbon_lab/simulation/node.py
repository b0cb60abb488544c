"""One simulated node over all its lives: its lasting state, and the daemon of its present life."""

import asyncio
from pathlib import Path
from typing import Any

from sbon_lab.simulation.engine.engine import CheckpointLocks, SimulatedEngine
from sbon_lab.simulation.faults.disk import SimulatedDisk
from sbon_lab.simulation.process import Process
from sbon_lab.simulation.threads import SimulatedThreads
from sbon_node.net.transport import Address
from sbon_node.node import Node
from sbon_node.streams.links.link import Link
from sbon_node.streams.outbox.outbox import Outbox

CHECKPOINTS = "operators"
"""Name of the folder for checkpoints, within a node's data directory."""


class SimulatedNode:
    """``outbox`` and ``engine`` belong to its last life; its users follow queries slowly until ``slow_until``.

    Its wall clock is ``offset_s`` ahead of the true time; its machine has ``load_per_core``.
    """

    def __init__(self, name: str, address: Address, root: Path, threads: SimulatedThreads) -> None:
        self.name = name
        self.address = address
        self.disk = SimulatedDisk(root / name, shared=(CHECKPOINTS,))
        self.threads = self.disk.threads = threads
        self.locks = CheckpointLocks()
        self.lives = 0
        self.process: Process | None = None
        self.task: asyncio.Task[Any] | None = None
        self.outbox: Outbox | None = None
        self.engine: SimulatedEngine | None = None
        self.created: Node | None = None
        """The daemon, which answers calls already while it joins; ``node`` only once it has started."""
        self.node: Node | None = None
        self.slow_until = 0.0
        self.offset_s = 0.0
        self.load_per_core = 0.0
        self.wiped = False

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def ready(self) -> bool:
        """Whether its daemon has started and lives."""
        return self.alive and self.node is not None

    @property
    def daemon(self) -> Node:
        """Return the daemon; raise ``AssertionError`` while the node is down."""
        assert self.alive, f"{self.name} is down"
        assert self.node is not None, f"{self.name} is not up yet"
        return self.node

    def wipe(self) -> None:
        """Empty the disk of a dead node, which starts in place of itself from then on (``--replace``)."""
        self.disk.wipe()
        self.wiped = True

    def skew(self, seconds: float) -> None:
        """Set the wall clock forward."""
        self.offset_s += seconds

    def checkpoint(self, operator: str) -> Path:
        return self.disk.folder / CHECKPOINTS / operator

    def operators(self) -> list[str]:
        """Return the operators that have a checkpoint here."""
        return sorted(path.name for path in (self.disk.folder / CHECKPOINTS).iterdir())

    def links(self) -> list[Link]:
        """Return all links that bring streams to this node."""
        if self.node is None or not self.alive:
            return []
        return [*self.node.hosting.operators.links(), *self.node.hosting.sinks.open.links()]
