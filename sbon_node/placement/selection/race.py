"""A race of candidates: the choice of latencies to measure to find an operator's best host. Ours.

The cost of a query with an operator at a candidate is uncertain only by estimated latencies to the pinned ends of the operator's
links. Let s be the root mean square of the relative errors of the estimates measured so far. Then a latency is uncertain by s
times its estimate. The cost is uncertain by the root of the sum of squares of (cost of a millisecond x uncertainty of the
latency). A candidate's *optimistic* cost is its cost minus this uncertainty.

In each round, the candidates with the least optimistic cost have their most uncertain latencies measured. The race ends when no
optimistic cost is below the least cost of the fully measured candidates; ends that answer no pings do not count. This is the
search for a best arm by confidence bounds (Kalyanakrishnan et al., PAC Subset Selection in Stochastic Multi-armed Bandits, ICML
2012), with measurements that need no repetition. Under a bound on delay the race uses its whole budget, because the cheapest
candidate may break the bound.
"""

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.model.instance import Floats, Instance, Ints
from sbon_node.placement.model.latency_matrix import LatencyMatrix
from sbon_node.placement.solvers.exact import Solution

SHARE_AT_ONCE = 0.4
"""Share of an operator's candidate budget that a round measures."""
ROUNDS = 8
"""Most rounds. Each takes a round trip to the candidates."""
PATHS_EACH, WHOLE_IN = 2, ROUNDS // 2
"""Latencies of a candidate measured in a round.

It is at least ``PATHS_EACH``, and enough to measure the candidate fully in ``WHOLE_IN`` rounds.
"""
OFF, OFF_WEIGHT = 0.1, 10
"""Relative error of estimates assumed before any measurement, and its weight in measurements."""
MOST_OFF = 1.0
"""Upper limit of a relative error; a greater error counts as this."""


class Race:
    """Rounds of measurements for one instance: for an operator at most all latencies of so many ``candidates``."""

    def __init__(self, latencies: LatencyMatrix, candidates: int) -> None:
        self._latencies, self._candidates = latencies, candidates
        self._measured_pairs: Counter[int] = Counter()
        self._squares, self._count = OFF_WEIGHT * OFF**2, float(OFF_WEIGHT)

    async def round(self, instance: Instance, believed: Solution) -> bool:
        """Measure for all operators; return whether there was anything to measure. ``believed`` solves the instance now."""
        chosen: list[tuple[int, int]] = []
        for operator in range(len(believed.least)):
            pairs = self._of_operator(instance, operator, believed)
            self._measured_pairs[operator] += len(pairs)
            chosen += pairs
        if not chosen or self._latencies.trouble:
            return False
        ends, hosts = np.array(chosen).T
        before_ms = self._latencies.believed_ms()[ends, hosts]
        await self._latencies.measure(chosen)
        known = self._latencies.measured[ends, hosts] & (before_ms > 0)
        off = self._latencies.ms[ends, hosts][known] / before_ms[known] - 1.0
        self._squares += float(np.sum(np.minimum(np.abs(off), MOST_OFF) ** 2))
        self._count += len(off)
        return True

    def whole(self, instance: Instance, operator: int) -> Ints:
        """Return the candidates whose latencies to pinned ends are all measured. Ends that answer no pings do not count."""
        return instance.candidates[operator][self._whole(instance, operator)]

    def _whole(self, instance: Instance, operator: int) -> NDArray[np.bool_]:
        """Return for each candidate whether it is fully measured."""
        ends, hosts = instance.pinned_neighbours(operator)[:, None], instance.candidates[operator]
        measured, may = self._latencies.measured[ends, hosts], self._latencies.open[ends, hosts]
        in_vain = ~(measured | may).all(axis=1) & ~(measured & (ends != hosts)).any(axis=1)
        complete: NDArray[np.bool_] = measured[~in_vain].all(axis=0)
        return complete

    def _of_operator(self, instance: Instance, operator: int, believed: Solution) -> list[tuple[int, int]]:
        ends, hosts, least = instance.pinned_neighbours(operator), instance.candidates[operator], believed.least[operator]
        left = self._candidates * len(ends) - self._measured_pairs[operator]
        if left <= 0:
            return []
        may: NDArray[np.bool_] = self._latencies.open[ends[:, None], hosts]
        per_ms = math.sqrt(self._squares / self._count) * instance.pinned_per_ms(operator, believed.per_ms)
        uncertain: Floats = per_ms[:, None] * self._latencies.believed_ms()[ends[:, None], hosts] * may
        optimistic = least - np.sqrt(np.sum(uncertain**2, axis=0))
        optimistic[np.isin(hosts, instance.at_home(hosts))] = -np.inf
        bounded = instance.problem.bounds.max_delay_ms is not None
        best = math.inf if bounded else float(least[self._whole(instance, operator)].min(initial=math.inf))
        running = [i for i in np.argsort(optimistic, kind="stable").tolist() if optimistic[i] < best and may[:, i].any()]
        chosen = []
        for i in running[: max(1, round(SHARE_AT_ONCE * self._candidates))]:
            order = np.argsort(-uncertain[:, i], kind="stable")
            wanted = [(int(ends[end]), int(hosts[i])) for end in order.tolist() if may[end, i]]
            chosen += wanted[: max(PATHS_EACH, math.ceil(len(ends) / WHOLE_IN))]
        return chosen[:left]
