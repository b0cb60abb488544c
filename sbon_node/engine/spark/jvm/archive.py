"""The JVM's class archive (AppCDS), created once per user, Java and Spark: it halves every later start.

``python -m sbon_node.engine.spark.jvm.archive`` creates it; the installation does so.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from sbon_node.base.disk import named_errors
from sbon_node.engine.java import Java, find_java
from sbon_node.engine.settings import NO_ARCHIVE, EngineSettings
from sbon_protocol.errors import SbonError

KEPT = 4
"""Archives kept in a folder, the newest; each is some 160 MB."""

TRAINED_ON = "filters, groups, pairs"
"""The queries that ran while classes were collected; an archive of fewer is created again."""


@cache
def class_path() -> str:
    """Return the class path of Spark's own jars, without importing Spark."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SbonError("spark-missing", "the package pyspark is not installed", hint="install sbon with all it needs")
    return str(Path(spec.origin).parent / "jars" / "*")


def archive_path(settings: EngineSettings, java: Java) -> Path | None:
    """Return the path of the archive for exactly this Java, Spark and class path; None if it is disabled.

    The JVM accepts no other archive.
    """
    if settings.archive == NO_ARCHIVE:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sbon"
    spark = version("pyspark")
    exactly = "\n".join((java.build, java.path, spark, class_path(), TRAINED_ON))
    key = hashlib.sha256(exactly.encode()).hexdigest()[:12]
    name = f"spark-{spark}-java-{java.version}-{key}.jsa"
    return Path(settings.archive or cache).absolute() / name


def make_archive(settings: EngineSettings) -> Path | None:
    """Create the archive unless it exists; return its path, or None if it is disabled.

    A separate process starts a JVM, runs operators' kinds of queries, and ends it. A second caller waits for the first; the
    file appears whole, by renaming. Raises :class:`SbonError` ``archive-failed``, ``disk-full``, ``disk-error``.
    """
    archive = archive_path(settings, find_java())
    if archive is None or archive.exists():
        return archive
    with named_errors(archive.parent), _lock_file(archive.parent).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process, which creates the class archive in {archive.parent}", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _train(archive, settings)
            _prune(archive.parent)
    return archive


def _lock_file(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "archives.lock"


def _train(archive: Path, settings: EngineSettings) -> None:
    scratch = archive.with_suffix(".tmp")
    command = [sys.executable, "-m", "sbon_node.engine.spark.jvm.warmup", str(scratch), str(settings.heap_mb)]
    try:
        with tempfile.TemporaryDirectory(prefix="sbon-archive-") as folder:  # For Spark's working files.
            done = subprocess.run(command, cwd=folder, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode or not scratch.exists():
            reason = done.stderr.strip().splitlines()[-1:] or ["the JVM wrote none"]
            raise SbonError("archive-failed", f"code {done.returncode}: {reason[0]}", where=str(archive))
        with scratch.open("rb") as file:
            os.fsync(file.fileno())
        scratch.rename(archive)
    finally:
        scratch.unlink(missing_ok=True)


def _prune(folder: Path) -> None:
    newest_first = sorted(folder.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in newest_first[KEPT:]:
        old.unlink(missing_ok=True)


if __name__ == "__main__":
    print(make_archive(EngineSettings()))
