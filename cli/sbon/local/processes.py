"""Search and end of processes that a local cluster leaves behind: nodes, engine processes, JVMs and Python workers.

Each process of a cluster inherits ``SBON_CLUSTER_MARK`` in its environment. A process without the mark is recognised as a
descendant, or by the data directory on its command line.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

MARK = "SBON_CLUSTER_MARK"


def processes_of(mark: str, folder: Path) -> list[psutil.Process]:
    """Return every living process of the cluster, except the caller and its parents."""
    own = {os.getpid(), *(p.pid for p in psutil.Process().parents())}
    by_pid: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        if process.pid not in own and _belongs(process, mark, folder):
            by_pid[process.pid] = process
            for child in _children(process):
                by_pid.setdefault(child.pid, child)
    return [process for pid, process in by_pid.items() if pid not in own]


def end_all(mark: str, folder: Path, *, grace_s: float = 0.0, wait_s: float = 10.0) -> int:
    """Kill the remaining processes of the cluster, and those that they start meanwhile; return the number of killed ones.

    Those that end by themselves within ``grace_s`` are not killed.
    """
    deadline = time.monotonic() + grace_s
    while (left := processes_of(mark, folder)) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=deadline - time.monotonic())
    ended: set[int] = set()
    for _ in range(5):
        left = processes_of(mark, folder)
        if not left:
            break
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
            ended.add(process.pid)
        psutil.wait_procs(left, timeout=wait_s)
    return len(ended)


def _belongs(process: psutil.Process, mark: str, folder: Path) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        if process.environ().get(MARK) == mark:
            return True
        return any(argument == str(folder) or f"{folder}{os.sep}" in argument for argument in process.cmdline()[1:]) and (
            "python" in process.name() or "java" in process.name()
        )
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []
