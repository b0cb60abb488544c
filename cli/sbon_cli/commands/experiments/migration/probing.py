"""Round trips to the API of nodes, one after another: how long their event loops keep a caller waiting."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

from sbon.local.node import API_PORT, LocalNode

EVERY_S = 0.02
TIMEOUT_S = 30.0


class Probe(NamedTuple):
    """A round trip that began at ``at_s`` (:func:`time.monotonic`)."""

    at_s: float
    took_ms: float


class Prober:
    """Probes each of the nodes within its block, every 20 ms or as fast as it answers."""

    def __init__(self, nodes: Sequence[LocalNode]) -> None:
        self.probes: list[Probe] = []
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._probe, args=(node,), name=f"probe {node.name}", daemon=True) for node in nodes
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _probe(self, node: LocalNode) -> None:
        connection = http.client.HTTPConnection(node.host, API_PORT, timeout=TIMEOUT_S)
        while not self._ended.wait(EVERY_S):
            began_s = time.monotonic()
            try:
                connection.request("GET", "/readyz")
                connection.getresponse().read()
            except OSError:
                connection.close()
                continue
            self.probes.append(Probe(began_s, 1000 * (time.monotonic() - began_s)))
        connection.close()
