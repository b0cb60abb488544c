"""Ants at a cell: what each step does, and what comes of many."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from sbon_node.papers.ants.algorithm import routing, scouting
from sbon_node.papers.ants.algorithm.cell import FORGET_AFTER, Cell, Pheromones
from sbon_node.papers.ants.algorithm.chain import Chain, Task, next_chain
from sbon_node.papers.ants.algorithm.colony import Colony
from sbon_node.papers.ants.algorithm.routing import RoutingAnt
from sbon_node.papers.ants.algorithm.scouting import EnforcementAnt, ScoutingAnt
from sbon_node.papers.ants.algorithm.terrain import Terrain, neighbourhood
from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.model.queueing import Server, Service, busy
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.operators import Needs
from sbon_protocol.errors import SbonError

HOPS_MS = {("s", "m"): 10.0, ("m", "d"): 10.0, ("s", "n"): 15.0, ("n", "d"): 30.0, ("n", "x"): 1.0}
"""Two ways from s to d, and a dead end."""
NAMES = ("d", "m", "n", "s", "x")
PLACES = {"s": 0.0, "m": 10.0, "n": 15.0, "x": 16.0, "d": 20.0}


def alike(name: str, destination: str) -> dict[str, float]:
    return dict.fromkeys(neighbours(name), 1.0)


def neighbours(name: str) -> dict[str, float]:
    ends = [(one, other, ms) for (one, other), ms in HOPS_MS.items()]
    return {other if one == name else one: ms for one, other, ms in ends if name in (one, other)}


def cells(**servers: Server) -> dict[str, Cell]:
    return {name: Cell(name, neighbours(name), alike, servers.get(name, Server())) for name in NAMES}


def path_ms(one: str, other: str) -> float:
    return abs(PLACES[one] - PLACES[other])


def tasks(*means_ms: float) -> tuple[Task, ...]:
    return tuple(Task(operator=f"o{i}", service=Service(mean_ms=ms)) for i, ms in enumerate(means_ms))


def test_reinforcement_is_equations_1_and_2() -> None:
    pheromones = Pheromones({"a": 1.0, "b": 2.0, "c": 1.0}, now=0.0)
    pheromones.reinforce("a", 40.0, 1.0)
    assert pheromones.phi == pytest.approx({"a": 0.25 + 0.3 * 0.75, "b": 0.5 * 0.7, "c": 0.25 * 0.7})
    before = dict(pheromones.phi)
    pheromones.reinforce("b", 80.0, 2.0)
    assert pheromones.phi == pytest.approx(before), "twice as long as the mean is no good trip"
    pheromones.reinforce("b", 20.0, 3.0)
    assert pheromones.phi["b"] == pytest.approx(0.3 + 0.7 * before["b"])
    assert sum(pheromones.phi.values()) == pytest.approx(1.0)
    pheromones.discourage("b", 4.0)
    assert pheromones.phi["b"] == pytest.approx(0.7 * (0.3 + 0.7 * before["b"]))
    assert sum(pheromones.phi.values()) == pytest.approx(1.0)


def test_a_quote_is_for_the_rate_the_chain_has_now() -> None:
    cell = cells()["m"]
    chain = Chain(id="q", source="s", destination="d", tasks=tasks(5.0), rate_s=50.0)
    assert cell.quote(chain, 0, 1).load == pytest.approx(0.25)
    assert cell.quote(replace(chain, rate_s=150.0), 0, 1).load == pytest.approx(0.75)
    assert not np.isfinite(cell.quote(replace(chain, rate_s=250.0), 0, 1).cost_ms)


def test_trips_that_have_become_longer_are_good_again_after_a_while() -> None:
    pheromones = Pheromones({"a": 1.0, "b": 1.0}, now=0.0)
    for _ in range(100):
        pheromones.reinforce("a", 10.0, 0.0)
    assert not pheromones.trips.good(50.0)
    for _ in range(100):
        pheromones.reinforce("b", 50.0, 0.0)
    assert pheromones.trips.good(50.0)
    assert pheromones.phi["b"] > 0.9
    assert pheromones.trips.best_ms == 50.0, "the best is of late"


def test_an_ant_forgets_a_short_cycle_and_dies_of_a_long_one() -> None:
    at = cells(s=busy(0.5, 10.0))
    ant, chosen = routing.forward(at["s"], RoutingAnt(destination="d", path=("s",)), random.Random(1), 0.0)
    assert ant.path == ("s", chosen)
    assert ant.hops_ms == (neighbours("s")[chosen] + 10.0,), "the wait at the server, and the link"
    late = RoutingAnt(destination="d", path=("s", "n", "x", "n"), hops_ms=(15.0, 1.0, 1.0))
    back = routing.arrive(at["n"], late)
    assert back is not None
    assert (back.path, back.hops_ms) == (("s", "n"), (15.0,))
    assert routing.arrive(at["s"], RoutingAnt(destination="d", path=("s", "n", "s"), hops_ms=(15.0, 15.0))) is None
    lost = RoutingAnt(destination="d", path=("s", "n"), hops_ms=(15.0,), steps=routing.MOST_STEPS + 1)
    assert routing.arrive(at["n"], lost) is None


def test_on_its_way_back_an_ant_reinforces_each_hop() -> None:
    at = cells()
    ant = routing.arrive(at["d"], RoutingAnt(destination="d", path=("s", "n", "d"), hops_ms=(15.0, 30.0)))
    assert ant is not None
    ant, before = routing.backward(at["n"], ant, 1.0)
    assert before == "s"
    ant, before = routing.backward(at["s"], ant, 1.0)
    assert before is None
    assert at["n"].table("d", 1.0).phi["d"] == pytest.approx(1 / 3 + 0.3 * 2 / 3)
    assert at["s"].table("d", 1.0).phi["n"] == pytest.approx(0.5 + 0.3 * 0.5)
    assert at["s"].table("d", 1.0).trips.mean_ms == 45.0


@pytest.mark.parametrize("server, best", [(Server(), "m"), (busy(0.9, 20.0), "n")])
def test_most_ants_come_to_take_the_fastest_way_through_links_and_queues(server: Server, best: str) -> None:
    colony = Colony(cells(m=server), path_ms, random.Random(5))
    assert colony.route("s", "d", 200) > 50
    phi = colony.cells["s"].table("d", 0.0).phi
    assert max(phi, key=phi.__getitem__) == best
    assert phi[best] > 0.8


def test_unused_pheromones_are_destroyed() -> None:
    cell = cells()["s"]
    cell.table("d", 0.0).reinforce("m", 20.0, 0.0)
    assert cell.table("d", FORGET_AFTER).phi["m"] > 0.6
    assert cell.table("d", FORGET_AFTER + 1.0).phi["m"] == 0.5


def test_a_scout_is_as_greedy_as_it_is_and_heeds_loads() -> None:
    chain = Chain(id="q", source="s", destination="d", tasks=tasks(4.0, 4.0, 4.0), rate_s=100.0)
    at = cells(n=Server(speed=2.0))

    def placed(cell: Cell, **how: Any) -> list[tuple[int, int]]:
        ant = scouting.prospect(cell, ScoutingAnt(chain=chain, **how))
        return [(site.first, site.last) for site in ant.sites]

    assert placed(at["s"], greed=1, most_load=0.95) == [(0, 1)]
    assert placed(at["s"], greed=3, most_load=0.95) == [(0, 2)], "a third would be a load of 1.2"
    assert placed(at["n"], greed=3, most_load=0.95) == [(0, 3)]
    assert placed(at["s"], greed=3, most_load=0.5) == [(0, 1)]
    assert placed(at["s"], greed=3, most_load=0.3) == []
    assert placed(at["s"], greed=3, most_load=0.3, threshold_ms=10.0) == [(0, 1)], "4 ms and a queue of 2.7"
    assert placed(cells(s=busy(0.5, 10.0))["s"], greed=3, most_load=0.3, threshold_ms=30.0) == [], "what was there counts"


def test_scouts_put_tasks_on_the_fast_node_and_failures_discourage() -> None:
    chain = Chain(id="q", source="s", destination="d", tasks=tasks(5.0, 5.0), rate_s=10.0)
    colony = Colony(cells(m=Server(speed=10.0)), path_ms, random.Random(2))
    colony.route("s", "d", 50)
    best = colony.scout(chain, 20)[0]
    assert set(best.hosts().values()) == {"m"}
    assert best.cost_ms == best.latency_ms == pytest.approx(20 + 1 + 0.1 * 1 * (1 + 0.5) / (2 * 0.9), rel=0.2)
    heavy = Chain(id="heavy", source="s", destination="d", tasks=tasks(*(90.0,) * 4), rate_s=10.0)
    colony = Colony(cells(), path_ms, random.Random(2))
    colony.route("s", "d", 50)
    before = max(colony.cells["s"].table("d", 0.0).phi.values())
    assert colony.scout(heavy, 40) == []
    assert max(colony.cells["s"].table("d", 0.0).phi.values()) < before
    reports = colony.place(heavy, 50, 40, 6)
    assert len(set(reports[0].hosts().values())) == 4, "those that strayed found a place for each"


def test_enforcement_takes_back_what_it_did_where_the_report_is_out_of_date() -> None:
    chain = Chain(id="q", source="s", destination="d", tasks=tasks(5.0, 5.0), rate_s=50.0)
    at = cells()
    ant = ScoutingAnt(chain=chain, greed=1, most_load=0.9)
    for name in ("s", "m"):
        ant = scouting.prospect(at[name], ant)
    enforcing = scouting.enforce(at["s"], EnforcementAnt(chain=chain, sites=ant.sites))
    assert enforcing is not None
    assert at["s"].waiting_ms > 0
    at["m"].serve(busy(0.6, 5.0))
    assert scouting.enforce(at["m"], enforcing) is None
    scouting.withdraw(at["s"], enforcing)
    assert at["s"].waiting_ms == 0
    colony = Colony(at, path_ms, random.Random(1))
    fresh = colony.scout(chain, 20)[0]
    assert colony.enforce(fresh)
    assert at[fresh.sites[0].node].server.flows[-1].rate_s == 50.0


def test_queries_are_clipped_to_chains() -> None:
    """The paper's Figure 1: a query whose branches join in, and one that fans out."""
    joins = PlacementProblem(
        pinned={"P1": "1", "P2": "2", "P3": "3", "C": "c"},
        operators=tuple(Operator(id=name, row_core_ms=2.0) for name in ("F1", "F2", "F3", "J1", "J2")),
        edges=(
            Edge("P1", "F1", 1.0, 10.0),
            Edge("P3", "F2", 1.0, 10.0),
            Edge("P2", "F3", 1.0, 10.0),
            Edge("F1", "J1", 1.0, 10.0),
            Edge("F2", "J1", 1.0, 30.0),
            Edge("J1", "J2", 1.0, 20.0),
            Edge("F3", "J2", 1.0, 20.0),
            Edge("J2", "C", 1.0, 10.0),
        ),
    )
    assert chains(joins) == [
        ("1", ["F1", "J1", "J2"], "c"),
        ("3", ["F2"], "host of J1"),
        ("2", ["F3"], "host of J2"),
    ]
    first = next_chain(joins, {})
    assert first is not None
    assert [task.batch for task in first.tasks] == [1.0, 2.0, 0.5]
    assert [task.service.mean_ms for task in first.tasks] == [2.0, 8.0, 4.0], "a join's other input is work as well"
    fans = PlacementProblem(
        pinned={"P": "1", "C1": "c1", "C2": "c2", "C3": "c3"},
        operators=tuple(Operator(id=name) for name in ("F1", "S2", "A4", "A3", "A5")),
        edges=(
            Edge("P", "F1", 1.0),
            Edge("F1", "S2", 1.0),
            Edge("S2", "A4", 1.0),
            Edge("S2", "A3", 1.0),
            Edge("S2", "A5", 1.0),
            Edge("A3", "C1", 1.0),
            Edge("A4", "C2", 1.0),
            Edge("A5", "C3", 1.0),
        ),
    )
    found = chains(fans)
    assert found[0][0] == "1"
    assert found[0][1][:2] == ["F1", "S2"]
    assert {one[0] for one in found[1:]} == {"host of S2"}
    assert sorted(name for _, names, _ in found for name in names) == ["A3", "A4", "A5", "F1", "S2"]


