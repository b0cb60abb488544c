"""The suite over real daemons and Spark, through three nodes or more, against DuckDB's rows.

``make test`` runs parts of three groups: queries with each kind of operator, those with each shape of a stage, and those that
only Spark can evaluate. The others run in virtual time.
"""

from __future__ import annotations

import pytest

from sbon_lab.suite.cases import Case, cases, simulated
from sbon_lab.suite.reference import Reference, differences, stored
from tests.suite.runs import Runs
from tests.suite.shapes import KINDS, SAMPLE

pytestmark = pytest.mark.live


LEFT_OUT = {case.name for case in simulated()} - {*KINDS, *SAMPLE}
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("suite queries on Spark")
OF_EACH_KIND = [pytest.param(case, id=case.name) for case in cases() if case.name in KINDS]
OTHERS = [
    pytest.param(case, id=case.name, marks=ONLY_IN_TEST_ALL if case.name in LEFT_OUT else ())
    for case in cases()
    if case.name not in KINDS
]


@pytest.mark.one_part_per_commit("suite queries of each kind of operator", parts=8)
@pytest.mark.parametrize("case", OF_EACH_KIND)
def test_rows_of_each_kind_of_operator_are_those_of_duckdb(case: Case, runs: Runs, reference: Reference) -> None:
    assert_right(case, runs, reference)


@pytest.mark.one_part_per_commit("suite queries of each shape, or that only Spark can evaluate,", parts=6)
@pytest.mark.parametrize("case", OTHERS)
def test_rows_are_those_of_duckdb(case: Case, runs: Runs, reference: Reference) -> None:
    assert_right(case, runs, reference)


def assert_right(case: Case, runs: Runs, reference: Reference) -> None:
    info, path = runs.over(case)
    nodes = {info.consumer, *(operator.node for operator in info.operators)}
    assert len(nodes) >= 3, info.placement
    assert differences(stored(path), reference.answer(case)) == []
