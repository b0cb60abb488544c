"""Sensitivity of a placement to hosts and latencies.

It gives the least cost with an operator at each of its candidates, and the latencies at which another placement becomes the best.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sbon_node.placement.model.instance import Instance, Ints
from sbon_node.placement.solvers.exact import Solution, penalised, solve

FARTHEST_MS = 1000.0
"""Longest latency considered; a change beyond it is reported as none."""
RIVALS = 8
"""Rounds that look for a better rival at the latency where the last rival was as good."""
HALVINGS = 40
CLOSE = 1e-9


class Turn(NamedTuple):
    """The latencies between ``nodes`` (node numbers) at which another placement becomes the best.

    That is the case below ``below_ms`` and above ``above_ms``; None if there is no such latency. ``below`` and ``above`` are
    these placements, node numbers by operator.
    """

    nodes: tuple[int, int]
    below_ms: float | None
    below: Ints | None
    above_ms: float | None
    above: Ints | None


def with_each(instance: Instance) -> list[list[Solution]]:
    """Return for each operator, by candidate, the best placement with the operator there."""
    rows = []
    for operator, candidates in enumerate(instance.candidates):
        alone = list(instance.candidates)
        row = []
        for candidate in candidates.tolist():
            alone[operator] = np.array([candidate])
            row.append(solve(instance.narrowed(alone)))
        rows.append(row)
    return rows


def turns(instance: Instance, best: Ints, latencies: Sequence[tuple[int, int]]) -> list[Turn]:
    """Return, for each pair of nodes, the latencies beyond which ``best`` is no longer the best placement."""
    turns = []
    for link in latencies:
        now_ms = float(instance.latency_ms[link])
        below_ms, below = _turn(instance, best, link, now_ms, 0.0)
        above_ms, above = _turn(instance, best, link, now_ms, FARTHEST_MS) if now_ms < FARTHEST_MS else (None, None)
        turns.append(Turn(link, below_ms, below, above_ms, above))
    return turns


def paths_of(instance: Instance, hosts: Ints) -> list[tuple[int, int]]:
    """Return the pairs of different nodes that a placement's links connect, lower number first; each once."""
    count = len(instance.operators)
    at = [int(host) for host in hosts] + [instance.pinned_node(count + i) for i in range(len(instance.problem.pinned))]
    ends = ((at[s], at[t]) for s, t in zip(instance.sources.tolist(), instance.targets.tolist(), strict=True))
    return sorted({(min(a, b), max(a, b)) for a, b in ends if a != b})


def _turn(
    instance: Instance, best: Ints, link: tuple[int, int], now_ms: float, end_ms: float
) -> tuple[float, Ints] | tuple[None, None]:
    """Return the first latency, from ``now_ms`` to ``end_ms``, at which another placement is as good, and that placement."""
    rival = _better(instance, best, link, end_ms)
    if rival is None:
        return None, None
    for _ in range(RIVALS):
        turn_ms = _even(instance, best, rival, link, now_ms, end_ms)
        nearer = _better(instance, best, link, turn_ms)
        if nearer is None:
            break
        rival = nearer
    return turn_ms, rival


def _better(instance: Instance, best: Ints, link: tuple[int, int], ms: float) -> Ints | None:
    """Return the best placement at this latency; None if ``best`` is still as good."""
    moved = _with(instance, link, ms)
    solution = solve(moved).hosts
    costs = penalised(moved, np.stack([best, solution]))
    return solution if costs[1] < costs[0] * (1 - CLOSE) - CLOSE else None


def _even(instance: Instance, best: Ints, rival: Ints, link: tuple[int, int], near_ms: float, far_ms: float) -> float:
    """Return the latency between the two at which ``rival`` is as good as ``best``, by halving."""
    both = np.stack([best, rival])
    for _ in range(HALVINGS):
        middle_ms = (near_ms + far_ms) / 2
        moved = _with(instance, link, middle_ms)
        costs = penalised(moved, both)
        if costs[1] < costs[0]:
            far_ms = middle_ms
        else:
            near_ms = middle_ms
        if abs(far_ms - near_ms) < 1e-3:
            break
    return far_ms


def _with(instance: Instance, link: tuple[int, int], ms: float) -> Instance:
    latency_ms = instance.latency_ms.copy()
    latency_ms[link] = latency_ms[link[::-1]] = ms
    return instance.narrowed(instance.candidates, latency_ms)
