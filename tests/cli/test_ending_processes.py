"""The end of processes that a local cluster leaves behind: those that end by themselves are not killed, others with a reason."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from sbon.local.processes import MARK, end_all, processes_of
from sbon_cli.commands.nodes import cluster
from sbon_cli.commands.nodes.cluster import ClusterState, NodeState
from sbon_cli.main import sbon
from tests.cli.shell.terminal import Terminal


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


SLOW = (
    "import signal, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep({}), exit())); print(flush=True); time.sleep(60)"
)


@contextmanager
def two_nodes(folder: Path, *ends_s: float) -> Iterator[None]:
    """Write the state of a cluster of processes that end so many seconds after SIGTERM."""
    mark = f"mark-{os.getpid()}-{ends_s}"
    with ExitStack() as stack:
        nodes = []
        for name, end_s in zip(("london", "paris"), ends_s, strict=True):
            command = [sys.executable, "-S", "-c", SLOW.format(end_s)]
            process = stack.enter_context(subprocess.Popen(command, env={MARK: mark}, stdout=subprocess.PIPE))
            assert process.stdout is not None
            process.stdout.readline()
            threading.Thread(target=process.wait, daemon=True).start()
            created_s = psutil.Process(process.pid).create_time()
            nodes.append(NodeState(name=name, address="127.0.0.1:1", api="", pid=process.pid, created_s=created_s))
        ClusterState(mark=mark, nodes=tuple(nodes)).write(folder)
        yield


def test_a_terminal_shows_each_node_that_has_stopped_above_the_progress(tmp_path: Path) -> None:
    with two_nodes(tmp_path, 2.0, 4.0):
        terminal = Terminal(tmp_path, "cluster", "down", "--dir", str(tmp_path))
        terminal.until("the end of 2 nodes")
        shown = terminal.until("stopped 2 of 2 nodes")
        assert terminal.end() == 0
    assert shown.splitlines()[-3:] == ["london has stopped", "paris has stopped", "stopped 2 of 2 nodes"]


def test_a_stop_of_a_cluster_names_each_node_that_has_stopped(tmp_path: Path) -> None:
    with two_nodes(tmp_path, 0.0, 0.0):
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
