"""Cuts and slow links in the emulated network of a local cluster."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sbon.local.cluster import LocalCluster
from sbon.local.wide_area import WideArea
from sbon_lab.chaos.faults import Fault


class Network:
    """The network of a cluster in ``area``; the effects of several faults add up."""

    def __init__(self, cluster: LocalCluster, area: WideArea) -> None:
        self._cluster, self._area = cluster, area
        self._lasting: list[tuple[Fault, str, str]] = []
        self._lock = threading.Lock()

    @contextmanager
    def struck(self, fault: Fault, one: str, other: str) -> Iterator[None]:
        """Cut or slow down the link between two nodes within the block; a one-way cut is from one to the other."""
        lasting = (fault, one, other)
        self._change(lambda: self._lasting.append(lasting))
        try:
            yield
        finally:
            self._change(lambda: self._lasting.remove(lasting))

    def _change(self, change: Callable[[], None]) -> None:
        with self._lock:
            change()
            self._cluster.change_cuts(self._cuts())
            self._cluster.change_latency(self._latency())

    def _cuts(self) -> list[tuple[str, str]]:
        cuts = [(one, other) for fault, one, other in self._lasting if fault.action in ("cut", "cut-one-way")]
        return cuts + [(other, one) for fault, one, other in self._lasting if fault.action == "cut"]

    def _latency(self) -> WideArea:
        names, rtt_ms = self._area.names, [list(row) for row in self._area.rtt_ms]
        for fault, one, other in self._lasting:
            if fault.action == "slow-link":
                i, j = names.index(one), names.index(other)
                rtt_ms[i][j] *= fault.factor
                rtt_ms[j][i] *= fault.factor
        return WideArea(names, tuple(tuple(row) for row in rtt_ms))
