"""The end of processes that a local cluster leaves behind: those that end by themselves are not killed, others with a reason."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from sbon.local.processes import MARK, end_all, processes_of
from sbon_cli.commands.nodes import cluster
from sbon_cli.commands.nodes.cluster import ClusterState, NodeState
from sbon_cli.main import sbon


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


IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"


def test_a_stop_of_a_cluster_says_why_processes_were_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "NODES_END_S", 0.3)
    monkeypatch.setattr(cluster, "ENGINES_END_S", 0.2)
    mark = f"mark-{os.getpid()}-down"
    with subprocess.Popen([sys.executable, "-S", "-c", IGNORES], env={MARK: mark}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        created_s = psutil.Process(process.pid).create_time()
        node = NodeState(name="london", address="127.0.0.1:1", api="", pid=process.pid, created_s=created_s)
        ClusterState(mark=mark, nodes=(node,)).write(tmp_path)
        result = CliRunner().invoke(sbon, ["cluster", "down", "--dir", str(tmp_path)])
    assert (result.exit_code, psutil.pid_exists(process.pid)) == (0, False)
    assert result.stderr.splitlines() == [
        "stopped 1 of 1 nodes",
        "killed 1 process that had not ended 0.2 s later: london did not stop within 0.3 s",
    ]


def test_a_stop_of_a_cluster_names_each_node_that_has_stopped(tmp_path: Path) -> None:
    mark = f"mark-{os.getpid()}-each"
    with ExitStack() as stack:
        nodes = []
        for name in ("london", "paris"):
            command = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
            process = stack.enter_context(subprocess.Popen(command, env={MARK: mark}))
            created_s = psutil.Process(process.pid).create_time()
            nodes.append(NodeState(name=name, address="127.0.0.1:1", api="", pid=process.pid, created_s=created_s))
        ClusterState(mark=mark, nodes=tuple(nodes)).write(tmp_path)
        result = CliRunner().invoke(sbon, ["cluster", "down", "--dir", str(tmp_path)])
    *stopped, last = result.stderr.splitlines()
    assert (result.exit_code, sorted(stopped)) == (0, ["london has stopped", "paris has stopped"])
    assert last == "stopped 2 of 2 nodes"


def test_a_start_of_an_unknown_node_names_one_that_is_spelt_alike(tmp_path: Path) -> None:
    node = NodeState(name="london", address="127.0.0.1:1", api="", pid=2**22, created_s=0.0)
    ClusterState(mark="m", nodes=(node,)).write(tmp_path)
    result = CliRunner().invoke(sbon, ["cluster", "start", "londn", "--dir", str(tmp_path)])
    assert (result.exit_code, result.stderr.splitlines()) == (
        1,
        ["error: node: there is no node 'londn'", "  hint: did you mean london?"],
    )
