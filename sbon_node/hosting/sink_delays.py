"""The delay of the rows that arrive for one sink of this node."""

from __future__ import annotations

from sbon_node.hosting.stream_hosts import StreamHost
from sbon_node.membership.clocks import ROUNDING_MS
from sbon_node.model.delivery import SinkDelay
from sbon_node.model.frames import Frame
from sbon_node.streams.measures.delays import Delays
from sbon_node.workflow.context import Context


class SinkDelays:
    """Observes the frames of all streams that a sink reads, as they arrive."""

    def __init__(self, context: Context) -> None:
        settings = context.stream_settings
        self._clock = context.clock
        self._delays = Delays(most=settings.delay_frames, window_s=settings.delay_window_s)

    def observe(self, host: StreamHost, frame: Frame) -> None:
        """Note a frame that has come from ``host``; its time of birth is by this node's clock, or 0."""
        if not frame.rows:
            return
        now, error_ms = self._clock.now(), host.clock_error_ms
        if not frame.born_ms or error_ms is None:
            self._delays.observe_undated(now)
        else:  # The stamp and its translation are rounded, each by a millisecond at most.
            self._delays.observe(now, self._clock.wall_us() / 1000.0 - frame.born_ms, error_ms + ROUNDING_MS, frame.rows)

    def report(self) -> SinkDelay:
        return self._delays.report(self._clock.now())
