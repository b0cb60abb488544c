"""The benchmark of planning, on real Spark, quickly; and what has no figure where a peer refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sbon_lab.bench.planning import median_ms, medians, run
from sbon_protocol.errors import SbonError

COLUMNS = ["query", "operators", "read_ms", "push_down_ms", "cut_ms", "plan_ms", "analyse_ms", "sqlglot_ms", "spark_ms"]


def test_a_peer_that_refuses_has_no_figure_and_other_errors_are_not_hidden() -> None:
    def refuse() -> None:
        raise SbonError("no", "not this one")

    assert median_ms(refuse, 3, SbonError) is None
    with pytest.raises(SbonError):
        median_ms(refuse, 3, KeyError)
    rows = [{"query": name, "a_ms": value} for name, value in (("x", 1.0), ("y", None), ("z", 3.0))]
    assert medians(rows) == {"query": "median", "a_ms": 2.0}


def test_a_query_that_is_not_of_the_suite_is_named_before_anything_starts() -> None:
    with pytest.raises(SbonError, match="no query 'join_wether'"):
        run(["nexmark_q0", "join_wether"])


@pytest.mark.live
@pytest.mark.only_in_test_all("benchmarks on Spark")
def test_each_step_of_planning_has_a_figure() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sbon_cli.main",
            "bench",
            "planning",
            "--turns",
            "1",
            "-q",
            "nexmark_q0",
            "-q",
            "join_weather",
            "--json",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert result["name"] == "planning"
    assert [list(row) for row in result["rows"]] == [COLUMNS] * 3
    for row in result["rows"]:
        assert all(row[name] > 0 for name in COLUMNS[1:7])
    assert [row["query"] for row in result["rows"]] == ["nexmark_q0", "join_weather", "median"]
