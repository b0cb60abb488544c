"""A test run that is killed leaves no daemon behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parent.parent
RUN = """
import subprocess, sys
from tests.guardian import Guardian

guardian = Guardian()
daemon = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, start_new_session=True)
print(daemon.pid, flush=True)
sys.stdin.readline()
guardian.end()
"""


@pytest.fixture
def run() -> subprocess.Popen[str]:
    """A run of tests that has started a daemon of its own session."""
    return subprocess.Popen(
        [sys.executable, "-c", RUN], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def daemon_of(run: subprocess.Popen[str]) -> psutil.Process:
    assert run.stdout is not None
    return psutil.Process(int(run.stdout.readline()))


def test_a_killed_run_takes_its_daemons_with_it(run: subprocess.Popen[str]) -> None:
    with run:
        daemon = daemon_of(run)
        os.kill(run.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30.0
    while daemon.is_running() and daemon.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the daemon outlives the run"
        time.sleep(0.05)


def test_a_run_that_ends_by_itself_kills_nothing(run: subprocess.Popen[str]) -> None:
    with run:
        daemon = daemon_of(run)
        run.communicate("\n")
    time.sleep(1.5)
    try:
        assert daemon.status() != psutil.STATUS_ZOMBIE
    finally:
        daemon.kill()
