"""Scouts that pass through tasks which run for others already (ANTS, section 3.10)."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from sbon_node.papers.ants.algorithm import scouting
from sbon_node.papers.ants.algorithm.cell import Cell
from sbon_node.papers.ants.algorithm.chain import Chain, Running, Task, next_chain
from sbon_node.papers.ants.algorithm.colony import Colony
from sbon_node.papers.ants.algorithm.scouting import EnforcementAnt, ScoutingAnt, Site, own_part, passing
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.model.queueing import Service, busy

PLACES = {"s": 0.0, "m": 10.0, "d": 20.0, "x": 35.0}
HOPS = {"s": ("m",), "m": ("s", "d"), "d": ("m", "x"), "x": ("d",)}
"""Rows go from s over m to d; x is behind d."""


def path_ms(one: str, other: str) -> float:
    return abs(PLACES[one] - PLACES[other])


def cells() -> dict[str, Cell]:
    weights = {name: dict.fromkeys(ends, 1.0) for name, ends in HOPS.items()}
    hops_ms = {name: {end: path_ms(name, end) for end in ends} for name, ends in HOPS.items()}
    return {name: Cell(name, hops_ms[name], lambda name, _: weights[name], busy(0.5, 5.0)) for name in PLACES}


def a_chain(tasks: int, *running: Running) -> Chain:
    each = tuple(Task(operator=f"o{i}", service=Service(mean_ms=5.0), batch=0.5) for i in range(tasks))
    return Chain(id="q", source="s", destination="d", tasks=each, rate_s=50.0, running=running)


def best(chain: Chain) -> tuple[dict[str, str], float]:
    report = Colony(cells(), path_ms, random.Random(1)).place(chain, 20, 20, 1)[0]
    return report.hosts(), report.cost_ms


def test_a_task_that_runs_at_a_cell_costs_no_work_there_again() -> None:
    chain, cell = a_chain(3, Running(1, "m")), cells()["m"]
    assert cell.quote(chain, 0, 2).load == pytest.approx(0.5)
    assert cell.quote(chain, 0, 2).cost_ms == cell.waiting_ms
    assert cell.quote(chain, 0, 3).load == pytest.approx(0.5 + 50.0 * 0.25 * 0.005), "the third task alone is work"
    assert cell.quote(chain, 1, 2).load > 0.5, "tasks before it were placed elsewhere: it has not their rows"
    assert cells()["d"].quote(chain, 0, 2).load > 0.5
    cell.book(chain, 0, 2)
    assert cell.server == busy(0.5, 5.0)
    cell.book(chain, 0, 3)
    assert cell.server.flows[-1].rate_s == 50.0 * 0.25
    cell.release(chain, 0)
    assert cell.server == busy(0.5, 5.0)


@pytest.mark.parametrize(
    ("running", "fed_ms", "host"),
    [("m", 0.0, "m"), ("x", 0.0, "x"), ("m", 10.0, "m"), ("x", 35.0, None)],
)
def test_scouts_pass_through_a_running_task_where_that_is_cheaper(running: str, fed_ms: float, host: str | None) -> None:
    """Also through one that is not on the way; from x rows go back to d, and 35 ms up to x are too much if they count."""
    hosts, cost_ms = best(a_chain(1, Running(0, running, fed_ms)))
    own_ms = best(a_chain(1))[1]
    assert (hosts["o0"] == running) == (host == running)
    waiting_ms = cells()[running].waiting_ms
    assert cost_ms == pytest.approx(waiting_ms + fed_ms + path_ms(running, "d") if host else own_ms)
    assert cost_ms <= own_ms


def test_a_scout_that_has_placed_more_does_not_go_back_to_a_running_task() -> None:
    chain, at = a_chain(3, Running(0, "m")), cells()
    ant = ScoutingAnt(chain=chain, greed=2, most_load=0.95)
    placed = scouting.prospect(at["m"], scouting.prospect(at["s"], ant))
    assert [(site.node, site.first, site.last) for site in placed.sites] == [("s", 0, 2), ("m", 2, 3)]
    placed = scouting.prospect(at["m"], scouting.prospect(at["s"], replace(ant, greed=1)))
    assert [(site.node, site.first, site.last) for site in placed.sites] == [("m", 0, 2)]


def test_a_scout_passes_through_a_task_on_a_server_that_could_take_no_work_more() -> None:
    chain, at = a_chain(2, Running(0, "m")), cells()
    placed = scouting.prospect(at["m"], ScoutingAnt(chain=chain, greed=2, most_load=0.3, path=("s",)))
    assert [(site.node, site.first, site.last) for site in placed.sites] == [("m", 0, 1)]


def test_every_second_scout_looks_for_a_running_task_and_each_gets_its_turn() -> None:
    cell, chain = cells()["s"], a_chain(2, Running(0, "d"), Running(0, "s"), Running(0, "x"))
    ant = ScoutingAnt(chain=chain, greed=1, most_load=0.9)
    assert [scouting.follows(cell, ant, number)[1] for number in range(7)] == [None, "d", None, None, None, "x", None]
    assert scouting.follows(cell, ant, 1)[0].path == ("s",)
    assert scouting.follows(cell, replace(ant, path=("d",)), 1)[1] is None, "it has begun"


def test_scouts_that_fail_behind_a_running_task_discourage_neighbours_alone() -> None:
    """s sends scouts to x, which is no neighbour of s, and has no pheromone there."""
    needy = replace(a_chain(2, Running(0, "x")).tasks[1], refused=frozenset(PLACES))
    chain = replace(a_chain(2, Running(0, "x")), tasks=(a_chain(1).tasks[0], needy))
    assert Colony(cells(), path_ms, random.Random(1)).scout(chain, 60) == []


def test_the_own_part_of_a_placement_begins_at_the_running_task() -> None:
    chain = a_chain(4, Running(1, "m", 7.0))
    sites = tuple(
        Site(node=node, first=first, last=last, own_ms=9.0, others_ms=1.0) for node, first, last in (("m", 0, 3), ("d", 3, 4))
    )
    own, left = own_part(chain, sites)
    assert (own.source, own.destination, [task.operator for task in own.tasks]) == ("m", "d", ["o2", "o3"])
    assert own.rate_s == 50.0 * 0.25
    assert [(site.node, site.first, site.last, site.own_ms) for site in left] == [("m", 0, 1, 2.0), ("d", 1, 2, 9.0)]
    at = cells()
    assert at["m"].quote(own, 0, 1).cost_ms == pytest.approx(at["m"].quote(chain, 0, 3).cost_ms - 7.0)
    assert scouting.exceeds(at["m"], EnforcementAnt(chain=own, sites=(replace(left[0], own_ms=0.0, others_ms=0.0),)))
    whole = (replace(sites[0], last=4),)
    assert own_part(replace(chain, running=(Running(3, "m"),)), whole)[1] == ()
    assert own_part(replace(chain, running=()), sites) == (replace(chain, running=()), sites)


def test_what_feeds_a_running_task_alone_needs_no_place() -> None:
    """a and b feed c; a feeds e as well."""
    links = [("p", "a"), ("p", "b"), ("a", "c"), ("b", "c"), ("c", "sink"), ("a", "e"), ("e", "sink")]
    problem = PlacementProblem(
        pinned={"p": "s", "sink": "d"},
        operators=tuple(Operator(id=name) for name in "abce"),
        edges=tuple(Edge(*link, 1.0, 10.0) for link in links),
    )
    left = passing(problem, "c", "m")
    assert [one.id for one in left.operators] == ["a", "e"]
    assert [(edge.source, edge.target) for edge in left.edges] == [("p", "a"), ("c", "sink"), ("a", "e"), ("e", "sink")]
    assert left.pinned == {"p": "s", "sink": "d", "c": "m"}
    chain = next_chain(left, {})
    assert chain is not None
    assert [task.operator for task in chain.tasks] == ["a", "e"]
    assert passing(passing(problem, "e", "m"), "c", "m").operators == ()
