"""IFCOP: the best of many random placements on the ways from the sources to the sink (NES, IFCOP Strategy).

A candidate is drawn source by source: from the source's node on, a coin is tossed for the next operator, which goes to the node
reached or, with the node's parent, is tossed for again; at the sink all that are left stay. What was placed from another source
stays where it is. A candidate's cost is that of the network, by the problem's objective, and that of over-utilisation: printed as
min(0, capacity - load), which would reward overload, it is max(0, load - capacity) here, as a share of the load, and weighs far
more. Since that is a cost and no bound, what the best candidate puts on a node that is full goes on towards the sink.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from sbon_node.placement.hierarchy import hierarchy
from sbon_node.placement.instance import Instance, Ints, numbers
from sbon_node.placement.mapping import along, finish, first_with_room
from sbon_node.placement.network_view import NetworkView
from sbon_node.placement.problem import Assignment, Placement, PlacementProblem
from sbon_node.placement.room import Room
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solver import penalised
from sbon_node.placement.strategies.consumer import consumer_of
from sbon_node.placement.strategies.producer import producers_of

AT_ONCE = 200
"""Candidates whose cost is computed together."""


async def ifcop(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings) -> Placement:
    """Asks the nodes on the ways what they have left, and draws ``settings.iterations`` candidates. Raises :class:`SbonError`
    ``no-room``."""
    before = view.questions
    if not problem.operators:
        return finish("ifcop", problem, [], view, before)
    tree = await hierarchy(view, consumer_of(problem), problem.pinned.values(), settings.neighbours)
    walks, first = _walks(problem), problem.operators[0]
    hosts, room = set(view.nodes()), Room(problem, view)
    if not hosts:
        raise await room.refusal(first, {})
    ways = {node: [on for on in tree.path(node) if on in hosts] or along([node], view, first)[:1] for node in dict(walks)}
    await room.learn({node for way in ways.values() for node in way})
    nodes = sorted({*problem.pinned.values(), *(node for way in ways.values() for node in way)})
    at = {node: i for i, node in enumerate(nodes)}
    everyone = [np.arange(len(nodes))] * len(problem.operators)
    instance = Instance(problem, nodes, view.latencies_ms(nodes, nodes), everyone, room.free(nodes))
    found, lowest = np.empty(0, dtype=int), np.inf
    able = [[_open(ways[source], o, room.rejected) for o in chain.values()] for source, chain in walks]
    for start in range(0, settings.iterations, AT_ONCE):
        drawn = np.empty((min(AT_ONCE, settings.iterations - start), len(problem.operators)), dtype=int)
        for (source, chain), open_ in zip(walks, able, strict=True):
            _draw(drawn, chain, numbers(ways[source], at), open_, view.rng)
        costs = penalised(instance, instance.evaluate(drawn))
        if costs.min() < lowest:
            found, lowest = drawn[costs.argmin()], float(costs.min())
        await view.pause()
    assignments: list[Assignment] = []
    for operator, host in zip(problem.operators, found.tolist(), strict=True):
        reason = f"best of {settings.iterations} random placements on the ways to {tree.sink}"
        wishes = along(tree.path(nodes[host]), view, operator)
        assignments.append(await first_with_room(operator, wishes, view, assignments, problem.operators, reason))
    return finish("ifcop", problem, assignments, view, before)


Chain = Mapping[int, str]
"""Operators one after another, by number."""


def _walks(problem: PlacementProblem) -> list[tuple[str, Chain]]:
    """From the nodes of the sources, the operators each reaches first: all operators, each once."""
    number = {operator.id: i for i, operator in enumerate(problem.operators)}
    onward: dict[str, list[str]] = {}
    for edge in problem.edges:
        onward.setdefault(edge.source, []).append(edge.target)
    found: list[tuple[str, Chain]] = []
    placed: set[str] = set()

    def walk(node: str, vertex: str | None) -> None:
        chain: dict[int, str] = {}
        while vertex is not None:
            chain[number[vertex]] = vertex
            placed.add(vertex)
            vertex = _next(onward.get(vertex, ()))
        if chain:
            found.append((node, chain))

    def _next(targets: Sequence[str]) -> str | None:
        return next((target for target in targets if target in number and target not in placed), None)

    for vertex, node in problem.pinned.items():
        walk(node, _next(onward.get(vertex, ())))
    for operator in problem.operators:
        if operator.id not in placed:
            walk(producers_of(problem, operator.id)[0], operator.id)
    return found


def _open(way: Sequence[str], operator: str, rejected: Mapping[str, set[str]]) -> Ints:
    """For each position of the way the first one from there on whose node takes the operator at all; else the last before it."""
    able = np.flatnonzero([node not in rejected[operator] for node in way])
    if not len(able):
        return np.arange(len(way))
    return able[np.minimum(np.searchsorted(able, np.arange(len(way))), len(able) - 1)]


def _draw(drawn: Ints, chain: Chain, way: Ints, open_: Sequence[Ints], rng: random.Random) -> None:
    """One walk for all candidates at once."""
    position = np.zeros(len(drawn), dtype=int)
    for operator, onward in zip(chain, open_, strict=True):
        position = np.minimum(position + _tosses(len(drawn), rng), len(way) - 1)
        position = onward[position]
        drawn[:, operator] = way[position]


def _tosses(count: int, rng: random.Random) -> Ints:
    """How often a coin says no before it says yes, ``count`` times: k with probability 2^-(k + 1)."""
    drawn = np.frombuffer(rng.randbytes(8 * count), dtype=np.uint64)
    found: Ints = np.floor(-np.log2(((drawn >> np.uint64(11)) + np.uint64(1)) * 2.0**-53)).astype(int)
    return found
