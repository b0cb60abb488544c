"""SAND's strategies: against the paper's recursion, by hand, under bounds on delay, and by what may never happen."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from sbon_node.papers.sand.algorithm.by_zones import vertices_of
from sbon_node.papers.sand.algorithm.configurations import Locations, convex, fixed
from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model import latency_matrix
from sbon_node.placement.model.instance import Instance
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.sbon.optimal import optimum
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.strategies import Bounds
from sbon_protocol.errors import SbonError
from tests.papers.sand.trees import SETTINGS, direct_ms, points, tree

SAND = ("edge", "edge+", "in-network", "in-network+")


class Recursion:
    """EDGE as sections 3.2 has it, by recursion over the tree and without bounds or messages."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.pinned, self.proxy = problem.pinned, problem.pinned["consumer"]
        anywhere = {operator.id: np.ones(1, dtype=np.bool_) for operator in problem.operators}
        vertices = vertices_of(problem, dict.fromkeys(anywhere, ""), anywhere, {})
        self.children = {one.vertex: {link.vertex: link.rate_bytes_s for link in one.children} for one in vertices}
        self.place: dict[str, str] = {}
        for operator in problem.operators:
            self.place[operator.id] = self.choose(operator.id)

    def leaves(self, vertex: str) -> set[str]:
        if vertex in self.pinned:
            return {self.pinned[vertex]}
        return set().union(*(self.leaves(child) for child in self.children[vertex]))

    def at(self, vertex: str) -> str:
        return self.pinned.get(vertex) or self.place[vertex]

    def cost(self, node: str, vertex: str) -> float:
        """Equation 5."""
        if vertex in self.pinned:
            return 0.0 if self.pinned[vertex] == node else math.inf
        found = 0.0
        for child, rate in self.children[vertex].items():
            stays = self.cost(self.at(child), child) + (rate if self.at(child) != node else 0.0)
            found += min(stays, self.cost(node, child))
        return found

    def choose(self, vertex: str) -> str:
        """Equations 4 and 6; of equals the first by name."""
        at: dict[str, float] = {}
        for child, rate in self.children[vertex].items():
            at[self.at(child)] = at.get(self.at(child), 0.0) + rate
        most = min(node for node in at if at[node] == max(at.values()))
        common = set.intersection(*(self.leaves(child) for child in self.children[vertex]))
        return min({most, *common, self.proxy}, key=lambda node: (self.cost(node, vertex), node))

    def settled(self, vertex: str, node: str, into: dict[str, str]) -> None:
        """Where everything below goes, with ``vertex`` at ``node``."""
        into[vertex] = node
        for child, rate in self.children[vertex].items():
            if child not in self.pinned:
                stays = self.cost(self.at(child), child) + (rate if self.at(child) != node else 0.0)
                self.settled(child, node if self.cost(node, child) < stays else self.at(child), into)


@pytest.mark.one_part_per_commit("random placements", parts=6)
@pytest.mark.parametrize("fanout, sources", [(2, 8), (3, 9)])
async def test_edge_is_what_the_papers_recursion_gives(fanout: int, sources: int, plane: Any) -> None:
    rng = random.Random(sources)
    moved = 0
    for _ in range(30):
        view = plane(points(5, rng), capacity=dict.fromkeys(points(5, rng), 1e6))
        problem = tree(view.nodes(), sources, fanout, rng)
        recursion, expected = Recursion(problem), dict[str, str]()
        root = problem.operators[-1].id
        recursion.settled(root, recursion.place[root], expected)
        assert (await STRATEGIES["edge"](problem, view, SETTINGS)).hosts() == expected
        moved += expected != recursion.place
    assert moved > 5, "some are moved after they were placed"


