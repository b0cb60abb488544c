"""The engine's benchmark: rows of frames as they are meant, and the whole of it on real Spark, quickly."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import psutil
import pytest

from sbon_node.connectors.frames import decode
from sbon_node.experiments import footprint
from sbon_node.experiments.bench_rows import Outputs, Rows

METRICS = ["start_s", "latency_p50_ms", "latency_p95_ms", "filter_rows_s", "idle_cores", "memory_mb"]


def test_frames_hold_the_rows_they_say_and_one_that_passes_at_least() -> None:
    rows = Rows(7, 25, 10)
    tables = [decode(draft.payload) for draft in rows.drafts]
    assert [table.num_rows for table in tables] == [draft.rows for draft in rows.drafts] == [10, 10, 5]
    assert [sum(v > 0.5 for v in table["v"].to_pylist()) for table in tables] == rows.passing
    assert min(rows.passing) >= 1
    assert [draft.payload for draft in rows.drafts] == [draft.payload for draft in Rows(7, 25, 10).drafts]


async def test_rows_are_out_when_the_batch_that_completes_them_is() -> None:
    outputs = Outputs()
    outputs.add(3, 1.0)
    waiting = asyncio.ensure_future(outputs.wait(4))
    await asyncio.sleep(0)
    assert not waiting.done()
    outputs.add(0, 2.0)
    outputs.add(4, 3.0)
    assert [await outputs.wait(3), await waiting, await outputs.wait(7)] == [1.0, 3.0, 3.0]


def test_a_process_that_began_meanwhile_counts_from_its_begin_and_one_that_ended_not() -> None:
    assert footprint.cpu_since({1: 2.0, 2: 5.0}, {1: 3.0, 3: 0.5}) == 1.5
    assert footprint.memory_mb([psutil.Process(os.getpid())]) > 1


@pytest.mark.live
def test_every_figure_is_given_for_both_sides() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sbon_cli.main", "bench", "engine", "--quick", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert result["name"] == "engine"
    assert [row["metric"] for row in result["rows"]] == METRICS
    for row in result["rows"]:
        assert set(row) == {"metric", "ours", "bare", "ratio"}
        assert row["ours"] > 0
        assert row["bare"] > 0
        assert row["ratio"] == pytest.approx(row["ours"] / row["bare"], rel=0.1)
