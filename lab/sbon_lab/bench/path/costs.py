"""Costs of a run: CPU seconds by kind of process, memory and disk at their peaks, sampled while it runs."""

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import psutil

from sbon_lab.bench import footprint
from sbon_node.engine.spark.supervisor import ENGINE_MODULE

Kind = Literal["daemon", "host", "jvm", "python"]
KINDS: tuple[Kind, ...] = ("daemon", "host", "jvm", "python")
EVERY_S, MEMORY_EVERY = 0.25, 8
"""Seconds between two samples, and after how many samples memory is sampled, which costs more."""


def kind_of(command: Sequence[str], *, top: bool) -> Kind:
    """Return what a process is: a family's first process is its daemon, and Python's other processes work for Spark."""
    if top:
        return "daemon"
    if command and Path(command[0]).name == "java":
        return "jvm"
    return "host" if ENGINE_MODULE in command else "python"


class Costs:
    """Measures families of processes within its block: those of ``pids`` and of all their descendants.

    A process that ends between two samples counts as in its last sample.
    """

    def __init__(self, pids: Sequence[int], folders: Sequence[Path]) -> None:
        self.memory_mb = 0.0
        self.disk_mb = 0.0
        self._pids, self._folders = pids, folders
        self._kinds: dict[int, Kind] = {}
        self._before: dict[int, float] = {}
        self._now: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample_on, name="costs", daemon=True)

    def __enter__(self) -> Self:
        self._before = footprint.cpu_s(self._processes())
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self._sample(memory=True)

    @property
    def cpu_s(self) -> Mapping[Kind, float]:
        """Return the CPU seconds within the block by kind of process."""
        seconds: Counter[Kind] = Counter(dict.fromkeys(KINDS, 0))
        by_kind: dict[Kind, float] = dict(seconds)
        for pid, now in self._now.items():
            by_kind[self._kinds[pid]] += now - self._before.get(pid, 0.0)
        return by_kind

    def _processes(self) -> list[psutil.Process]:
        processes = []
        for pid in self._pids:
            try:
                processes += footprint.family(pid)
            except psutil.NoSuchProcess:
                continue
        for process in processes:
            if self._kinds.get(process.pid, "python") == "python":  # a process just forked has its parent's command
                try:
                    self._kinds[process.pid] = kind_of(process.cmdline(), top=process.pid in self._pids)
                except psutil.Error:
                    self._kinds.setdefault(process.pid, "python")
        return processes

    def _sample_on(self) -> None:
        number = 0
        while not self._ended.wait(EVERY_S):
            self._sample(memory=number % MEMORY_EVERY == 0)
            number += 1

    def _sample(self, *, memory: bool) -> None:
        processes = self._processes()
        self._now |= footprint.cpu_s(processes)
        self.disk_mb = max(self.disk_mb, sum(map(size_mb, self._folders)))
        if memory:
            self.memory_mb = max(self.memory_mb, footprint.memory_mb(processes))


def size_mb(folder: Path) -> float:
    """Return the megabytes of the files in a folder and below; files may vanish meanwhile."""
    total = 0
    for parent, _, names in os.walk(folder):  # unlike rglob, walk skips folders that vanish
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total / 2**20