@pytest.mark.one_part_per_commit("trees under bounds on delay", parts=3)
@pytest.mark.parametrize("name", SAND)
@pytest.mark.parametrize("fanout, sources, shared", [(2, 8, False), (3, 9, False), (2, 8, True)])
async def test_bounds_are_kept_and_nothing_is_better_than_the_optimum(
    name: str, fanout: int, sources: int, shared: bool, plane: Any
) -> None:
    rng = random.Random(fanout)
    usages: dict[float, float] = {}
    for _ in range(6):
        view = plane(points(24, rng), capacity=dict.fromkeys(points(24, rng), 1e6))
        problem = tree(view.nodes(), sources, fanout, rng, shared)
        whole = (await STRATEGIES["consumer"](problem, view, SETTINGS)).usage
        nodes = view.nodes()
        candidates = [np.arange(len(nodes))] * len(problem.operators)
        best = optimum(Instance(problem, nodes, view.latencies_ms(nodes, nodes), candidates))
        assert best is not None
        for ratio in (1.0, 1.2, 3.0):
            bound = ratio * direct_ms(problem, view)
            bounded = msgspec.structs.replace(problem, bounds=Bounds(max_delay_ms=bound))
            placed = await STRATEGIES[name](bounded, view, SETTINGS)
            assert placed.delay_ms <= bound + 1e-6
            assert placed.usage >= best.cost - 1e-9
            if name == "in-network+" and not shared:
                assert placed.usage <= whole + 1e-9, "it could have gone to the proxy as well"
            usages[ratio] = usages.get(ratio, 0.0) + placed.usage / whole
    assert name != "in-network+" or usages[3.0] < usages[1.2] < usages[1.0], "the others do not look ahead"


@pytest.mark.parametrize("name", SAND)
async def test_a_bound_that_no_way_keeps_to_is_refused(name: str, plane: Any) -> None:
    rng = random.Random(1)
    view = plane(points(12, rng))
    problem = tree(view.nodes(), 4, 2, rng)
    late = msgspec.structs.replace(problem, bounds=Bounds(max_delay_ms=0.99 * direct_ms(problem, view)))
    with pytest.raises(SbonError) as refused:
        await STRATEGIES[name](late, view, SETTINGS)
    assert (refused.value.code, refused.value.where) == ("delay-bound", "max_delay_ms")
    assert f"takes {direct_ms(problem, view):.1f} ms" in refused.value.message
    bare = PlacementProblem(pinned={"s": "n00", "consumer": "n01"}, operators=(), edges=(Edge("s", "consumer", 9.0),))
    with pytest.raises(SbonError, match=r"no placement was found within 0\.1 ms"):
        await STRATEGIES[name](msgspec.structs.replace(bare, bounds=Bounds(max_delay_ms=0.1)), view, SETTINGS)


async def test_only_some_of_too_many_nodes_are_considered(plane: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency_matrix, "MAX_PAIRS", 200)
    at = points(40, random.Random(3))
    problem = tree(sorted(at)[:3], 4, 2, random.Random(3))
    assert (await STRATEGIES["edge"](problem, plane(at), SETTINGS)).hosts().keys() == {"o0", "o1", "o2"}
    needy = msgspec.structs.replace(
        problem, operators=tuple(msgspec.structs.replace(o, needs=Needs(cores=0.1)) for o in problem.operators)
    )
    with pytest.raises(SbonError, match="edge uses the latencies between all nodes") as refused:
        await STRATEGIES["edge"](needy, plane(at, capacity=dict.fromkeys(problem.pinned.values(), 0.0)), SETTINGS)
    assert refused.value.code == "too-large"


@pytest.mark.parametrize("name", SAND)
async def test_a_full_proxy_and_a_bound_are_met_elsewhere_or_refused(name: str, plane: Any) -> None:
    rng = random.Random(4)
    met, refused = 0, list[str]()
    for _ in range(10):
        view = plane(points(12, rng))
        problem = tree(view.nodes(), 4, 2, rng)
        roomy = [node for node in view.nodes() if node != problem.pinned["consumer"]]
        view.capacity = dict.fromkeys(view.nodes(), 0.0) | dict.fromkeys(rng.sample(roomy, 8), 2.0)
        needing = tuple(
            msgspec.structs.replace(one, needs=msgspec.structs.replace(one.needs, cores=1.0)) for one in problem.operators
        )
        bound = 1.5 * direct_ms(problem, view)
        bounded = msgspec.structs.replace(problem, operators=needing, bounds=Bounds(max_delay_ms=bound))
        try:
            placed = await STRATEGIES[name](bounded, view, SETTINGS)
        except SbonError as error:
            refused.append(error.message.replace(f"{bound:g} ms", "the bound"))
            continue
        hosts = list(placed.hosts().values())
        assert placed.delay_ms <= bound + 1e-6
        assert all(hosts.count(node) <= view.capacity[node] for node in hosts)
        met += 1
    assert met
    assert set(refused) <= {"no placement within the bound was found whose nodes have capacity"}


