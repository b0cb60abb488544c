"""Memory of this process and its descendants, each with its kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psutil

from sbon_node.engine.spark.supervisor import ENGINE_MODULE
from sbon_node.operations.resource_types import ProcessKind, ProcessMemory
from sbon_node.planner.process import WORKER as PLANNER_MODULE

ZYGOTE_MODULE = "sbon_node.engine.spark.zygote"
MAX_PROCESSES = 1000
"""Processes in one account."""


def process_memory(pid: int) -> list[ProcessMemory]:
    """Return the memory of the process and its descendants, the largest first; skip those that end meanwhile."""
    top = psutil.Process(pid)
    found = [_memory_of(process, top=process.pid == pid) for process in (top, *top.children(recursive=True))[:MAX_PROCESSES]]
    return sorted(filter(None, found), key=lambda process: (-process.resident_bytes, process.pid))


def _memory_of(process: psutil.Process, *, top: bool) -> ProcessMemory | None:
    try:
        kind = "daemon" if top else kind_of(process.cmdline(), _parent_command(process))
        try:
            memory = process.memory_full_info()
            proportional = getattr(memory, "pss", None)
        except psutil.AccessDenied:
            memory, proportional = process.memory_info(), None
        return ProcessMemory(
            kind=kind,
            pid=process.pid,
            resident_bytes=memory.rss,
            proportional_bytes=proportional,
            threads=process.num_threads(),
        )
    except psutil.NoSuchProcess:
        return None


def _parent_command(process: psutil.Process) -> Sequence[str]:
    parent = process.parent()
    return parent.cmdline() if parent is not None else ()


def kind_of(command: Sequence[str], parent_command: Sequence[str]) -> ProcessKind:
    """Return the kind of a descendant of the node. A fork of the zygote has its command line."""
    if command and Path(command[0]).name == "java":
        return "jvm"
    if PLANNER_MODULE in command:
        return "planner"
    if ENGINE_MODULE in command:
        return "engine"
    if ZYGOTE_MODULE in command and ZYGOTE_MODULE not in parent_command:
        return "zygote"
    return "python"
