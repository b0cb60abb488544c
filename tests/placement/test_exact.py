"""Exact optima against trying everything: trees, other DAGs, capacities, bounds on delay, and every objective."""

from __future__ import annotations

import itertools
import random
from typing import Any

import msgspec
import numpy as np
import pytest

from sbon_node.placement.model.instance import RESOURCES, Instance
from sbon_node.placement.model.objective import cost, longest_delay_ms, objective_named
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.solvers import elimination, exact, milp
from sbon_node.placement.solvers.elimination import Elimination, TooWideError
from sbon_node.placement.solvers.moves import Moves
from sbon_node.placement.strategies.sbon import optimal as optimal_module
from sbon_node.placement.strategies.sbon.optimal import optimal, optimum
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.strategies import Bounds, Objective
from sbon_protocol.errors import SbonError

NODES = [f"n{i}" for i in range(6)]
TREE = [("s0", "a"), ("s1", "a"), ("a", "c"), ("s2", "b"), ("s3", "b"), ("b", "c"), ("c", "sink")]
DIAMOND = [("s0", "a"), ("a", "b"), ("a", "c"), ("s1", "c"), ("b", "d"), ("c", "d"), ("a", "d"), ("d", "sink"), ("s2", "sink")]


def made(links: list[tuple[str, str]], seed: int, **fields: Any) -> tuple[PlacementProblem, np.ndarray]:
    """A query with random rates, everything pinned at a random node, and random latencies, another one each way."""
    rng = random.Random(seed)
    vertices = sorted({vertex for link in links for vertex in link})
    operators = [vertex for vertex in vertices if len(vertex) == 1]
    problem = PlacementProblem(
        pinned={vertex: rng.choice(NODES) for vertex in vertices if vertex not in operators},
        operators=tuple(Operator(id=name, needs=Needs(cores=rng.choice([0.3, 0.5]), memory_mb=1.0)) for name in operators),
        edges=tuple(Edge(source, target, rng.uniform(1, 100)) for source, target in links),
        **fields,
    )
    latency_ms = np.array([[0.0 if a == b else rng.uniform(1, 100) for b in NODES] for a in NODES])
    return problem, latency_ms


def instance_of(
    problem: PlacementProblem, latency_ms: np.ndarray, cores: float = np.inf, loads_ms: np.ndarray | None = None
) -> Instance:
    free = np.full((len(NODES), RESOURCES), np.inf)
    free[:, 0] = cores
    return Instance(problem, NODES, latency_ms, [np.arange(len(NODES))] * len(problem.operators), free, loads_ms=loads_ms)


def by_trying(
    problem: PlacementProblem, latency_ms: np.ndarray, cores: float = np.inf, loads_ms: np.ndarray | None = None
) -> float | None:
    """The least cost of all placements that keep to the bounds, by the definitions in
    :mod:`sbon_node.placement.model.objective`."""
    at = {node: i for i, node in enumerate(NODES)}

    def latency(a: str, b: str) -> float:
        return float(latency_ms[at[a], at[b]])

    costs = []
    for chosen in itertools.product(NODES, repeat=len(problem.operators)):
        hosts = {operator.id: node for operator, node in zip(problem.operators, chosen, strict=True)}
        full = any(sum(o.needs.cores for o in problem.operators if hosts[o.id] == node) > cores + 1e-9 for node in set(chosen))
        late = longest_delay_ms(problem, hosts, latency) > (problem.bounds.max_delay_ms or np.inf)
        if not full and not late:
            costs.append(cost(problem, hosts, latency, load_ms=lambda node: 0.0 if loads_ms is None else loads_ms[at[node]]))
    return min(costs, default=None)


OBJECTIVES = ("usage", "delay", "bandwidth", "usage=1,delay=0.05,bandwidth=0.01")


@pytest.mark.parametrize("links", [TREE, DIAMOND], ids=["tree", "diamond"])
@pytest.mark.parametrize("cores", [np.inf, 0.6])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(2))
def test_the_optimum_is_that_of_trying_everything(links: Any, cores: float, objective: str, seed: int) -> None:
    problem, latency_ms = made(links, seed, objective=objective_named(objective))
    found = optimum(instance_of(problem, latency_ms, cores))
    assert found is not None
    assert found.cost == pytest.approx(by_trying(problem, latency_ms, cores), rel=1e-6)


@pytest.mark.parametrize("links", [TREE, DIAMOND], ids=["tree", "diamond"])
@pytest.mark.parametrize("cores", [np.inf, 0.6])
@pytest.mark.parametrize("objective", ["usage", "usage=1,delay=0.05,bandwidth=0.01"])
@pytest.mark.parametrize("seed", range(2))
def test_loads_lengthen_the_links_of_their_hosts(links: Any, cores: float, objective: str, seed: int) -> None:
    problem, latency_ms = made(links, seed, objective=objective_named(objective))
    idle = optimum(instance_of(problem, latency_ms, cores))
    assert idle is not None
    loads_ms = np.random.default_rng(seed).choice([0.0, 30.0, 200.0], len(NODES))
    loads_ms[idle.hosts] = 40.0
    found, least = optimum(instance_of(problem, latency_ms, cores, loads_ms)), by_trying(problem, latency_ms, cores, loads_ms)
    assert found is not None
    assert found.cost == pytest.approx(least, rel=1e-6)
    assert found.cost > 1.01 * idle.cost


