"""The JVM's class archive (AppCDS): made once for a user, a Java and a Spark, it halves every later start.

``python -m sbon_node.engine.spark.archive`` makes it; the installation does so.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from sbon_node.engine.java import Java, find_java
from sbon_node.engine.settings import EngineSettings


def archive_path(settings: EngineSettings, java: Java) -> Path | None:
    """Where the class archive of this Java, Spark and heap layout belongs; None where it is switched off."""
    if settings.archive == "-":
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sbon"
    return Path(settings.archive or cache) / f"spark-{pyspark.__version__}-java-{java.version}-{settings.jit}.jsa"


def make_archive(settings: EngineSettings) -> Path | None:
    """Makes the archive unless there is one: a process of its own starts a JVM, runs what operators run, and ends it.

    Whoever comes second waits for the first; the file appears whole, by renaming. Returns its path, or None where there is none.
    """
    archive = archive_path(settings, find_java())
    if archive is None or archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (archive.parent / f"{archive.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return archive
        scratch = archive.with_suffix(f".{os.getpid()}.tmp")
        train = [sys.executable, "-m", "sbon_node.engine.spark.warmup", str(scratch), settings.jit, str(settings.heap_mb)]
        subprocess.run(train, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if scratch.exists():
            scratch.rename(archive)
    return archive if archive.exists() else None


if __name__ == "__main__":
    print(make_archive(EngineSettings()))
