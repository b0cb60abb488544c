"""Limits of Linux control groups on this process: of a container, a pod or a systemd unit, in both versions of cgroups.

Every ancestor's limit holds, too, so the least one counts. In a container the groups' own folders may be its root.
"""

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def memory_limit(root: Path = ROOT, own: Path = OWN) -> float:
    """Return the least limit of memory in bytes; infinite without one."""
    limits = [math.inf]
    for folder in _folders(root, own, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limits += _numbers(folder / name)[:1]
    return min(limits)


def core_limit(root: Path = ROOT, own: Path = OWN) -> float:
    """Return the least limit of processor time in cores; infinite without one."""
    limits = [math.inf]
    for folder in _folders(root, own, "cpu"):
        quota = _numbers(folder / "cpu.max") or _numbers(folder / "cpu.cfs_quota_us") + _numbers(folder / "cpu.cfs_period_us")
        limits += [quota[0] / quota[1]] if len(quota) == 2 and quota[0] > 0 and quota[1] > 0 else []
    return min(limits)


def cores() -> float:
    """Return the cores that this process may use: of the machine, its set of processors, or its groups' limit."""
    return min(float(len(os.sched_getaffinity(0))), core_limit())


def _folders(root: Path, own: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's groups for the controller, and of their ancestors."""
    try:
        groups = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in (group for group in groups if len(group) == 3):
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / controllers if controllers else root
        mount = mount if mount.is_dir() else root / controller
        group = Path(path.lstrip("/"))
        for part in (group, *group.parents):
            yield mount / part


def _numbers(path: Path) -> list[float]:
    """Return the numbers in a file; none if there is no such file, or it says that there is no limit."""
    with suppress(OSError, ValueError):
        return [float(word) for word in path.read_text().split()]
    return []