@pytest.mark.parametrize("seed", range(3))
def test_local_search_ends_where_no_operator_has_a_better_host_with_its_load(seed: int) -> None:
    problem, latency_ms = made(DIAMOND, seed)
    loads_ms = np.random.default_rng(seed).choice([0.0, 30.0, 200.0], len(NODES))
    instance = instance_of(problem, latency_ms, loads_ms=loads_ms)
    hosts = Moves(instance, np.full(len(problem.operators), int(loads_ms.argmax()))).improve()
    others = np.repeat(hosts[None], len(NODES) * len(hosts), axis=0)
    for number, (operator, host) in enumerate(itertools.product(range(len(hosts)), range(len(NODES)))):
        others[number, operator] = host
    assert instance.evaluate(others).additive.min() == pytest.approx(float(instance.evaluate(hosts[None]).additive[0]))


@pytest.mark.parametrize("most", [400, 1])
def test_branch_and_bound_and_the_integer_programme_agree_about_full_nodes(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimal_module, "MAX_BRANCHES", most)
    for seed, cores in itertools.product(range(4), (0.3, 0.5, 0.9)):
        problem, latency_ms = made(DIAMOND, seed)
        found, best = optimum(instance_of(problem, latency_ms, cores)), by_trying(problem, latency_ms, cores)
        assert (found is None) == (best is None)
        if found is not None:
            assert found.cost == pytest.approx(best)


@pytest.mark.parametrize("links", [TREE, DIAMOND], ids=["tree", "diamond"])
@pytest.mark.parametrize("share", [0.9, 1.02, 1.3])
@pytest.mark.parametrize("seed", range(2))
def test_a_bound_on_delay_is_kept_or_refused(links: Any, share: float, seed: int) -> None:
    """Bounds are shares of the least delay there is."""
    problem, latency_ms = made(links, seed, objective=objective_named("delay=1"))
    least = by_trying(problem, latency_ms)
    assert least is not None
    bounded, _ = made(links, seed, bounds=Bounds(max_delay_ms=least * share))
    expected = by_trying(bounded, latency_ms)
    found = optimum(instance_of(bounded, latency_ms))
    assert (found is None) == (expected is None) == (share < 1)
    if found is not None:
        assert found.cost == pytest.approx(expected, rel=1e-6)
        near = exact.solve(instance_of(bounded, latency_ms))
        assert near.feasible
        assert near.cost <= 1.3 * found.cost


@pytest.mark.parametrize("links", [TREE, DIAMOND], ids=["tree", "diamond"])
def test_elimination_and_integer_programme_agree_and_marginals_are_least_costs(links: Any) -> None:
    for seed in range(5):
        problem, latency_ms = made(links, seed)
        instance = instance_of(problem, latency_ms)
        exact, whole = Elimination(*instance.factors()), milp.integer_optimum(instance)
        assert whole is not None
        fixed = whole.cost - exact.least
        for operator, least in enumerate(exact.marginals()):
            assert least.min() == pytest.approx(exact.least)
            for host in (0, 3):
                only = list(instance.candidates)
                only[operator] = np.array([host])
                forced = optimum(instance.narrowed(only))
                assert forced is not None
                assert forced.cost - fixed == pytest.approx(least[host])


def test_a_query_too_wide_for_tables_is_still_placed_well(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, latency_ms = made(DIAMOND, 3)
    instance = instance_of(problem, latency_ms)
    monkeypatch.setattr(elimination, "MAX_TABLE", 40)
    with pytest.raises(TooWideError):
        Elimination(*instance.factors())
    found, best = optimum(instance), by_trying(problem, latency_ms)
    assert found is not None
    assert best is not None
    assert found.cost == pytest.approx(best, rel=1e-6)
    assert best - 1e-9 <= exact.solve(instance).cost <= 1.1 * best


async def test_without_highspy_it_says_what_is_missing(plane: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "highspy", None)
    problem = PlacementProblem(
        pinned={"source": "p", "sink": "c"},
        operators=(Operator(id="f", needs=Needs(cores=0.6)), Operator(id="g", needs=Needs(cores=0.6))),
        edges=(Edge("source", "f", 9.0), Edge("f", "g", 9.0), Edge("g", "sink", 9.0)),
    )
    assert (
        await optimal(problem, plane({"p": (0.0,), "c": (9.0,)}, capacity={"p": 2.0, "c": 2.0}), PlacementSettings())
    ).usage > 0
    slow = msgspec.structs.replace(problem, bounds=Bounds(max_delay_ms=9.0), objective=objective_named("delay"))
    with pytest.raises(SbonError, match="highspy"):
        await optimal(slow, plane({"p": (0.0,), "c": (9.0,)}), PlacementSettings())


def test_objectives_are_names_or_weights() -> None:
    assert objective_named("usage=2, delay=3").delay == 3
    assert objective_named("delay=1") == Objective(usage=0.0, delay=1.0)
    refusals = {
        "usage=1e300": "'1e300' is no weight of usage",
        "usage=1,delay=x": "'x' is no weight of delay",
        "delay=-1": "'-1' is no weight of delay",
        "delay=nan": "'nan' is no weight of delay",
        "delay=": "'' is no weight of delay",
        "delay=1,delay=2": "delay has two weights",
        "usages": "there is no objective 'usages'",
        "usage=1,speed=3": "there is no objective 'speed=3'",
        "": "there is no objective ''",
    }
    for name, message in refusals.items():
        with pytest.raises(SbonError, match=message) as refusal:
            objective_named(name)
        assert (refusal.value.code, refusal.value.where) == ("unknown-objective", "objective")
    with pytest.raises(SbonError, match="'usage=0,delay=0' minimises nothing"):
        objective_named("usage=0,delay=0")
