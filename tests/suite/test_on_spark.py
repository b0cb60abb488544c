"""Every query of the suite over real daemons and Spark, through three nodes or more: the rows that DuckDB finds."""

from __future__ import annotations

import pytest

from sbon_node.experiments.suite.cases import Case, cases
from sbon_node.experiments.suite.reference import Reference, differences, stored
from tests.suite.runs import Runs

pytestmark = pytest.mark.live


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_rows_are_those_of_duckdb(case: Case, runs: Runs, reference: Reference) -> None:
    info, path = runs.over(case)
    nodes = {info.consumer, *(operator.node for operator in info.operators)}
    assert len(nodes) >= 3, info.placement
    assert differences(stored(path), reference.answer(case)) == []
