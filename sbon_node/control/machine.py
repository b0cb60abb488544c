"""This machine, as far as operators may use it: cores, memory, bandwidth, load."""

from __future__ import annotations

import os

import psutil

from sbon_node.control.settings import ControlSettings
from sbon_node.engine.interface import EngineCapacity

MB = 1024 * 1024


class Machine:
    """Configured values where there are any, else what the operating system says."""

    def __init__(self, settings: ControlSettings) -> None:
        self._settings = settings
        self._cores = float(os.cpu_count() or 1)

    def capacity(self, max_operators: int) -> EngineCapacity:
        settings = self._settings
        return EngineCapacity(
            cores=settings.cores or self._cores,
            memory_mb=settings.memory_mb or psutil.virtual_memory().total / MB * 0.75,
            bandwidth_bytes_s=settings.bandwidth_bytes_s,
            operators=max_operators,
        )

    def load(self) -> float:
        """The load average of the last minute per core: runnable processes for each core."""
        return os.getloadavg()[0] / self._cores
