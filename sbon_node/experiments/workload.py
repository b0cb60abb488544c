"""The queries of placement experiments: trees of operators over producers at random nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sbon_node.engine.interface import Needs
from sbon_node.experiments.ground import name_of
from sbon_node.placement.problem import Edge, Operator, PlacementProblem

PRODUCERS, PRODUCED_BYTES_S, SHARE = 4, 2000.0, 1 / 8
"""SBON's query (section 4.1): producers of one aggregator, what each sends, and what of it the aggregator passes on."""
RATES_BYTES_S = (1000.0, 10_000.0)
SELECTIVITIES = (0.1, 1.0)
"""Of trees, uniform."""
CORES = 0.25
"""What an operator needs."""


def ends_at(count: int, nodes: int, rng: np.random.Generator) -> list[int]:
    """So many nodes at random, by number: each another one, unless the network has fewer."""
    drawn = rng.permutation(nodes)[:count] if count <= nodes else rng.integers(nodes, size=count)
    return [int(node) for node in drawn]


def aggregator(nodes: int, rng: np.random.Generator) -> PlacementProblem:
    """SBON's query: four producers and a consumer at nodes of their own."""
    ends = ends_at(PRODUCERS + 1, nodes, rng)
    pinned = {f"p{i}": name_of(node) for i, node in enumerate(ends[:-1])} | {"consumer": name_of(ends[-1])}
    edges = [Edge(f"p{i}", "o0", PRODUCED_BYTES_S) for i in range(PRODUCERS)]
    edges.append(Edge("o0", "consumer", PRODUCERS * PRODUCED_BYTES_S * SHARE))
    return PlacementProblem(pinned=pinned, operators=(Operator(id="o0", needs=Needs(cores=CORES)),), edges=tuple(edges))


def binary_tree(operators: int, nodes: int, rng: np.random.Generator) -> PlacementProblem:
    """A complete binary tree of operators, each leaf of which reads two producers; rates and selectivities at random."""
    ends = ends_at(operators + 2, nodes, rng)
    pinned = {f"p{i}": name_of(node) for i, node in enumerate(ends[:-1])} | {"consumer": name_of(ends[-1])}
    rates = {f"p{i}": float(rng.uniform(*RATES_BYTES_S)) for i in range(operators + 1)}
    edges: list[Edge] = []
    names = [f"o{i}" for i in range(operators)]
    waiting = list(rates)
    for name in names:
        read, waiting = waiting[:2], waiting[2:]
        edges += [Edge(source, name, rates[source]) for source in read]
        rates[name] = sum(rates[source] for source in read) * float(rng.uniform(*SELECTIVITIES))
        waiting.append(name)
    edges.append(Edge(names[-1], "consumer", rates[names[-1]]))
    made = tuple(Operator(id=name, needs=Needs(cores=CORES)) for name in names)
    return PlacementProblem(pinned=pinned, operators=made, edges=tuple(edges))


def branches(producers: Sequence[int], consumer: int, rng: np.random.Generator) -> PlacementProblem:
    """A filter for each producer, by node, and their streams merged two by two: NES's logical source, expanded. Rates and
    selectivities at random."""
    names = [f"p{i}" for i in range(len(producers))]
    pinned = {name: name_of(node) for name, node in zip(names, producers, strict=True)} | {"consumer": name_of(consumer)}
    rates = {name: float(rng.uniform(*RATES_BYTES_S)) for name in names}
    edges: list[Edge] = []
    operators: list[str] = []

    def read(inputs: Sequence[str], name: str) -> str:
        edges.extend(Edge(source, name, rates[source]) for source in inputs)
        rates[name] = sum(rates[source] for source in inputs) * float(rng.uniform(*SELECTIVITIES))
        operators.append(name)
        return name

    waiting = [read([source], f"f{source[1:]}") for source in names]
    while len(waiting) > 1:
        waiting = [*waiting[2:], read(waiting[:2], f"m{len(operators)}")]
    edges.append(Edge(waiting[0], "consumer", rates[waiting[0]]))
    made = tuple(Operator(id=name, needs=Needs(cores=CORES)) for name in operators)
    return PlacementProblem(pinned=pinned, operators=made, edges=tuple(edges))


def query(operators: int, nodes: int, rng: np.random.Generator) -> PlacementProblem:
    """SBON's for one operator, a binary tree of 3, 7, 15 ... for more."""
    return aggregator(nodes, rng) if operators == 1 else binary_tree(operators, nodes, rng)
