"""A race of candidates: which ways to measure next, so that few measurements find an operator's best host. Ours.

What a query costs with an operator at a candidate is known but for the ways to the pinned ends of the operator's links that are
only estimated. With s the share by which the estimates of what was measured here were off (root mean square), such a way is
uncertain by s times its estimate, and the cost by the root of the sum of squares of what it is charged a millisecond x that. A
candidate's *optimistic* cost is lower by so much than it seems. Round by round those with the least optimistic cost have their
most uncertain ways measured, until nobody's is less than the least cost of the candidates that are measured whole, ends that
answer nobody left aside: as in the search for a best arm by confidence bounds (Kalyanakrishnan et al., PAC Subset Selection in
Stochastic Multi-armed Bandits, ICML 2012), with measurements that need no repeating. Under a bound on delay it goes on as long as
it may, since the cheapest is not always in time.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.instance import Floats, Instance, Ints
from sbon_node.placement.solver import Solution
from sbon_node.placement.ways import Ways

SHARE_AT_ONCE = 0.4
"""Of the candidates of an operator that may be measured, those that are in a round."""
ROUNDS = 8
"""At most: each takes a round trip to the candidates."""
WAYS_EACH, WHOLE_IN = 2, ROUNDS // 2
"""Ways of a candidate that are measured in a round: so many, or as many more as measure it whole in ``WHOLE_IN`` rounds."""
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

    async def round(self, instance: Instance, believed: Solution) -> bool:
        """Measures for all operators; whether there was anything to. ``believed`` solves this instance, by what is believed."""
        chosen: list[tuple[int, int]] = []
        for operator in range(len(believed.least)):
            pairs = self._of_operator(instance, operator, believed)
            self._asked[operator] += len(pairs)
            chosen += pairs
        if not chosen or self._ways.trouble:
            return False
        ends, hosts = np.array(chosen).T
        before_ms = self._ways.believed_ms()[ends, hosts]
        await self._ways.measure(chosen)
        known = self._ways.measured[ends, hosts] & (before_ms > 0)
        off = self._ways.ms[ends, hosts][known] / before_ms[known] - 1.0
        self._squares += float(np.sum(np.minimum(np.abs(off), MOST_OFF) ** 2))
        self._count += len(off)
        return True

    def whole(self, instance: Instance, operator: int) -> Ints:
        """The candidates all of whose ways to what is pinned are measured, but for ends that answer nobody."""
        return instance.candidates[operator][self._whole(instance, operator)]

    def _whole(self, instance: Instance, operator: int) -> NDArray[np.bool_]:
        """Of each candidate whether it is measured whole."""
        ends, hosts = instance.pinned_neighbours(operator)[:, None], instance.candidates[operator]
        measured, may = self._ways.measured[ends, hosts], self._ways.open[ends, hosts]
        in_vain = ~(measured | may).all(axis=1) & ~(measured & (ends != hosts)).any(axis=1)
        found: NDArray[np.bool_] = measured[~in_vain].all(axis=0)
        return found

    def _of_operator(self, instance: Instance, operator: int, believed: Solution) -> list[tuple[int, int]]:
        ends, hosts, least = instance.pinned_neighbours(operator), instance.candidates[operator], believed.least[operator]
        left = self._candidates * len(ends) - self._asked[operator]
        if left <= 0:
            return []
        may: NDArray[np.bool_] = self._ways.open[ends[:, None], hosts]
        per_ms = math.sqrt(self._squares / self._count) * instance.pinned_per_ms(operator, believed.per_ms)
        uncertain: Floats = per_ms[:, None] * self._ways.believed_ms()[ends[:, None], hosts] * may
        optimistic = least - np.sqrt(np.sum(uncertain**2, axis=0))
        optimistic[np.isin(hosts, instance.at_home(hosts))] = -np.inf
        bounded = instance.problem.bounds.max_delay_ms is not None
        best = math.inf if bounded else float(least[self._whole(instance, operator)].min(initial=math.inf))
        running = [i for i in np.argsort(optimistic, kind="stable").tolist() if optimistic[i] < best and may[:, i].any()]
        found = []
        for i in running[: max(1, round(SHARE_AT_ONCE * self._candidates))]:
            order = np.argsort(-uncertain[:, i], kind="stable")
            wanted = [(int(ends[end]), int(hosts[i])) for end in order.tolist() if may[end, i]]
            found += wanted[: max(WAYS_EACH, math.ceil(len(ends) / WHOLE_IN))]
        return found[:left]
