"""Parts of a node's data directory: allocated bytes by purpose."""

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from sbon_node.engine.spark.supervisor import ENGINE_MODULE
from sbon_node.planning.process.planner import WORKER as PLANNER_MODULE
from sbon_protocol.api.nodes import DiskKind, DiskPart, ProcessKind, ProcessMemory
from sbon_protocol.api.usage import OutboxBytes

OUTBOX = "outbox.db"
FOLDERS: dict[str, DiskKind] = {
    "operators": "checkpoint",
    "spill": "spill",
    "dead-letters": "dead-letters",
    "sinks": "delivery-positions",
    "scratch": "scratch",
}
"""Kinds of the folders; their entries are operators or components, by name."""
UNNAMED: frozenset[DiskKind] = frozenset({"outbox-wal", "records", "delivery-positions", "scratch"})
"""Kinds that count together."""
_BLOCK_BYTES = 512
"""Unit of ``st_blocks`` on every system."""

_Key = tuple[DiskKind, str]


def disk_usage(data_dir: Path, outbox: OutboxBytes) -> list[DiskPart]:
    """Return the parts of the data directory, the largest first; files may come and go meanwhile. Raises ``OSError``."""
    sizes: Counter[_Key] = Counter()
    for entry in os.scandir(data_dir):
        if entry.name == OUTBOX:
            sizes.update(_outbox_parts(_allocated(entry.path), outbox))
        elif entry.is_dir(follow_symlinks=False) and entry.name in FOLDERS:
            kind = FOLDERS[entry.name]
            for inner in os.scandir(entry.path):
                sizes[_key(kind, inner.name.removesuffix(".ndjson"))] += _tree(inner.path)
        else:
            sizes[_key(_kind_of(entry.name), entry.name)] += _tree(entry.path)
    parts = [DiskPart(kind=kind, name=name, bytes=size) for (kind, name), size in sizes.items() if size]
    return sorted(parts, key=lambda part: (-part.bytes, part.kind, part.name))


def _outbox_parts(size: int, outbox: OutboxBytes) -> dict[_Key, int]:
    """Divide the outbox's file; a stream's bytes are those of its frames."""
    parts: dict[_Key, int] = {("stream", name): retained for name, retained in outbox.streams.items()}
    parts["outbox-free", ""] = outbox.free_bytes
    parts["outbox-overhead", ""] = max(0, size - sum(parts.values()))
    return parts


def _kind_of(name: str) -> DiskKind:
    if name.startswith(OUTBOX):
        return "outbox-wal"
    if name.startswith("node.db"):
        return "records"
    return "log" if ".log" in name else "other"


def _key(kind: DiskKind, name: str) -> _Key:
    return (kind, "" if kind in UNNAMED else name)


def _tree(path: str) -> int:
    """Return the allocated bytes of a file, or of a folder with all below it."""
    total = _allocated(path)
    if os.path.isdir(path) and not os.path.islink(path):
        for parent, folders, files in os.walk(path):
            total += sum(_allocated(os.path.join(parent, name)) for name in (*folders, *files))
    return total


def _allocated(path: str) -> int:
    with suppress(OSError):  # It may disappear at any moment.
        return os.lstat(path).st_blocks * _BLOCK_BYTES
    return 0


# -- Memory of this process and its descendants, each with its kind ---------------------------------------------------

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
        parent = process.parent() if not top else None
        kind = "daemon" if top else kind_of(process.cmdline(), parent.cmdline() if parent is not None else ())
        try:
            memory = process.memory_full_info()
            proportional = getattr(memory, "pss", None)
        except psutil.AccessDenied:
            memory, proportional = process.memory_info(), None
        return ProcessMemory(
            kind=kind, pid=process.pid, resident_bytes=memory.rss, proportional_bytes=proportional, threads=process.num_threads()
        )
    except psutil.NoSuchProcess:
        return None


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
