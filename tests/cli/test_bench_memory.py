"""Rows of ``sbon bench memory``."""

from __future__ import annotations

from sbon_lab.commands.bench_memory import row_of
from sbon_protocol.api.nodes import ProcessKind, ProcessMemory, Resources

MIB = 2**20


def process(kind: ProcessKind, proportional_mb: float | None, resident_mb: int, threads: int = 1) -> ProcessMemory:
    proportional = None if proportional_mb is None else int(proportional_mb * MIB)
    return ProcessMemory(kind=kind, pid=1, resident_bytes=resident_mb * MIB, proportional_bytes=proportional, threads=threads)


def test_a_row_adds_up_processes_by_kind() -> None:
    processes = (process("jvm", 400, 500, 90), process("daemon", None, 70), process("zygote", 9.5, 80), process("python", 17, 60))
    row = row_of("one operator", 1, Resources(processes=processes, disk=()))
    assert row == {
        "state": "one operator",
        "operators": 1,
        "all_mb": 496.5,
        "daemon_mb": 70.0,
        "planner_mb": 0.0,
        "engine_mb": 0.0,
        "jvm_mb": 400.0,
        "python_mb": 26.5,
        "processes": 4,
        "threads": 93,
    }
