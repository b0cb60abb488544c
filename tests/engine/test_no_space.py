"""A disk that is really full under a checkpoint: the operator stops with that reason, loses nothing, and resumes with room."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.engine.no_space import FRAMES, ROWS

pytestmark = pytest.mark.live


def test_an_operator_whose_checkpoint_has_no_room_waits_for_it(tmp_path: Path) -> None:
    # In a mount namespace of its own: nothing stays mounted, whatever dies.
    alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    done = subprocess.run(
        [*alone, sys.executable, "-m", "tests.engine.no_space", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("told ")).removeprefix("told "))

    oracle = duckdb.sql(f"SELECT k * 2 FROM range({FRAMES * ROWS}) AS t(k) WHERE k % 3 = 0 ORDER BY k").fetchall()
    assert "no room for the checkpoint" in told["reason"]
    assert told["shown_while_full"] == 0
    assert told["rows"] == [k for (k,) in oracle]
    assert told["failed"] == 0
