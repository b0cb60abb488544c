"""Trees of operators over points in a plane, for the tests of SAND."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from sbon_node.papers.sand.algorithm.configurations import Bools
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.settings import PlacementSettings

SETTINGS = PlacementSettings()


def points(count: int, rng: random.Random) -> dict[str, tuple[float, float]]:
    return {f"n{i:02d}": (rng.uniform(0, 100), rng.uniform(0, 100)) for i in range(count)}


def tree(nodes: Sequence[str], sources: int, fanout: int, rng: random.Random, shared: bool = False) -> PlacementProblem:
    """Complete, over sources at random nodes, some of them at one; ``shared``: the root reads the first operator as well."""
    pinned = {f"s{i}": rng.choice(nodes) for i in range(sources)} | {"consumer": rng.choice(nodes)}
    rates = {f"s{i}": rng.uniform(1, 10) for i in range(sources)}
    waiting, edges, names = list(rates), list[Edge](), list[str]()
    while len(waiting) > 1:
        read, waiting = waiting[:fanout], waiting[fanout:]
        name = f"o{len(names)}"
        edges += [Edge(source, name, rates[source]) for source in read]
        rates[name] = sum(rates[source] for source in read) * rng.random()
        names.append(name)
        waiting.append(name)
    edges.append(Edge(names[-1], "consumer", rates[names[-1]]))
    if shared:
        edges.append(Edge("o0", names[-1], rates["o0"]))
    return PlacementProblem(pinned=pinned, operators=tuple(Operator(id=name) for name in names), edges=tuple(edges))


def direct_ms(problem: PlacementProblem, view: Any) -> float:
    return max(view.latency_ms(node, problem.pinned["consumer"]) for node in problem.pinned.values())


def everywhere(problem: PlacementProblem, nodes: list[str]) -> dict[str, Bools]:
    return {operator.id: np.ones(len(nodes), dtype=np.bool_) for operator in problem.operators}
