"""The suite over real daemons and Spark, through three nodes or more, against DuckDB's rows.

``make test`` runs a query for each shape of a stage, and a third of those that only Spark can evaluate; the others run in virtual
time.
"""

from __future__ import annotations

import pytest

from sbon_node.experiments.suite.cases import Case, cases, simulated
from sbon_node.experiments.suite.reference import Reference, differences, stored
from tests.suite.runs import Runs
from tests.suite.shapes import SAMPLE

pytestmark = pytest.mark.live


LEFT_OUT = {case.name for case in simulated()} - {*SAMPLE}
THOROUGH = pytest.mark.thorough("suite queries on Spark")
DRAWN = pytest.mark.drawn("queries that only Spark can evaluate", parts=3)
CASES = [
    pytest.param(case, id=case.name, marks=THOROUGH if case.name in LEFT_OUT else () if case.name in SAMPLE else DRAWN)
    for case in cases()
]


@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_of_duckdb(case: Case, runs: Runs, reference: Reference) -> None:
    info, path = runs.over(case)
    nodes = {info.consumer, *(operator.node for operator in info.operators)}
    assert len(nodes) >= 3, info.placement
    assert differences(stored(path), reference.answer(case)) == []
