"""The machine's resources for operators: cores, memory, bandwidth, load."""

import bz2
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import NamedTuple

import psutil

from sbon_node.base.cgroups import cores, memory_limit
from sbon_node.base.clock import Clock
from sbon_node.context import ControlSettings
from sbon_node.engine.interface import EngineCapacity
from sbon_node.model.servers import LEAST_SPEED, MOST_SPEED
from sbon_node.overlay.membership.service import Membership
from sbon_node.overlay.space.local import LocalCoordinate

MB = 1024 * 1024
LOAD_EVERY_S = 5.0
"""Linux updates its load average at this interval."""


class ProcessUsage(NamedTuple):
    """Processor time since the start and resident memory of a process and its live descendants."""

    cpu_s: float
    memory_bytes: int


def no_load() -> None:
    """Emulate no load."""


class Machine:
    """Configured values, or else those that the operating system reports; an ``emulated_load`` takes the place of its own."""

    counts_usage = True
    """Whether :meth:`usage` returns useful values."""

    def __init__(self, settings: ControlSettings, emulated_load: Callable[[], float | None] = no_load) -> None:
        self._settings, self._emulated_load = settings, emulated_load
        self._machine_cores = os.cpu_count() or 1

    def capacity(self, max_operators: int) -> EngineCapacity:
        """Return what operators may take: of the machine, or of the container that this process is in."""
        settings = self._settings
        return EngineCapacity(
            cores=settings.cores or cores(),
            memory_mb=settings.memory_mb or min(psutil.virtual_memory().total, memory_limit()) / MB * 0.75,
            bandwidth_bytes_s=settings.bandwidth_bytes_s,
            operators=max_operators,
            speed=self.speed(),
        )

    def speed(self) -> float:
        """Return the speed of a core, relative to the reference processor."""
        return self._settings.speed or processor_speed()

    def load(self) -> float:
        """Return the load average of the last minute per core: runnable processes for each core."""
        emulated = self._emulated_load()
        return os.getloadavg()[0] / self._machine_cores if emulated is None else emulated

    def usage(self, engine: int | None) -> tuple[ProcessUsage, ProcessUsage | None]:
        """Return the usage of this process with its helpers, and of the engine, a descendant with the process id ``engine``."""
        own = psutil.Process()
        engines = _family(engine) if engine is not None else []
        apart = {process.pid for process in engines}
        rest = [process for process in (own, *own.children(recursive=True)) if process.pid not in apart]
        return _usage(rest), _usage(engines) if engines else None


async def watch_load(machine: Machine, space: LocalCoordinate, membership: Membership, clock: Clock) -> None:
    """Keep the load in this node's coordinate up to date."""
    while True:
        space.observe_load(machine.load(), clock.now())
        membership.publish_coordinate()
        await clock.sleep(LOAD_EVERY_S)


def _family(number: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(number)
        return [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return []


def _usage(processes: list[psutil.Process]) -> ProcessUsage:
    """Sum the usage; skip processes that end meanwhile."""
    cpu_s, memory = 0.0, 0
    for process in processes:
        with suppress(psutil.Error):
            times = process.cpu_times()
            cpu_s, memory = cpu_s + times.user + times.system, memory + process.memory_info().rss
    return ProcessUsage(cpu_s, memory)


# -- The speed of this machine's processor, relative to a reference (docs/design/measures.md) -------------------------

# A short benchmark: the processor time that bzip2 takes to compress a fixed text. bzip2 is among the integer programs of SPEC
# CPU2006. It sorts and branches, and has no vector code that only some processors run. The least time of several runs counts,
# since other work on the machine can only make a run slower.

REFERENCE_S = 0.0066
"""Time of the fixed text on the reference, an Intel Xeon core of 2.8 GHz (Ice Lake) with libbzip2 1.0.8."""
RUNS = 8
TEXT_BYTES = 100_000


@cache
def processor_speed() -> float:
    """Return the speed, measured when it is first asked for."""
    text, took_s = _text(), []
    for _ in range(RUNS):
        before_s = time.thread_time()  # Time in which other threads run does not count.
        bz2.compress(text)
        took_s.append(time.thread_time() - before_s)
    return speed_of(min(took_s))


def speed_of(took_s: float) -> float:
    """Return the relative speed of a processor that takes ``took_s`` for the fixed text."""
    return min(max(REFERENCE_S / max(took_s, 1e-9), LEAST_SPEED), MOST_SPEED)


def _text() -> bytes:
    rng = random.Random(1)
    words = [f"{rng.getrandbits(24):x}" for _ in range(2000)]
    return " ".join(rng.choice(words) for _ in range(TEXT_BYTES // 4)).encode()[:TEXT_BYTES]
