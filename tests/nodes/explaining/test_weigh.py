"""Placements compared by the answers of nodes."""

from __future__ import annotations

import numpy as np
import pytest

from sbon_node.placement.model.network_view import Answer
from sbon_node.placement.model.objective import OBJECTIVES
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.queries.explaining.compare import Known, alternative, weigh
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.strategies import Bounds


def test_queues_of_busy_nodes_count_where_latency_is_minimised() -> None:
    """Two nodes as far from both ends, one of which has a load average of 0.7 a core."""
    nodes = ["busy", "idle", "p", "sink"]
    ms = np.array([[0.0, 5, 10, 10], [5, 0, 10, 10], [10, 10, 0, 20], [10, 10, 20, 0]])
    answers = {
        ("o", node): Answer(accepted=True, free=Needs(cores=1.0, memory_mb=1e3, bandwidth_bytes_s=1e6), load=load)
        for node, load in (("busy", 0.7), ("idle", 0.0))
    }
    known = Known(nodes, ms, ms, np.ones((4, 4), dtype=np.bool_), answers, {}, dict.fromkeys(nodes, 0.0))
    problem = PlacementProblem(
        pinned={"p": "p", "sink": "sink"},
        operators=(Operator(id="o", needs=Needs(cores=0.2), rows_s=10.0, row_core_ms=10.0),),
        edges=(Edge("p", "o", 1000.0, 10.0), Edge("o", "sink", 1000.0, 10.0)),
        objective=OBJECTIVES["latency"],
    )
    costs = {
        node: alternative("any", problem, {"o": node}, lambda a, b: float(ms[nodes.index(a), nodes.index(b)]), known).cost or 0.0
        for node in ("busy", "idle")
    }
    assert costs["busy"] > costs["idle"] + 10.0, "it waits some 30 ms"
    weighed = weigh(problem, {"o": ["busy", "idle"]}, known, {"o": "busy"})
    assert weighed.best == {"o": "idle"}
    assert {one.node: one.measured for one in weighed.candidates["o"]} == pytest.approx(costs)


def lost(at: str, away: str = "", late_ms: float | None = None, full: str = "") -> dict[str, str]:
    """Why each of three nodes lost against ``at``, of which one may be away or full: the source and the sink are at ``p``."""
    nodes = ["p", "q", "r"]
    ms = np.array([[0.0, 10, 30], [10, 0, 30], [30, 30, 0]])
    free = Needs(cores=1.0, memory_mb=1e3, bandwidth_bytes_s=1e6)
    answers = {("o", node): Answer(accepted=node != away, reason="is dead" if node == away else "", free=free) for node in nodes}
    answers |= {("n", node): Answer(accepted=False, reason="full", free=free) for node in nodes if full}
    operators = ("o", "n") if full else ("o",)
    problem = PlacementProblem(
        pinned={"p": "p", "sink": "p"},
        operators=tuple(Operator(id=name, needs=Needs(cores=0.2)) for name in operators),
        edges=(Edge("p", "o", 1000.0, 10.0), Edge("o", "sink", 1000.0, 10.0)),
        bounds=Bounds(max_delay_ms=late_ms),
    )
    known = Known(nodes, ms, ms, np.ones((3, 3), dtype=np.bool_), answers, {}, dict.fromkeys(nodes, 0.0))
    weighed = weigh(problem, dict.fromkeys(operators, nodes), known, {"o": at} if at else {})
    return {one.node: one.lost for one in weighed.candidates["o"]}


@pytest.mark.parametrize(
    "told, reasons",
    [
        (lost("p"), {"p": "", "q": "costs something, p nothing", "r": "costs something, p nothing"}),
        (lost("q"), {"p": "would cost 100.0% less: not what the strategy looks at", "q": "", "r": "costs 200.0% more"}),
        (lost("q", away="p"), {"p": "is dead", "q": "", "r": "costs 200.0% more"}),
        (lost("", away="p"), {"p": "is dead", "q": "nothing is chosen now", "r": "nothing is chosen now"}),
        (lost("r", late_ms=50.0)["p"], "would do: r, where it is, does not keep to the bounds"),
        (lost("q", full="n"), {"p": "no node has capacity for n", "q": "", "r": "no node has capacity for n"}),
    ],
    ids=["of none", "cheaper", "dead", "nothing chosen", "late", "no room for another"],
)
def test_a_node_that_lost_is_compared_with_the_current_host(told: object, reasons: object) -> None:
    assert told == reasons
