"""The objective "latency by queueing": what a whole query takes through links and servers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from sbon_lab.experiments.ants.chain_optimum import delayed_ms
from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model.objective import cost, latency_by_queueing, objective_named
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.model.queueing import (
    Flow,
    Server,
    Service,
    ThroughServers,
    no_traffic,
    service_of,
    side_by_side,
    traffic_of,
    waiting_ms,
)
from sbon_node.placement.model.queueing import latency_ms as through
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.strategies import AUTO, Objective
from sbon_protocol.errors import SbonError
from tests.placement.placing import place

NODES = ("a", "b", "c", "d")
AWAY_MS = dict(zip(NODES, (0.0, 20.0, 30.0, 60.0), strict=True))


def latency(one: str, other: str) -> float:
    return abs(AWAY_MS[one] - AWAY_MS[other])


def chain(objective: str = "latency") -> PlacementProblem:
    return PlacementProblem(
        pinned={"p": "a", "consumer": "d"},
        operators=(
            Operator(id="x", needs=Needs(cores=0.1), row_core_ms=4.0, row_scv=0.5),
            Operator(id="y", needs=Needs(cores=0.1), row_core_ms=6.0, row_scv=0.0),
        ),
        edges=(Edge("p", "x", 1000.0, 50.0), Edge("x", "y", 500.0, 25.0), Edge("y", "consumer", 100.0, 5.0)),
        objective=objective_named(objective),
    )


X, Y = Service(mean_ms=4.0, scv=0.5), Service(mean_ms=6.0, scv=0.0)


def test_operators_beside_each_other_are_one_flow() -> None:
    together = Flow(rate_s=50.0, service=service_of([(X, 0.5), (Y, 0.2)]))
    found = latency_by_queueing(chain(), {"x": "b", "y": "b"}, latency, {"b": Server(speed=2.0)})
    assert found.longest_ms[0] == pytest.approx(60 + float(through(together, 2.0, no_traffic())))
    assert found.others_ms[0] == 0


def test_apart_each_has_a_queue_of_its_own_and_others_wait_longer() -> None:
    first, second = Flow(rate_s=50.0, service=X), Flow(rate_s=25.0, service=Y)
    here = Flow(rate_s=40.0, service=Service(mean_ms=10.0))
    found = latency_by_queueing(chain(), {"x": "b", "y": "c"}, latency, {"c": Server(flows=(here, here))})
    others = traffic_of(here).plus(traffic_of(here))
    expected = 60 + float(through(first, 1.0, no_traffic())) + float(through(second, 1.0, others))
    assert found.longest_ms[0] == pytest.approx(expected)
    assert found.others_ms[0] == pytest.approx(float(delayed_ms(second, 1.0, others)))
    assert cost(chain(), {"x": "b", "y": "c"}, latency, {"c": Server(flows=(here, here))}) == pytest.approx(
        expected + float(delayed_ms(second, 1.0, others)), rel=1e-6
    )


def test_the_longest_way_of_a_join_and_both_streams_in_its_queue() -> None:
    problem = PlacementProblem(
        pinned={"p": "a", "q": "b", "consumer": "d"},
        operators=(Operator(id="f", row_core_ms=2.0), Operator(id="j", row_core_ms=5.0)),
        edges=(
            Edge("p", "f", 1000.0, 60.0),
            Edge("f", "j", 500.0, 30.0),
            Edge("q", "j", 500.0, 40.0),
            Edge("j", "consumer", 100.0, 5.0),
        ),
    )
    own = traffic_of(Flow(rate_s=60.0, service=service_of([(Service(mean_ms=2.0), 0.5), (Service(mean_ms=5.0), 1.0)])))
    both = own.plus(traffic_of(Flow(rate_s=40.0, service=Service(mean_ms=5.0))))
    found = latency_by_queueing(problem, {"f": "c", "j": "c"}, latency, {})
    assert found.longest_ms[0] == pytest.approx(60 + float(waiting_ms(both)) + 2 + 0.5 * 5), "p is the farther one"
    near = latency_by_queueing(problem, {"f": "a", "j": "c"}, latency, {})
    apart = traffic_of(Flow(rate_s=70.0, service=Service(mean_ms=5.0)))
    assert near.longest_ms[0] > 60 + float(waiting_ms(apart)) + 5 + 2


def test_many_placements_at_once_are_as_one_by_one() -> None:
    busy = Server(speed=0.5, flows=(Flow(rate_s=10.0, service=Service(mean_ms=20.0)),))
    servers = {"a": busy, "b": Server(speed=3.0), "c": busy}
    placements = list(itertools.product(NODES, repeat=2))
    number = {node: i for i, node in enumerate(NODES)}
    between = np.array([[latency(one, other) for other in NODES] for one in NODES])
    known = side_by_side([servers.get(node, Server()) for node in NODES])
    whole = ThroughServers(chain(), between, [0, 3], *known).evaluate(
        np.array([[number[one], number[other]] for one, other in placements])
    )
    for row, (one, other) in enumerate(placements):
        alone = latency_by_queueing(chain(), {"x": one, "y": other}, latency, servers)
        assert [ms[row] for ms in whole] == pytest.approx([ms[0] for ms in alone])
    assert whole.longest_ms.argmin() == placements.index(("b", "b")), "the fast one on the way"


def test_it_has_a_name_and_a_weight() -> None:
    assert objective_named("latency").latency == 1.0
    assert objective_named("usage=2,latency=3") == Objective(usage=2.0, delay=0.0, bandwidth=0.0, latency=3.0)
    assert not objective_named("latency").additive


async def test_the_optimum_refuses_it_and_hybrid_takes_it(plane: Any) -> None:
    points = {"a": (0.0, 0.0), "b": (20.0, 0.0), "c": (30.0, 0.0), "d": (60.0, 0.0)}
    with pytest.raises(SbonError, match="not linear"):
        await STRATEGIES["optimal"](chain(), plane(points), PlacementSettings())
    taken = await place(chain(), plane(points), PlacementSettings(), AUTO)
    assert taken.strategy == "hybrid"
    hosts = (await STRATEGIES["hybrid"](chain(), plane(points), PlacementSettings())).hosts()
    assert taken.hosts() == hosts
    costs = {pair: cost(chain(), {"x": pair[0], "y": pair[1]}, latency) for pair in itertools.product(NODES, repeat=2)}
    assert costs[hosts["x"], hosts["y"]] == pytest.approx(min(costs.values()))