def test_the_convex_set_is_nearer_to_every_child_than_any_other_is(plane: Any) -> None:
    rng = random.Random(5)
    inside = 0
    for many in (1, 2, 3, 4):
        view = plane(points(40, rng))
        nodes = view.nodes()
        latency_ms = view.latencies_ms(nodes, nodes)
        children = [fixed(i, 0.0, len(nodes)) for i in range(many)]
        found = convex(children, Locations(nodes, latency_ms, latency_ms, 0, np.full(len(nodes), np.inf)))
        for v in range(len(nodes)):
            pairs = itertools.permutations(range(many), 2)
            assert found[v] == all(latency_ms[v, a] < latency_ms[a, b] and latency_ms[v, b] < latency_ms[a, b] for a, b in pairs)
        inside += int(found.sum()) if many > 1 else 0
    assert inside > 5


TRIANGLE = {"a": (0.0, 10.0), "b": (0.0, -10.0), "c": (17.32, 0.0), "consumer": (-100.0, 0.0)}
"""Sources 20 ms apart, which their middle is 11.5 from."""
JOIN = PlacementProblem(
    pinned={"s0": "a", "s1": "b", "s2": "c", "consumer": "consumer"},
    operators=(Operator(id="join"),),
    edges=(Edge("s0", "join", 101.0), Edge("s1", "join", 100.0), Edge("s2", "join", 100.0), Edge("join", "consumer", 100.0)),
)


async def test_operators_go_to_nodes_between_and_the_way_on_counts_for_plus(plane: Any) -> None:
    at = TRIANGLE | {"middle": (5.77, 0.0), "onward": (2.0, 0.0), "away": (5.8, 0.0)}
    view = plane(at, capacity=dict.fromkeys(at, 1e6))
    view.overlay_route = lambda source, target: [source, "middle", "onward", target]
    hosts = {name: (await STRATEGIES[name](JOIN, view, SETTINGS)).hosts()["join"] for name in SAND}
    assert hosts == {"edge": "a", "edge+": "a", "in-network": "middle", "in-network+": "onward"}


async def test_links_that_decide_are_measured(plane: Any) -> None:
    """An estimate that is too good is found out, and another place is taken."""
    at = TRIANGLE | {"liar": (5.77, 0.0), "honest": (5.77, 4.0)}
    view = plane(at, capacity=dict.fromkeys(at, 1e6))
    view.overlay_route = lambda source, target: [source, "liar", "honest", target]
    truth = view.latency_ms

    async def measure(pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        view.asked.extend([a] for a, _ in pairs)
        return {pair: truth(*pair) + (5.0 if "liar" in pair else 0.0) for pair in pairs}

    view.measure = measure
    placed = await STRATEGIES["in-network"](JOIN, view, SETTINGS)
    assert placed.hosts() == {"join": "honest"}
    assert "links measured" in placed.assignments[0].reason
    blind = await STRATEGIES["in-network"](JOIN, view, PlacementSettings(measure=False))
    assert blind.hosts() == {"join": "liar"}
    assert "links estimated" in blind.assignments[0].reason


@pytest.mark.parametrize("name", SAND)
async def test_no_node_is_refused_for_an_estimate(name: str, plane: Any) -> None:
    """All ways look twice as long as they are."""
    rng = random.Random(11)
    view = plane(points(12, rng), capacity=dict.fromkeys(points(12, rng), 1e6))
    truth, known = view.latency_ms, set[frozenset[str]]()
    view.latency_ms = lambda a, b: truth(a, b) * (1.0 if frozenset((a, b)) in known else 2.0)

    async def measure(pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        known.update(frozenset(pair) for pair in pairs)
        return {pair: truth(*pair) for pair in pairs}

    view.measure = measure
    problem = tree(view.nodes(), 4, 2, rng)
    bound = max(truth(node, problem.pinned["consumer"]) for node in problem.pinned.values())
    bounded = msgspec.structs.replace(problem, bounds=Bounds(max_delay_ms=bound))
    assert (await STRATEGIES[name](bounded, view, SETTINGS)).delay_ms <= bound + 1e-6

    async def out_of_reach(pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        return {}

    known.clear()
    view.measure = out_of_reach
    with pytest.raises(SbonError, match="no placement was found within"):
        await STRATEGIES[name](bounded, view, SETTINGS)
