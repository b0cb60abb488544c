"""A disk that is really full under a checkpoint: the operator stops with that reason, loses nothing, and resumes with room."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.engine import full_at_first
from tests.engine.no_space import FRAMES, ROWS

pytestmark = pytest.mark.live


def told_by(module: str, folder: Path) -> Any:
    """In a mount namespace of its own: nothing stays mounted, whatever dies."""
    alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    done = subprocess.run([*alone, sys.executable, "-m", module, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("told ")).removeprefix("told "))


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
def test_an_operator_whose_checkpoint_has_no_room_waits_for_it(tmp_path: Path) -> None:
    told = told_by("tests.engine.no_space", tmp_path)

    oracle = duckdb.sql(f"SELECT k * 2 FROM range({FRAMES * ROWS}) AS t(k) WHERE k % 3 = 0 ORDER BY k").fetchall()
    assert "no space for the checkpoint" in told["reason"]
    assert told["shown_while_full"] == 0
    assert told["rows"] == [k for (k,) in oracle]
    assert told["failed"] == 0


@pytest.mark.only_in_test_all("first batches on full disks")
def test_a_first_batch_without_room_waits_for_it_wherever_the_disk_was_full(tmp_path: Path) -> None:
    (tmp_path / "operators").mkdir()
    told = told_by("tests.engine.full_at_first", tmp_path)

    sql = f"SELECT k % 7 AS k, count(*) AS n FROM range({full_at_first.ROWS}) AS t(k) GROUP BY k % 7, k // 60 ORDER BY ALL"
    oracle = duckdb.sql(sql).fetchall()
    assert len(told) == len(full_at_first.PAGES)
    for operator, was in told.items():
        stopped = [reason for state, reason in was["states"] if state == "stopped"]
        assert stopped, operator
        assert all("no space for the checkpoint" in reason for reason in stopped), operator
        assert "failed" not in [state for state, _ in was["states"]], was["states"]
        assert sorted((row["k"], row["n"]) for row in was["rows"]) == oracle, operator
        assert len(was["left"]) <= 1, operator
