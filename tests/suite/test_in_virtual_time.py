"""The suite over whole daemons in virtual time, against DuckDB's answers over the whole input.

This test covers the passage of watermarks; the suite on Spark covers the evaluation of values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import zip_longest

import pytest
import structlog

from sbon_lab.suite.cases import Case, simulated
from sbon_lab.suite.reference import Reference, differences
from sbon_lab.suite.streams import SuiteStream, write_streams
from tests.suite.virtual import planned, run_cases

PLAYED = simulated()
AT_ONCE = 4
GROUPS = [PLAYED[first : first + AT_ONCE] for first in range(0, len(PLAYED), AT_ONCE)]
"""The cases that run at once on one cluster."""
PARTS = 20
"""``make test`` runs one group in so many, some ten seconds of processor time each."""
IN_TURNS = [
    case
    for groups in zip_longest(*(GROUPS[part::PARTS] for part in range(PARTS)), fillvalue=())
    for cases in zip_longest(*groups)
    for case in cases
    if case is not None
]
CUT_OFF = [PLAYED[first::20] for first in (0, 10)]
KILLED = [case for case in PLAYED if case.name in ("aggregate_twice", "join_left", "union_aggregated", "joined_with_own_window")]

Found = Callable[[Case], list[str]]


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SuiteStream]]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield write_streams(tmp_path_factory.mktemp("input"))
    structlog.reset_defaults()


@pytest.fixture(scope="module")
def found(streams: dict[str, SuiteStream]) -> Found:
    """Return the differences in a case's rows; several cases run at once."""
    reference = Reference(streams)
    known: dict[str, list[str]] = {}

    def of(case: Case) -> list[str]:
        if case.name not in known:
            number = PLAYED.index(case) // AT_ONCE
            group = GROUPS[number]
            outcome, rows = run_cases(group, streams, seed=number * AT_ONCE)
            for one in group:
                known[one.name] = [outcome.failure] if outcome.failure else differences(rows[one.name], reference.answer(one))
        return known[case.name]

    return of


@pytest.mark.one_part_per_commit("suite queries in virtual time", parts=4 * PARTS)
@pytest.mark.parametrize("case", IN_TURNS, ids=lambda case: case.name)
def test_the_rows_are_those_of_duckdb(case: Case, found: Found) -> None:
    assert not found(case)


@pytest.mark.one_part_per_commit("suite queries in virtual time whose nodes die", parts=6)
@pytest.mark.parametrize("seed, case", list(enumerate(KILLED)), ids=[case.name for case in KILLED])
def test_rows_equal_duckdbs_whichever_node_dies(streams: dict[str, SuiteStream], seed: int, case: Case) -> None:
    outcome, rows = run_cases([case], streams, seed, random_faults=5)
    assert not outcome.failure
    assert not differences(rows[case.name], Reference(streams).answer(case))


@pytest.mark.one_part_per_commit("suites of partial aggregates in virtual time", parts=32)
@pytest.mark.parametrize("seed", range(8))
def test_partial_aggregates_without_state_give_duckdbs_rows_whichever_node_dies(
    streams: dict[str, SuiteStream], seed: int
) -> None:
    grouping = [case for case in PLAYED if any(operator.groups_per_batch for operator in planned(case, streams).operators)]
    assert len(grouping) >= 8
    chosen = grouping[seed::8][:2]
    outcome, rows = run_cases(chosen, streams, seed, random_faults=4 if seed else 0, per_batch=True)
    assert not outcome.failure
    reference = Reference(streams)
    assert not [difference for case in chosen for difference in differences(rows[case.name], reference.answer(case))]


@pytest.mark.one_part_per_commit("suite queries in virtual time whose submitting node is cut off", parts=8)
@pytest.mark.parametrize("part", range(len(CUT_OFF)))
def test_rows_equal_duckdbs_while_the_submitting_node_is_cut_off(streams: dict[str, SuiteStream], part: int) -> None:
    """A partition is no death: that node lives, and cannot say so."""
    chosen = CUT_OFF[part]
    outcome, rows = run_cases(chosen, streams, seed=part, partitioned="office")
    assert not outcome.failure
    reference = Reference(streams)
    assert not [difference for case in chosen for difference in differences(rows[case.name], reference.answer(case))]
