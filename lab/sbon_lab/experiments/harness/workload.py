"""Queries of placement experiments: trees of operators over producers at random nodes."""

from collections.abc import Sequence

import numpy as np

from sbon_lab.experiments.harness.network_model import name_of
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_protocol.api.operators import Needs

PRODUCERS, PRODUCED_BYTES_S, SHARE = 4, 2000.0, 1 / 8
"""SBON's query (section 4.1): producers of an aggregator, rate of each, and share that the aggregator passes on."""
RATES_BYTES_S = (1000.0, 10_000.0)
SELECTIVITIES = (0.1, 1.0)
"""Uniform range of selectivities in trees."""
CORES = 0.25
"""Cores that an operator needs."""


def ends_at(count: int, nodes: int, rng: np.random.Generator) -> list[int]:
    """Return so many random nodes, by number; distinct, unless the network has fewer."""
    drawn = rng.permutation(nodes)[:count] if count <= nodes else rng.integers(nodes, size=count)
    return [int(node) for node in drawn]


def aggregator(nodes: int, rng: np.random.Generator) -> PlacementProblem:
    """Return SBON's query: four producers and a consumer at distinct nodes."""
    ends = ends_at(PRODUCERS + 1, nodes, rng)
    pinned = {f"p{i}": name_of(node) for i, node in enumerate(ends[:-1])} | {"consumer": name_of(ends[-1])}
    edges = [Edge(f"p{i}", "o0", PRODUCED_BYTES_S) for i in range(PRODUCERS)]
    edges.append(Edge("o0", "consumer", PRODUCERS * PRODUCED_BYTES_S * SHARE))
    return PlacementProblem(pinned=pinned, operators=(Operator(id="o0", needs=Needs(cores=CORES)),), edges=tuple(edges))


def binary_tree(operators: int, nodes: int, rng: np.random.Generator) -> PlacementProblem:
    """Return a complete binary tree of operators, two producers below each leaf; random rates and selectivities."""
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
    tree_operators = tuple(Operator(id=name, needs=Needs(cores=CORES)) for name in names)
    return PlacementProblem(pinned=pinned, operators=tree_operators, edges=tuple(edges))


def branches(producers: Sequence[int], consumer: int, rng: np.random.Generator) -> PlacementProblem:
    """Return a filter for each producer, by node, whose streams are merged two by two: NES's logical source, expanded.

    Rates and selectivities are random.
    """
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
    branch_operators = tuple(Operator(id=name, needs=Needs(cores=CORES)) for name in operators)
    return PlacementProblem(pinned=pinned, operators=branch_operators, edges=tuple(edges))


def query(operators: int, nodes: int, rng: np.random.Generator) -> PlacementProblem:
    """Return SBON's query for a single operator, a binary tree for 3, 7, 15 ... operators."""
    return aggregator(nodes, rng) if operators == 1 else binary_tree(operators, nodes, rng)
