"""Metrics of the node's machine at intervals: processor, memory, disk and network, from the operating system."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import psutil
import pyarrow as pa
from msgspec import Meta

from sbon_node.connectors.interface import Chunk
from sbon_node.connectors.sources.context import SourceContext
from sbon_node.model.schema import type_of
from sbon_protocol.errors import SbonError

MB = 1024 * 1024


class HostMetricsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the connector ``hostmetrics``."""

    interval_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 1.0
    """seconds between two rows"""
    disk: Annotated[str, Meta(min_length=1, max_length=4096)] = "/"
    """a path on the disk whose space is reported"""


class HostMetricsSource:
    """See :class:`sbon_node.connectors.interface.Source`. The columns' names select the metrics; the past cannot be read."""

    finite = False
    waits = False

    def __init__(self, context: SourceContext, options: HostMetricsOptions) -> None:
        self._options, self._schema, self._clock = options, context.schema, context.clock
        self._host = context.declaration.node
        for field in context.schema:
            if field.name not in METRICS:
                hint = f"there are {', '.join(METRICS)}"
                raise SbonError("bad-option", f"there is no metric {field.name!r}", where=f"columns.{field.name}", hint=hint)
        self._due = 0.0
        self._before: _Sight | None = None
        self._count = 0

    def check(self) -> None:
        """Measure once to check that every metric exists and fits its column."""
        sight = self._look()
        self._row(sight, sight)

    async def open(self, position: bytes | None) -> None:
        self._count = int(position) if position else 0
        self._before, self._due = self._look(), self._clock.now() + self._options.interval_s

    async def read(self) -> Chunk | None:
        await self._clock.sleep(self._due - self._clock.now())
        before, now = self._before, self._look()
        assert before is not None  # opened
        rows = self._row(now, before)
        # Intervals missed during sleep are skipped.
        missed = max(0.0, self._clock.now() - self._due) // self._options.interval_s
        self._due += (1 + missed) * self._options.interval_s
        self._before, self._count = now, self._count + 1
        number = self._count
        return Chunk(rows, b"%d" % number, lambda i: (number, str(rows.to_pylist()[i])))

    async def close(self) -> None:
        self._before = None

    def _look(self) -> _Sight:
        try:
            used = psutil.disk_usage(self._options.disk)
        except OSError as error:
            raise SbonError("bad-option", f"its space cannot be read: {error.strerror}", where="options.disk") from error
        return _Sight(self._host, self._clock.now(), self._clock.wall_ms(), used)

    def _row(self, now: _Sight, before: _Sight) -> pa.RecordBatch:
        columns = []
        for field in self._schema:
            try:
                columns.append(pa.array([METRICS[field.name](now, before)]).cast(field.type, safe=False))  # truncates integers
            except (pa.ArrowException, TypeError) as error:
                where = f"columns.{field.name}"
                raise SbonError("bad-option", f"this metric is no {type_of(field.type)}: {error}", where=where) from error
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class _Sight:
    """The machine's counters at a moment."""

    def __init__(self, host: str, at_s: float, wall_ms: int, used: Any) -> None:
        self.host, self.at_s, self.used = host, at_s, used
        self.ts = datetime.fromtimestamp(wall_ms / 1000, UTC)
        self.cpu = psutil.cpu_times()
        self.memory, self.swap = psutil.virtual_memory(), psutil.swap_memory()
        self.disk, self.network = psutil.disk_io_counters(), psutil.net_io_counters()
        self.load = psutil.getloadavg()


def _busy(now: _Sight, before: _Sight) -> float:
    """Return the share of all processors' time that was busy."""
    spent = sum(now.cpu) - sum(before.cpu)
    idle = now.cpu.idle - before.cpu.idle + getattr(now.cpu, "iowait", 0.0) - getattr(before.cpu, "iowait", 0.0)
    return min(1.0, max(0.0, 1.0 - idle / spent)) if spent > 0 else 0.0


def _rate(what: str, counter: str) -> Callable[[_Sight, _Sight], float | None]:
    """Return a function for a counter's growth per second; None if the machine lacks the device."""

    def rate(now: _Sight, before: _Sight) -> float | None:
        earlier, other = getattr(before, what), getattr(now, what)
        if earlier is None or other is None:
            return None
        passed_s = now.at_s - before.at_s
        return max(0.0, getattr(other, counter) - getattr(earlier, counter)) / passed_s if passed_s > 0 else 0.0

    return rate


METRICS: dict[str, Callable[[_Sight, _Sight], Any]] = {
    "ts": lambda now, before: now.ts,
    "host": lambda now, before: now.host,
    "cpu": _busy,
    "load1": lambda now, before: now.load[0],
    "load5": lambda now, before: now.load[1],
    "memory_used_mb": lambda now, before: now.memory.used / MB,
    "memory_available_mb": lambda now, before: now.memory.available / MB,
    "swap_used_mb": lambda now, before: now.swap.used / MB,
    "disk_used_mb": lambda now, before: now.used.used / MB,
    "disk_free_mb": lambda now, before: now.used.free / MB,
    "disk_read_bytes_s": _rate("disk", "read_bytes"),
    "disk_written_bytes_s": _rate("disk", "write_bytes"),
    "network_sent_bytes_s": _rate("network", "bytes_sent"),
    "network_received_bytes_s": _rate("network", "bytes_recv"),
}
"""Maps columns to functions of present and previous counters; ``cpu`` is a share of all cores."""
