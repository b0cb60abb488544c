"""Answers for the keeper of a node: a debug dump, and an account of its memory and disk."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class DebugDump(msgspec.Struct, frozen=True, kw_only=True):
    """A debug dump without secrets.

    ``log`` holds the last lines of the node's log, ``engine_log`` the end of the engine's.
    """

    versions: dict[str, str]
    config: dict[str, Any]
    tasks: tuple[str, ...]
    threads: tuple[str, ...]
    log: tuple[str, ...]
    engine_log: tuple[str, ...]


ProcessKind = Literal["daemon", "planner", "engine", "jvm", "zygote", "python"]
"""The node itself, its planner, its engine process with the JVM and the fork server, and Spark's Python processes."""


DiskKind = Literal[
    "stream",
    "outbox-overhead",
    "outbox-free",
    "outbox-wal",
    "records",
    "checkpoint",
    "spill",
    "dead-letters",
    "delivery-positions",
    "scratch",
    "log",
    "other",
]


class ProcessMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one process in bytes.

    ``proportional_bytes`` counts a page shared by n processes as an n-th; None where the system does not report it.
    """

    kind: ProcessKind
    pid: int
    resident_bytes: int
    proportional_bytes: int | None
    threads: int


class DiskPart(msgspec.Struct, frozen=True, kw_only=True):
    """Allocated bytes on disk for one purpose; ``name`` is the stream, operator, component or file, if there are several."""

    kind: DiskKind
    name: str
    bytes: int


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a node's processes, and parts of its data directory, the largest first. The parts add up to the directory."""

    processes: tuple[ProcessMemory, ...]
    disk: tuple[DiskPart, ...]
