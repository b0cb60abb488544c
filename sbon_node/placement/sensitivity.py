"""What the choice of a placement hangs on: the least cost with an operator at each of its candidates, and how far a latency would
have to be otherwise for another placement to be the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sbon_node.placement.instance import Instance, Ints
from sbon_node.placement.solver import Solution, penalised, solve

FARTHEST_MS = 1000.0
"""No way is longer: what would change only beyond it is said not to change."""
RIVALS = 8
"""Rounds in which a better rival is sought at the point where the last one was as good."""
HALVINGS = 40
CLOSE = 1e-9


class Turn(NamedTuple):
    """Another placement would be the best were the way between ``nodes`` (by number) shorter than ``below_ms`` or longer than
    ``above_ms``; None where there is no such length. ``below`` and ``above`` are these placements, node numbers by operator."""

    nodes: tuple[int, int]
    below_ms: float | None
    below: Ints | None
    above_ms: float | None
    above: Ints | None


def with_each(instance: Instance) -> list[list[Solution]]:
    """For each operator, by candidate, the best placement with the operator there and all others wherever is best."""
    found = []
    for operator, candidates in enumerate(instance.candidates):
        alone = list(instance.candidates)
        row = []
        for candidate in candidates.tolist():
            alone[operator] = np.array([candidate])
            row.append(solve(instance.narrowed(alone)))
        found.append(row)
    return found


def turns(instance: Instance, best: Ints, ways: Sequence[tuple[int, int]]) -> list[Turn]:
    """Of each way between two nodes, where ``best`` would no longer be the best placement over the candidates."""
    found = []
    for way in ways:
        now_ms = float(instance.latency_ms[way])
        below_ms, below = _turn(instance, best, way, now_ms, 0.0)
        above_ms, above = _turn(instance, best, way, now_ms, FARTHEST_MS) if now_ms < FARTHEST_MS else (None, None)
        found.append(Turn(way, below_ms, below, above_ms, above))
    return found


def ways_of(instance: Instance, hosts: Ints) -> list[tuple[int, int]]:
    """Ways between different nodes that a placement's links take, the lower number first; each once."""
    count = len(instance.operators)
    at = [int(host) for host in hosts] + [instance.pinned_node(count + i) for i in range(len(instance.problem.pinned))]
    ends = ((at[s], at[t]) for s, t in zip(instance.sources.tolist(), instance.targets.tolist(), strict=True))
    return sorted({(min(a, b), max(a, b)) for a, b in ends if a != b})


def _turn(
    instance: Instance, best: Ints, way: tuple[int, int], now_ms: float, end_ms: float
) -> tuple[float, Ints] | tuple[None, None]:
    """Between the latency as it is and ``end_ms``, the first at which another placement is as good, and which."""
    rival = _better(instance, best, way, end_ms)
    if rival is None:
        return None, None
    for _ in range(RIVALS):
        turn_ms = _even(instance, best, rival, way, now_ms, end_ms)
        nearer = _better(instance, best, way, turn_ms)
        if nearer is None:
            break
        rival = nearer
    return turn_ms, rival


def _better(instance: Instance, best: Ints, way: tuple[int, int], ms: float) -> Ints | None:
    """The best placement, were the way so long; None where ``best`` is as good still."""
    moved = _with(instance, way, ms)
    found = solve(moved).hosts
    costs = penalised(moved, moved.evaluate(np.stack([best, found])))
    return found if costs[1] < costs[0] * (1 - CLOSE) - CLOSE else None


def _even(instance: Instance, best: Ints, rival: Ints, way: tuple[int, int], near_ms: float, far_ms: float) -> float:
    """Where, between the two lengths, ``rival`` is as good as ``best``, by halving."""
    both = np.stack([best, rival])
    for _ in range(HALVINGS):
        middle_ms = (near_ms + far_ms) / 2
        moved = _with(instance, way, middle_ms)
        costs = penalised(moved, moved.evaluate(both))
        if costs[1] < costs[0]:
            far_ms = middle_ms
        else:
            near_ms = middle_ms
        if abs(far_ms - near_ms) < 1e-3:
            break
    return far_ms


def _with(instance: Instance, way: tuple[int, int], ms: float) -> Instance:
    latency_ms = instance.latency_ms.copy()
    latency_ms[way] = latency_ms[way[::-1]] = ms
    return instance.narrowed(instance.candidates, latency_ms)
