"""Checks of a machine: Java, byte-code, the JVM's class archive, the disk, file descriptors.

A running node runs them in a thread; ``sbon doctor`` runs them itself if no node runs.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import time
from contextlib import suppress
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from sbon_node.config.config import Config
from sbon_node.engine.java import NEWER, Java, find_java
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.jvm.archive import archive_path
from sbon_node.operations.examination import CheckResult, failed, ok, warning
from sbon_node.operations.readiness import MIN_FREE_BYTES, MIN_FREE_INODES
from sbon_protocol.errors import SbonError

ENOUGH_BYTES = 5 * 1024**3
"""Room for streams, checkpoints and logs; less causes a warning."""
ENOUGH_INODES = 100_000
SLOW_SYNC_MS = 50.0
SYNCS = 10
IMPORTED = ("pyspark", "pyspark/sql", "pyspark/sql/streaming", "pyspark/sql/worker", "pyarrow", "sbon_node/engine/spark")
"""Folders of the packages that every Python worker of Spark imports."""
OTHER_FILES = 256
"""Descriptors beside connections: files of the outbox, logs, the engine."""


def examine_machine(config: Config) -> list[CheckResult]:
    """Examine the machine; blocks for some seconds, because it starts a JVM for its version and syncs files."""
    data_dir = Path(config.node.data_dir)
    return [*_java(config.engine), _byte_code(), *_disk(data_dir, fsync=config.streams.fsync), _descriptors(config)]


def _java(settings: EngineSettings) -> list[CheckResult]:
    try:
        java = find_java()
    except SbonError as error:
        return [failed("java", f"{error.message} ({error.where})", error.hint)]
    newer = "; the packaged one or a newer one, which Spark runs on with some modules left out" if java.version >= NEWER else ""
    return [
        ok("java", f"version {java.version} ({java.build.strip()}) at {java.path}, by {java.origin}{newer}"),
        _archive(settings, java),
    ]


def _archive(settings: EngineSettings, java: Java) -> CheckResult:
    path = archive_path(settings, java)
    if path is None:
        return ok("class-archive", "switched off by engine.archive")
    if path.exists():
        return ok("class-archive", f"{path}")
    remedy = f"make it once: {Path(sys.executable).name} -m sbon_node.engine.spark.jvm.archive (as the node's user)"
    return warning("class-archive", f"there is none at {path}: every start of the engine takes twice as long", remedy)


def _byte_code() -> CheckResult:
    missing: set[str] = set()
    for folder in IMPORTED:
        package, _, below = folder.partition("/")
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            return failed(
                "byte-code", f"the package {package} is not installed", "install sbon with all it needs: make .venv/installed"
            )
        sources = list((Path(spec.origin).parent / below).glob("*.py"))
        if any(not Path(cache_from_source(str(source))).exists() for source in sources):
            missing.add(str(Path(spec.origin).parent))
    if missing:
        remedy = f"{sys.executable} -m compileall -q {' '.join(sorted(missing))}"
        return warning("byte-code", "not all is compiled: every Python worker of Spark starts a second later", remedy)
    return ok("byte-code", "compiled, of all that Spark's Python workers import")


def _disk(data_dir: Path, *, fsync: bool) -> list[CheckResult]:
    """Check the disk of the data directory, or of its nearest existing parent before the first start."""
    folder = data_dir
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    system = os.statvfs(folder)
    free, inodes = system.f_bavail * system.f_frsize, system.f_favail
    room = f"{free / 1e9:.1f} GB free on the disk of {data_dir}"
    remedy = "free some, or move the data directory: node.data_dir"
    results = [
        failed("disk", room, remedy)
        if free < MIN_FREE_BYTES
        else warning("disk", room, remedy)
        if free < ENOUGH_BYTES
        else ok("disk", room)
    ]
    # Some file systems create inodes on demand, and report none.
    if system.f_files:
        left = f"{inodes:,} inodes free"
        remedy = "delete small files that you do not need: find DIR -xdev -type f | cut -d/ -f2-4 | sort | uniq -c"
        results.append(
            failed("inodes", left, remedy)
            if inodes < MIN_FREE_INODES
            else warning("inodes", left, remedy)
            if inodes < ENOUGH_INODES
            else ok("inodes", left)
        )
    results.append(_sync(folder, fsync=fsync))
    return results


def _sync(folder: Path, *, fsync: bool) -> CheckResult:
    """Measure how long a small write takes to reach the disk."""
    name = folder / f".sbon-doctor-{os.getpid()}"
    took_ms = []
    try:
        with name.open("wb", buffering=0) as file:
            for _ in range(SYNCS):
                file.write(b"x" * 4096)
                began = time.monotonic()
                os.fsync(file.fileno())
                took_ms.append((time.monotonic() - began) * 1000)
    except OSError as error:
        return failed(
            "fsync", f"cannot write to {folder}: {error.strerror}", "give the node's user a data directory it may write to"
        )
    finally:
        with suppress(OSError):
            name.unlink(missing_ok=True)
    middle = statistics.median(took_ms)
    message = f"a synced write takes {middle:.1f} ms (streams.fsync is {'on' if fsync else 'off'})"
    if fsync and middle > SLOW_SYNC_MS:
        return warning("fsync", message, "a faster disk for the data directory, or streams.fsync = false where power is not lost")
    return ok("fsync", message)


def _descriptors(config: Config) -> CheckResult:
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Connections are accepted and made: the limit applies to each direction.
    needed = 2 * config.net.max_connections + config.api.max_connections + OTHER_FILES
    message = f"{limit:,} files may be open, at most {needed:,} are needed"
    if limit != resource.RLIM_INFINITY and limit < needed:
        remedy = f"ulimit -n {needed} (hard limit {hard:,}), LimitNOFILE={needed} in the unit, or lower net.max_connections"
        return warning("descriptors", message, remedy)
    return ok("descriptors", message)
