"""The processes of a node and their memory.

A node has its daemon, and the engine's host, JVM and zygote. The zygote's forks are Spark's Python workers.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import psutil

from sbon.local.node import LocalNode
from tests.live.world import wait_for

Kind = Literal["daemon", "host", "jvm", "zygote", "worker"]

SAMPLE_S = 0.2


def family(node: LocalNode) -> list[tuple[Kind, psutil.Process]]:
    """Every process of the node that is there now."""
    daemon = psutil.Process(node.pid)
    found: list[tuple[Kind, psutil.Process]] = [("daemon", daemon)]
    for process in daemon.children(recursive=True):
        try:
            kind = _kind(process)
            if kind is not None:
                found.append((kind, process))
        except psutil.NoSuchProcess:
            continue
    return found


def _kind(process: psutil.Process) -> Kind | None:
    """A fork bears its zygote's name; a launcher only waits for one."""
    command, parent = " ".join(process.cmdline()), process.parent()
    if "java" in process.name():
        return "jvm"
    if "sbon_node.engine.spark.engine_process" in command:
        return "host"
    if "sbon_node.engine.spark.zygote" in command and parent is not None and "spark.engine_process" in " ".join(parent.cmdline()):
        return "zygote"
    return "worker" if "python" in process.name() and "launch.py" not in command else None


def engine_process(node: LocalNode, which: Kind) -> psutil.Process:
    """The newest of that kind; waits for it to be there."""
    found: list[psutil.Process] = []

    def look() -> bool:
        found[:] = sorted((process for kind, process in family(node) if kind == which), key=lambda one: one.create_time())[-1:]
        return bool(found)

    wait_for(look, f"{node.name} has a {which}")
    return found[0]


class Memory:
    """Resident bytes of the largest process by node and kind: at the beginning, and the most since then."""

    def __init__(self, nodes: Sequence[LocalNode]) -> None:
        self._nodes = tuple(nodes)
        self.first = self._now()
        self.peak = Counter(self.first)

    @contextmanager
    def watched(self) -> Iterator[None]:
        over = threading.Event()

        def watch() -> None:
            while not over.wait(SAMPLE_S):
                self.peak |= self._now()

        thread = threading.Thread(target=watch, name="memory")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def growth(self, kind: Kind) -> dict[str, int]:
        """By node."""
        return {name: self.peak[name, of] - self.first[name, of] for name, of in sorted(self.peak) if of == kind}

    def _now(self) -> Counter[tuple[str, Kind]]:
        held: Counter[tuple[str, Kind]] = Counter()
        for node in self._nodes:
            for kind, process in family(node):
                try:
                    held[node.name, kind] = max(held[node.name, kind], process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
        return held
