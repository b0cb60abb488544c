"""The objective that a placement minimises, and the bounds it keeps."""

from __future__ import annotations

import msgspec


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """The minimised objective: a weighted sum of usage, delay, bandwidth and queueing latency.

    The network usage is the bytes in transit. The delay is that of the longest path from a producer to a consumer (milliseconds).
    The bandwidth is the bytes a second that leave a node for another. The latency by queueing is that of the longest path with
    the queues and services of its nodes, and the longer waits of other queries' messages there (milliseconds).
    """

    usage: float = 1.0
    delay: float = 0.0
    bandwidth: float = 0.0
    latency: float = 0.0

    @property
    def additive(self) -> bool:
        """Whether it is a sum over links."""
        return self.delay == 0.0 and self.latency == 0.0


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a placement; None for no bound.

    ``max_delay_ms`` limits the longest path from a producer to a consumer through the operators' hosts: one-way latencies, and
    the hosts' processing time for a row, if known (:func:`~sbon_node.placement.model.objective.processing_ms`).
    ``min_throughput_bytes_s`` is the bandwidth that each operator's host must have left, unless the operator's own rate is
    larger.
    """

    max_delay_ms: float | None = None
    min_throughput_bytes_s: float | None = None
