"""Placements weighed against each other by what nodes said."""

from __future__ import annotations

import numpy as np
import pytest

from sbon_node.control.weigh import Known, alternative, weigh
from sbon_node.engine.interface import Needs
from sbon_node.placement.network_view import Answer
from sbon_node.placement.objective import OBJECTIVES
from sbon_node.placement.problem import Edge, Operator, PlacementProblem


def test_queues_of_busy_nodes_count_where_latency_is_minimised() -> None:
    """Two nodes as far from both ends, one of which has a load average of 0.7 a core."""
    nodes = ["busy", "idle", "p", "sink"]
    ms = np.array([[0.0, 5, 10, 10], [5, 0, 10, 10], [10, 10, 0, 20], [10, 10, 20, 0]])
    answers = {
        ("o", node): Answer(accepted=True, free=Needs(cores=1.0, memory_mb=1e3, bandwidth_bytes_s=1e6), load=load)
        for node, load in (("busy", 0.7), ("idle", 0.0))
    }
    known = Known(nodes, ms, ms, np.ones((4, 4), dtype=np.bool_), answers, {})
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