def chains(problem: PlacementProblem) -> list[tuple[str, list[str], str]]:
    placed: dict[str, str] = {}
    found = []
    while (chain := next_chain(problem, placed)) is not None:
        names = [task.operator for task in chain.tasks]
        found.append((chain.source, names, chain.destination))
        placed |= {name: f"host of {name}" for name in names}
    return found


def test_neighbours_have_no_node_between_them_and_all_nodes_are_connected() -> None:
    rng = np.random.default_rng(4)
    places = rng.random((40, 2))
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    linked = neighbourhood(apart)
    for one in range(40):
        for other in range(40):
            between = np.maximum(apart[one], apart[other])
            between[[one, other]] = np.inf
            assert linked[one, other] == (one != other and bool(between.min() >= apart[one, other]))
    reached, waiting = {0}, [0]
    while waiting:
        fresh = set(np.flatnonzero(linked[waiting.pop()]).tolist()) - reached
        reached |= fresh
        waiting += fresh
    assert len(reached) == 40
    assert neighbourhood(np.zeros((6, 6))).sum() >= 10, "nodes at one place are connected as well"
    terrain = Terrain([f"{i}" for i in range(40)], apart)
    weights = terrain.weights("0", "7")
    assert weights.keys() == terrain.neighbours["0"].keys()
    onward = max(weights, key=weights.__getitem__)
    assert terrain.path_ms(onward, "7") < terrain.path_ms("0", "7")


