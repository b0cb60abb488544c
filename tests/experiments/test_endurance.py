"""An engine after many queries is as it was after few: the benchmark, shortened, on real Spark."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

QUERIES = 40


@pytest.mark.live
@pytest.mark.only_in_test_all("benchmarks on Spark")
def test_threads_descriptors_and_heap_stay_what_they_are() -> None:
    """Seconds a query are told, and those of so few say nothing."""
    command = [sys.executable, "-m", "sbon_cli.main", "bench", "endurance", "--queries", str(QUERIES), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    rows = {row["metric"]: row for row in json.loads(done.stdout)["rows"]}
    assert set(rows) == {"query_s", "threads", "descriptors", "heap_mb"}
    for metric, most in (("threads", 0.05), ("descriptors", 0.05), ("heap_mb", 0.15)):
        assert rows[metric]["first"] > 1
        assert rows[metric]["grown"] <= most, rows
    for row in rows.values():
        assert row["within"] == (row["grown"] <= 0.05)
