"""Cost of a family of processes: CPU time, and memory with shared pages counted once."""

from collections.abc import Iterable

import psutil


def family(pid: int) -> list[psutil.Process]:
    top = psutil.Process(pid)
    return [top, *top.children(recursive=True)]


def cpu_s(processes: list[psutil.Process]) -> dict[int, float]:
    """Return each process's CPU seconds so far, by id; without processes that have ended meanwhile."""
    seconds: dict[int, float] = {}
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds[process.pid] = times.user + times.system
    return seconds


def total_cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU seconds so far of these processes' families, with those of processes that ended in them."""
    total = 0.0
    for pid in pids:
        for process in family(pid):
            try:
                total += sum(process.cpu_times()[:4])  # own and ended children's, as user and as system
            except psutil.NoSuchProcess:
                continue
    return total


def cpu_since(before: dict[int, float], now: dict[int, float]) -> float:
    """Return the CPU seconds between two readings."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in now.items())


def memory_mb(processes: list[psutil.Process]) -> float:
    """Return the proportional set size where the system has it, else the resident size, in megabytes."""
    total = 0
    for process in processes:
        try:
            full = process.memory_full_info()
            total += getattr(full, "pss", 0) or full.rss
        except psutil.AccessDenied:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 2**20
