"""Usage of the machine over time: processor and memory of this process and of its engine."""

from functools import partial

from sbon_node.context import Context
from sbon_node.engine.interface import Engine
from sbon_node.hosting.machine.machine_resources import Machine, ProcessUsage
from sbon_node.queries.describing.time_series import TimeSeries
from sbon_protocol.api.nodes import MachineUsagePoint


class MachineUsageHistory:
    """A point every ``control.history_interval_s``, in a :class:`~sbon_node.queries.describing.time_series.TimeSeries`."""

    def __init__(self, context: Context, machine: Machine, engine: Engine) -> None:
        self._context, self._machine, self._engine = context, machine, engine
        self._history: TimeSeries[MachineUsagePoint] = TimeSeries(context.settings.history_points)

    def points(self, after_ms: int = -1) -> list[MachineUsagePoint]:
        """Return the points later than ``after_ms``, the oldest first."""
        return self._history.points(after_ms)

    async def run(self) -> None:
        """Record points at intervals, for ever."""
        context, before, before_s = self._context, None, 0.0
        while True:
            usage = await context.executor(partial(self._machine.usage, self._engine.engine_pid))
            now_s = context.clock.now()
            if before is not None and now_s > before_s:
                self._history.add(usage_point(before, usage, now_s - before_s, context.clock.wall_ms()))
            before, before_s = usage, now_s
            await context.clock.sleep(context.settings.history_interval_s)


Usage = tuple[ProcessUsage, ProcessUsage | None]


def usage_point(before: Usage, now: Usage, passed_s: float, at_ms: int) -> MachineUsagePoint:
    """Return the mean cores in use over ``passed_s``; of an engine that was not there before all processor time counts."""
    (own_before, engine_before), (own, engine) = before, now
    engine_cpu_s = None if engine is None else engine.cpu_s - (engine_before.cpu_s if engine_before is not None else 0.0)
    return MachineUsagePoint(
        at_ms=at_ms,
        cores=max(0.0, own.cpu_s - own_before.cpu_s) / passed_s,
        memory_bytes=own.memory_bytes,
        engine_cores=None if engine_cpu_s is None else max(0.0, engine_cpu_s) / passed_s,
        engine_memory_bytes=None if engine is None else engine.memory_bytes,
    )
