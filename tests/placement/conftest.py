"""A flat network for the strategies: nodes in a plane, latency is distance, and room as each test says."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
import pytest

from sbon_lab.experiments.harness.coordinator_network import CoordinatorNetwork
from sbon_node.overlay.directory.view import PrefixRouting, owners
from sbon_node.placement.model.network_view import Answer, Answered, Point, Sent, Window
from sbon_node.placement.selection.discovery import Discovery
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.operators import Needs

T = TypeVar("T")


class Plane:
    """Nodes by name at points; ``capacity`` names the cores each has left (one, where it is not named), ``load`` ms of load."""

    def __init__(
        self, points: dict[str, Point | None], capacity: dict[str, float] | None = None, load: dict[str, float] | None = None
    ):
        self.points, self.capacity, self.load = points, capacity or {}, load or {}
        self.asked: list[list[str]] = []
        self.routes: dict[tuple[str, str], list[str]] | None = {}
        self.parents: dict[str, str] = {}
        self.busy = 0.0
        """The load average of every node."""
        self._rng = random.Random(7)
        self._discovery = Discovery(self, lambda _: math.inf)

    @property
    def rng(self) -> random.Random:
        return self._rng

    @property
    def probes(self) -> int:
        return sum(len(nodes) for nodes in self.asked)

    def nodes(self) -> list[str]:
        return sorted(self.points)

    def coordinate(self, node: str) -> Point | None:
        return self.points.get(node)

    def coordinate_age_s(self, node: str) -> float | None:
        return None if self.points.get(node) is None else 0.0

    def nearest(self, point: Sequence[float], k: int, *, exclude: Collection[str] = ()) -> list[tuple[str, float]]:
        placed = ((node, at) for node, at in self.points.items() if at is not None and node not in exclude)
        ranked = sorted((math.dist(point, at) + self.load.get(node, 0.0), node) for node, at in placed)
        return [(node, distance) for distance, node in ranked[:k]]

    def load_ms(self, node: str) -> float:
        return self.load.get(node, 0.0)

    def latency_ms(self, a: str, b: str) -> float:
        one, other = self.points[a], self.points[b]
        return math.dist(one, other) if one is not None and other is not None else 0.0

    async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        self.asked.extend([a] for a, _ in pairs)
        return {pair: self.latency_ms(*pair) for pair in pairs}

    def latencies_ms(self, sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
        return np.array([[self.latency_ms(a, b) for b in targets] for a in sources]).reshape(len(sources), len(targets))

    def route(self, source: str, target: str) -> list[str] | None:
        """By default straight on; nothing is known where there are no routes at all."""
        return None if self.routes is None else self.routes.get((source, target), [source, target])

    def parent(self, node: str) -> str | None:
        return self.parents.get(node)

    def owner(self, key: str, exclude: Collection[str] = ()) -> str:
        return owners(key, [node for node in self.points if node not in exclude] or self.points, 1)[0]

    async def send_all(self, sent: Sequence[Sent], within_s: float) -> list[Answered]:
        return await self.coordinators.send_all("proxy", sent)

    @cached_property
    def coordinators(self) -> CoordinatorNetwork:
        return CoordinatorNetwork(Plane(self.points), PlacementSettings())

    def overlay_route(self, source: str, target: str) -> list[str]:
        return PrefixRouting(self.points, lambda node, others: [self.latency_ms(node, o) for o in others]).route(source, target)

    def _answer(self, node: str, needs: Needs) -> Answer:
        free = self.capacity.get(node, 1.0)
        left = Needs(cores=free, memory_mb=1e6, bandwidth_bytes_s=1e9)
        if needs.bandwidth_bytes_s > 1e9:
            return Answer(accepted=False, reason="a gigabyte a second is all there is", free=left)
        if needs.cores <= free + 1e-9:
            return Answer(accepted=True, free=left, load=self.busy)
        return Answer(accepted=False, reason=f"{free:g} cores free, {needs.cores:g} needed", free=left)

    async def ask(self, node: str, needs: Needs) -> Answer:
        self.asked.append([node])
        return self._answer(node, needs)

    async def ask_all(self, nodes: Sequence[str], needs: Needs) -> dict[str, Answer]:
        if nodes:
            self.asked.append(list(nodes))
        return {node: self._answer(node, needs) for node in nodes}

    async def discover(self, window: Window) -> dict[str, Answer]:
        return await self._discovery.find(window)

    @property
    def discoveries(self) -> int:
        return self._discovery.count

    async def compute(self, work: Callable[[], T], /) -> T:
        return work()

    async def pause(self) -> None:
        return


@pytest.fixture
def plane() -> type[Plane]:
    return Plane
