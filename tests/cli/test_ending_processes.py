"""The end of processes that a local cluster leaves behind: those that end by themselves are not killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sbon.local.processes import MARK, end_all, processes_of


@pytest.mark.parametrize("lives_s, grace_s, killed", [(1.0, 30.0, 0), (60.0, 0.5, 1), (60.0, 0.0, 1)])
def test_only_processes_that_outlive_the_grace_are_killed(tmp_path: Path, lives_s: float, grace_s: float, killed: int) -> None:
    mark = f"mark-{os.getpid()}-{lives_s}-{grace_s}"
    command = [sys.executable, "-S", "-c", f"import time; time.sleep({lives_s})"]
    with subprocess.Popen(command, env={MARK: mark}) as process:
        deadline = time.monotonic() + 30.0
        while not processes_of(mark, tmp_path) and process.poll() is None:
            assert time.monotonic() < deadline
        assert end_all(mark, tmp_path, grace_s=grace_s) == killed
        assert processes_of(mark, tmp_path) == []
