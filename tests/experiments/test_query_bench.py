"""The benchmark of small queries: its medians, and a short run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sbon_lab.commands.bench_query import CASES, STEPS, Times, row_of


def test_a_row_has_the_medians_over_its_runs() -> None:
    runs = [Times(dict.fromkeys(STEPS, s), s + 1, s + 2, s + 3, s + 4, 10, s + 5) for s in (0.5, 9.0, 0.25)]
    row = row_of("filter", "warm", runs)
    assert row == {
        "case": "filter",
        "kind": "warm",
        "runs": 3,
        "rows": 10,
        **{f"{step}_s": 0.5 for step in STEPS},
        "accepted_s": 1.5,
        "first_row_s": 2.5,
        "last_row_s": 3.5,
        "end_s": 4.5,
        "cpu_s": 5.5,
    }


@pytest.mark.live
@pytest.mark.only_in_test_all("small queries on a local cluster")
def test_a_short_run_splits_each_query_by_step() -> None:
    command = [sys.executable, "-m", "sbon_cli.main", "bench", "query", "--turns", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["case"], row["kind"]) for row in rows] == [
        (case, kind) for case in CASES for kind in ("new" if case != "filter" else "cold", "warm")
    ]
    for row in rows:
        assert row["rows"] > 0
        assert row["cpu_s"] > 0
        steps_s = sum(row[f"{step}_s"] for step in STEPS)
        assert 0 < steps_s <= row["accepted_s"] <= row["first_row_s"] <= row["last_row_s"] <= row["end_s"]
