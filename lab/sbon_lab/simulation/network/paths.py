"""The paths of a simulated network: latency, quality, cuts, and traffic of each node."""

import random
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

Latency = Callable[[str, str], float]
"""One-way latency in seconds from one node to another, before jitter."""


class NetworkQuality(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Quality of every path, beside its latency."""

    jitter: Annotated[float, Meta(ge=0, le=10)] = 0.05
    """mean extra delay as a share of the latency (exponential)"""
    spike: Annotated[float, Meta(ge=0, le=1)] = 0.002
    """share of datagrams delayed by ten times the latency"""
    loss: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """share of datagrams lost"""
    duplicate: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """share of datagrams delivered twice"""
    window_bytes: Annotated[int, Meta(ge=1024)] = 256 * 1024
    """bytes a connection holds between writer and reader"""
    queue_bytes: Annotated[int, Meta(ge=1024)] = 64 * 1024
    """bytes a writer may queue before drain waits"""
    stall_timeout_s: Annotated[float, Meta(gt=0)] = 20.0
    """a connection whose bytes are held up so long breaks"""


class Traffic:
    """Bytes and packets that a node has sent and received; ``kinds`` and ``counts`` are its sent datagrams by message."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.datagrams_sent = self.datagrams_received = self.datagram_bytes_sent = self.datagram_bytes_received = 0
        self.stream_bytes_sent = self.stream_bytes_received = 0


class Paths:
    """Paths between nodes, by name."""

    def __init__(self, rng: random.Random, latency: Latency, quality: NetworkQuality | None = None) -> None:
        self.quality = quality or NetworkQuality()
        self._rng = rng
        self._latency = latency
        self._cuts: dict[tuple[str, str], None] = {}
        self._on_heal: list[Callable[[], None]] = []
        self._traffic: dict[str, Traffic] = {}

    def traffic(self, node: str) -> Traffic:
        traffic = self._traffic.get(node)
        if traffic is None:
            traffic = self._traffic[node] = Traffic()
        return traffic

    def delay_s(self, source: str, target: str) -> float:
        """Draw a latency of the path, in seconds."""
        base = self._latency(source, target) if source != target else 0.000_05
        return base * (1.0 + self.quality.jitter * self._rng.expovariate(1.0))

    # -- faults --------------------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str, *, both: bool = True) -> None:
        """Stop all traffic from ``source`` to ``target``; with ``both``, also back."""
        self._cuts[source, target] = None
        if both:
            self._cuts[target, source] = None

    def partition(self, side: tuple[str, ...], other: tuple[str, ...]) -> None:
        for a in side:
            for b in other:
                self.cut(a, b)

    def rejoin(self, side: tuple[str, ...], other: tuple[str, ...]) -> None:
        """Heal all paths between two groups."""
        for a in side:
            for b in other:
                self.heal(a, b)

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Heal one path in both directions, or all paths."""
        if source is None or target is None:
            self._cuts.clear()
        else:
            self._cuts.pop((source, target), None)
            self._cuts.pop((target, source), None)
        waiting, self._on_heal = self._on_heal, []
        for callback in waiting:
            callback()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def when_healed(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, at the next heal of any path."""
        self._on_heal.append(callback)
