"""IFCOP: the best of many random placements (NES, IFCOP Strategy).

A candidate placement is drawn source by source, along the paths to the sink. From the source's node on, a coin decides whether
the next operator goes to the current node; if not, the coin is tossed again at the node's parent. At the sink, all remaining
operators stay. Operators already placed from another source stay where they are.

The cost of a candidate is that of the network, by the problem's objective, plus that of over-utilisation. The paper prints the
latter as min(0, capacity - load), which would reward overload. Here it is max(0, load - capacity) as a share of the load, with a
far greater weight. Since it is a cost and no bound, operators that the best candidate puts on a full node move on towards the
sink.
"""

import random
from collections.abc import Mapping, Sequence

import numpy as np

from sbon_node.papers.nes.hierarchy import hierarchy
from sbon_node.placement.model.instance import Instance, Ints, numbers
from sbon_node.placement.model.network_view import NetworkView
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_node.placement.selection.mapping import along, finish, first_with_capacity
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers.exact import penalised
from sbon_node.placement.strategies.sbon.baselines import consumer_of, producers_of
from sbon_protocol.api.placement import Assignment, Placement

AT_ONCE = 200
"""Candidates whose cost is computed together."""


async def ifcop(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Draw ``settings.iterations`` candidates, and take the best.

    The nodes on the paths are asked first what they have left. Raises :class:`SbonError` ``no-capacity``.
    """
    before = view.probes
    if not problem.operators:
        return finish("ifcop", problem, [], view, before)
    tree = await hierarchy(view, consumer_of(problem), problem.pinned.values(), settings.neighbours)
    walks, first = _walks(problem), problem.operators[0]
    hosts, capacity = set(view.nodes()), KnownCapacity(problem, view)
    if not hosts:
        raise await capacity.refusal(first, {})
    latencies = {node: [on for on in tree.path(node) if on in hosts] or along([node], view, first)[:1] for node in dict(walks)}
    await capacity.learn({node for path in latencies.values() for node in path})
    nodes = sorted({*problem.pinned.values(), *(node for path in latencies.values() for node in path)})
    at = {node: i for i, node in enumerate(nodes)}
    everyone = [np.arange(len(nodes))] * len(problem.operators)
    instance = Instance(problem, nodes, view.latencies_ms(nodes, nodes), everyone, capacity.free(nodes))
    best, lowest = np.empty(0, dtype=int), np.inf
    able = [[_open(latencies[source], o, capacity.rejected) for o in chain.values()] for source, chain in walks]
    for start in range(0, settings.iterations, AT_ONCE):
        drawn = np.empty((min(AT_ONCE, settings.iterations - start), len(problem.operators)), dtype=int)
        for (source, chain), open_ in zip(walks, able, strict=True):
            _draw(drawn, chain, numbers(latencies[source], at), open_, view.rng)
        costs = penalised(instance, drawn)
        if costs.min() < lowest:
            best, lowest = drawn[costs.argmin()], float(costs.min())
        await view.pause()
    assignments: list[Assignment] = []
    for operator, host in zip(problem.operators, best.tolist(), strict=True):
        reason = f"best of {settings.iterations} random placements on the paths to {tree.sink}"
        candidate_nodes = along(tree.path(nodes[host]), view, operator)
        assignments.append(await first_with_capacity(operator, candidate_nodes, view, assignments, problem.operators, reason))
    return finish("ifcop", problem, assignments, view, before)


Chain = Mapping[int, str]
"""Consecutive operators, by number."""


def _walks(problem: PlacementProblem) -> list[tuple[str, Chain]]:
    """Return for each source's node the operators that its walk reaches first. Every operator is in one walk."""
    number = {operator.id: i for i, operator in enumerate(problem.operators)}
    onward: dict[str, list[str]] = {}
    for edge in problem.edges:
        onward.setdefault(edge.source, []).append(edge.target)
    walks: list[tuple[str, Chain]] = []
    placed: set[str] = set()

    def walk(node: str, vertex: str | None) -> None:
        chain: dict[int, str] = {}
        while vertex is not None:
            chain[number[vertex]] = vertex
            placed.add(vertex)
            vertex = _next(onward.get(vertex, ()))
        if chain:
            walks.append((node, chain))

    def _next(targets: Sequence[str]) -> str | None:
        return next((target for target in targets if target in number and target not in placed), None)

    for vertex, node in problem.pinned.items():
        walk(node, _next(onward.get(vertex, ())))
    for operator in problem.operators:
        if operator.id not in placed:
            walk(producers_of(problem, operator.id)[0], operator.id)
    return walks


def _open(path: Sequence[str], operator: str, rejected: Mapping[str, set[str]]) -> Ints:
    """Return for each position of the path the first later position whose node takes the operator.

    If there is none, it is the last such position before.
    """
    able = np.flatnonzero([node not in rejected[operator] for node in path])
    if not len(able):
        return np.arange(len(path))
    return able[np.minimum(np.searchsorted(able, np.arange(len(path))), len(able) - 1)]


def _draw(drawn: Ints, chain: Chain, path: Ints, open_: Sequence[Ints], rng: random.Random) -> None:
    """Make one walk for all candidates at once."""
    position = np.zeros(len(drawn), dtype=int)
    for operator, onward in zip(chain, open_, strict=True):
        position = np.minimum(position + _tosses(len(drawn), rng), len(path) - 1)
        position = onward[position]
        drawn[:, operator] = path[position]


def _tosses(count: int, rng: random.Random) -> Ints:
    """Return the number of failed tosses before a success, ``count`` times: k with probability 2^-(k + 1)."""
    drawn = np.frombuffer(rng.randbytes(8 * count), dtype=np.uint64)
    tosses: Ints = np.floor(-np.log2(((drawn >> np.uint64(11)) + np.uint64(1)) * 2.0**-53)).astype(int)
    return tosses
