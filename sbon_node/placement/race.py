"""A race of candidates: which ways to measure next, so that few measurements find an operator's best host. Ours.

What a query costs with an operator at a candidate is known but for the ways to the pinned ends of the operator's links that are
only estimated. With s the share by which the estimates of what was measured here were off (root mean square), such a way is
uncertain by s times its estimate, and the cost by the root of the sum of squares of rate x that. A candidate's *optimistic* cost
is lower by so much than it seems. Round by round those with the least optimistic cost have their most uncertain ways measured,
until nobody's is less than the least cost of the candidates that are measured whole: as in the search for a best arm by
confidence bounds (Kalyanakrishnan et al., PAC Subset Selection in Stochastic Multi-armed Bandits, ICML 2012), with measurements
that need no repeating. Under a bound on delay it goes on as long as it may, since the cheapest is not always in time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.instance import Floats, Instance, Ints
from sbon_node.placement.ways import Ways

AT_ONCE, WAYS = 0.4, 2
"""Of the candidates of an operator that may be measured, those that are in a round, with so many ways each."""
ROUNDS = 8
"""At most: each takes a round trip to the candidates."""
OFF, OFF_WEIGHT = 0.1, 10
"""What estimates are off by before anything is measured, and how many measurements that is worth."""
MOST_OFF = 1.0
"""Of an estimate; one that is off by more counts as this."""


class Race:
    """``candidates`` bounds what is measured for an operator, were all ways of so many measured."""

    def __init__(self, ways: Ways, candidates: int) -> None:
        self._ways, self._candidates = ways, candidates
        self._asked: Counter[int] = Counter()
        self._squares, self._count = OFF_WEIGHT * OFF**2, float(OFF_WEIGHT)

    async def round(self, instance: Instance, least: Sequence[Floats]) -> bool:
        """Measures for all operators, whose candidates cost ``least`` by what is believed; whether there was anything to."""
        chosen: list[tuple[int, int]] = []
        for operator, costs in enumerate(least):
            pairs = self._of_operator(instance, operator, costs)
            self._asked[operator] += len(pairs)
            chosen += pairs
        if not chosen or self._ways.trouble:
            return False
        ends, hosts = np.array(chosen).T
        believed = self._ways.believed_ms()[ends, hosts]
        await self._ways.measure(chosen)
        known = self._ways.measured[ends, hosts] & (believed > 0)
        off = self._ways.ms[ends, hosts][known] / believed[known] - 1.0
        self._squares += float(np.sum(np.minimum(np.abs(off), MOST_OFF) ** 2))
        self._count += len(off)
        return True

    def whole(self, instance: Instance, operator: int) -> Ints:
        """The candidates of whose ways to what is pinned none is left to measure."""
        return instance.candidates[operator][~self._open(instance, operator).any(axis=0)]

    def _open(self, instance: Instance, operator: int) -> NDArray[np.bool_]:
        """The ways to what is pinned that may be measured, [pinned ends, candidates]."""
        found: NDArray[np.bool_] = self._ways.open[instance.pinned_neighbours(operator)[:, None], instance.candidates[operator]]
        return found

    def _of_operator(self, instance: Instance, operator: int, least: Floats) -> list[tuple[int, int]]:
        ends, hosts, may = instance.pinned_neighbours(operator), instance.candidates[operator], self._open(instance, operator)
        left = self._candidates * len(ends) - self._asked[operator]
        if left <= 0:
            return []
        per_ms = math.sqrt(self._squares / self._count) * instance.pinned_per_ms(operator)
        uncertain: Floats = per_ms[:, None] * self._ways.believed_ms()[ends[:, None], hosts] * may
        optimistic = least - np.sqrt(np.sum(uncertain**2, axis=0))
        optimistic[np.isin(hosts, instance.at_home(hosts))] = -np.inf
        whole: NDArray[np.bool_] = np.logical_not(may.any(axis=0))
        bounded = instance.problem.bounds.max_delay_ms is not None
        best = math.inf if bounded else float(least[whole].min(initial=math.inf))
        running = [i for i in np.argsort(optimistic, kind="stable").tolist() if optimistic[i] < best and not whole[i]]
        found = []
        for i in running[: max(1, round(AT_ONCE * self._candidates))]:
            order = np.argsort(-uncertain[:, i], kind="stable")
            found += [(int(ends[end]), int(hosts[i])) for end in order.tolist() if may[end, i]][:WAYS]
        return found[:left]