@pytest.mark.parametrize("name", ["ants", "centralized"])
async def test_a_joining_query_avoids_the_busy_and_the_full(name: str, plane: Any) -> None:
    points = {"p1": (0.0, 0.0), "p2": (0.0, 40.0), "c": (100.0, 0.0), **{f"n{i}": (10.0 * i, 5.0) for i in range(1, 10)}}
    problem = PlacementProblem(
        pinned={"a": "p1", "b": "p2", "consumer": "c"},
        operators=(
            Operator(id="f", needs=Needs(cores=0.4), row_core_ms=5.0),
            Operator(id="j", needs=Needs(cores=0.4), row_core_ms=8.0, refused=frozenset({"n4"})),
        ),
        edges=(Edge("a", "f", 4e3, 40.0), Edge("f", "j", 2e3, 20.0), Edge("b", "j", 2e3, 20.0), Edge("j", "consumer", 1e3, 10.0)),
    )
    full = dict.fromkeys(("p1", "p2", "c", "n1", "n2", "n3"), 0.1)
    placed = await STRATEGIES[name](problem, plane(points, capacity=full), PlacementSettings())
    hosts = placed.hosts()
    assert not set(hosts.values()) & set(full)
    assert hosts["j"] != "n4"
    assert placed.probes <= len(points) + 2
    with pytest.raises(SbonError) as refused:
        await STRATEGIES[name](problem, plane(points, capacity=dict.fromkeys(points, 0.3)), PlacementSettings())
    assert refused.value.code == "no-capacity"


async def test_machines_with_more_to_do_than_they_can_take_a_little_and_no_more(plane: Any) -> None:
    points = {"p": (0.0, 0.0), "c": (100.0, 0.0), **{f"n{i}": (10.0 * i, 5.0) for i in range(1, 10)}}
    busy_everywhere = plane(points)
    busy_everywhere.busy = 4.0
    for row_ms, fits in ((2.0, True), (8.0, False)):
        problem = PlacementProblem(
            pinned={"a": "p", "consumer": "c"},
            operators=(Operator(id="f", needs=Needs(cores=0.4), rows_s=40.0, row_core_ms=row_ms),),
            edges=(Edge("a", "f", 4e3, 40.0), Edge("f", "consumer", 2e3, 20.0)),
        )
        if fits:
            assert (await STRATEGIES["ants"](problem, busy_everywhere, PlacementSettings())).hosts()
        else:
            with pytest.raises(SbonError) as refused:
                await STRATEGIES["ants"](problem, busy_everywhere, PlacementSettings())
            assert refused.value.code == "no-capacity"
            assert "busy for 1.12 s each second" in refused.value.details[0]
