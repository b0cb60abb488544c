"""Real nodes as processes: how they exit, and what a local cluster leaves behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from sbon.local.cluster import LocalCluster
from sbon.local.processes import MARK, processes_of
from sbon_cli.main import sbon
from tests.addresses import own_host

pytestmark = pytest.mark.live


PORTS = {"--port": "4700", "--api-port": "4780"}


def command_of(*arguments: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "sbon_cli.main",
        "node",
        "--name",
        "a",
        "--bind",
        own_host(),
        "--api-bind",
        own_host(),
        *arguments,
    ]


ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SBON_")}


def node(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command_of(*arguments), capture_output=True, text=True, env=ENVIRONMENT, timeout=60)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A node on ``tmp_path / "d"`` that is ready; its log is JSON on stderr."""
    command = command_of("--data-dir", str(tmp_path / "d"), *chain.from_iterable(PORTS.items()))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stderr is not None
        assert any(json.loads(line)["event"] == "ready" for line in process.stderr)
        yield process
        process.kill()


def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


def last_error(result: subprocess.CompletedProcess[str]) -> str:
    return next(line for line in result.stderr.splitlines() if line.startswith("error: "))


@pytest.mark.one_part_per_commit("ports in use", parts=8)
@pytest.mark.parametrize("flag", ["--port", "--api-port"])
def test_a_port_in_use_is_one_line_and_code_2(tmp_path: Path, flag: str) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier test may not have ended yet
        taken.bind((own_host(), int(PORTS[flag])))
        taken.listen()
        result = node("--data-dir", str(tmp_path / "d"), *chain.from_iterable(PORTS.items()))
    assert result.returncode == 2, result.stderr
    assert "the port is in use" in last_error(result)
    assert "Traceback" not in result.stderr


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_a_seed_whose_name_cannot_be_resolved_is_named_and_logged_once(tmp_path: Path) -> None:
    seed = ("--join", "no-such-host.invalid:7400", "--set", "membership.join_timeout_s=3")
    result = node("--data-dir", str(tmp_path / "d"), *chain.from_iterable(PORTS.items()), *seed)
    assert result.returncode == 1, result.stderr
    unresolved = "no-such-host.invalid:7400: the name no-such-host.invalid cannot be resolved: "
    assert last_error(result).startswith(f"error: {unresolved}")
    assert "is one running there?" not in result.stderr
    logged = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    (waits,) = [line for line in logged if line["event"] == "join-waits"]
    assert waits["reason"].startswith(unresolved)


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_a_data_directory_that_is_a_file_is_one_line_and_code_2(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("not a folder")
    result = node("--data-dir", str(tmp_path / "d"), *chain.from_iterable(PORTS.items()))
    assert result.returncode == 2, result.stderr
    assert f"node.data_dir {tmp_path}/d: cannot write to it" in last_error(result)
    assert "Traceback" not in result.stderr


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_a_data_directory_another_node_runs_on_is_one_line_and_code_2(tmp_path: Path, running: subprocess.Popen[str]) -> None:
    result = node("--data-dir", str(tmp_path / "d"), "--port", "4701", "--api-port", "4781")
    assert result.returncode == 2, result.stderr
    assert last_error(result) == f"error: node.data_dir {tmp_path}/d: another node runs on it"
    assert "Traceback" not in result.stderr
    assert running.poll() is None


@pytest.mark.one_part_per_commit("signals to a node", parts=8)
@pytest.mark.parametrize(
    "signums, code, last",
    [((signal.SIGTERM,), 0, "stopping"), ((signal.SIGTERM, signal.SIGINT), 130, "signalled")],
    ids=["first", "second"],
)
def test_the_first_signal_stops_a_node_and_the_second_ends_it_at_once(
    running: subprocess.Popen[str], signums: tuple[signal.Signals, ...], code: int, last: str
) -> None:
    """Both are there when the node gets to look: it sleeps while they are sent."""
    running.send_signal(signal.SIGSTOP)
    until(lambda: psutil.Process(running.pid).status() == psutil.STATUS_STOPPED)
    for signum in signums:
        running.send_signal(signum)
    running.send_signal(signal.SIGCONT)
    said = running.communicate()[1]
    assert running.returncode == code
    assert [json.loads(line)["event"] for line in said.splitlines()][-1] == last


def test_a_bad_value_is_one_line_and_code_2() -> None:
    result = CliRunner().invoke(sbon, ["node", "--set", "streams.reconnect_s=fast"])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --set streams.reconnect_s: streams.reconnect_s must be a number")


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_a_cluster_lives_dies_and_leaves_nothing() -> None:
    with LocalCluster(3, latency="cities") as cluster:
        folder, mark = cluster.folder, cluster.mark
        first, second, third = cluster.nodes
        assert {m.name for m in first.client.members()} == {"new-york", "london", "frankfurt"}

        def is_near() -> bool:
            """Say whether the distance is near the emulated 91 ms; a first sample may be late, but none too early."""
            seen = next(m for m in second.client.members() if m.name == "new-york")
            if not seen.measured:
                return False
            assert seen.rtt_ms is not None
            assert seen.rtt_ms > 60
            return seen.rtt_ms < 150

        until(is_near)

        third.kill()
        assert not third.running
        third.restart()
        cluster.wait_converged()
        assert third.client.status().members == 3

        second.pause()
        second.resume()
        assert second.client.status().name == "london"

        first.signal(signal.SIGTERM)
        assert first.wait() == 0
    assert processes_of(mark, folder) == []
    assert not folder.exists()


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_a_failing_block_leaves_nothing_either() -> None:
    def fail() -> None:
        with LocalCluster(1) as cluster:
            left.append((cluster.mark, cluster.folder))
            raise RuntimeError("the block failed")

    left: list[tuple[str, Path]] = []
    with pytest.raises(RuntimeError, match="the block failed"):
        fail()
    assert processes_of(*left[0]) == []


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_nodes_stop_when_the_process_of_their_cluster_is_killed(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; from sbon.local.cluster import LocalCluster; import sys, time\n"
        "with LocalCluster(1, folder=Path(sys.argv[1])) as c: print(c.mark, flush=True); time.sleep(600)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    mark = holder.stdout.readline().strip()
    assert len(processes_of(mark, tmp_path)) >= 1
    holder.kill()
    holder.wait()
    holder.stdout.close()
    until(lambda: not processes_of(mark, tmp_path))


def test_a_process_outside_its_session_is_found_by_its_mark(tmp_path: Path) -> None:
    runaway = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, MARK: "m1"}, start_new_session=True
    )
    until(lambda: [p.pid for p in processes_of("m1", tmp_path)] == [runaway.pid])
    cluster = LocalCluster(1, folder=tmp_path)
    cluster.mark = "m1"
    assert cluster.stop() == 1
    runaway.wait()
    assert processes_of("m1", tmp_path) == []


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_cluster_up_status_and_down(tmp_path: Path) -> None:
    said: list[str] = []

    def run(*arguments: str) -> object:
        result = CliRunner().invoke(sbon, ["cluster", *arguments, "--dir", str(tmp_path / "c")], env={"SBON_OUTPUT": "json"})
        assert result.exit_code == 0, result.output
        said.extend(result.stderr.splitlines())
        return [json.loads(line) for line in result.stdout.splitlines()]

    try:
        up = run("up", "-n", "2")
        assert isinstance(up, list)
        assert [(n["state"], n["members"]) for n in up] == [("running", 2)] * 2
        assert said[-1] == f"export SBON_API={up[0]['api']}"
        again = CliRunner().invoke(sbon, ["cluster", "up", "--dir", str(tmp_path / "c")])
        assert again.exit_code == 1
        assert "a cluster runs here already" in again.stderr
        assert run("status") == up
        psutil.Process(up[0]["pid"]).kill()
        status = ["cluster", "status", "--dir", str(tmp_path / "c")]
        until(lambda: "start the stopped nodes again" in CliRunner().invoke(sbon, status).stderr)
        assert CliRunner().invoke(sbon, status).exit_code == 1
        again = CliRunner().invoke(sbon, ["cluster", "up", "-n", "5", "--dir", str(tmp_path / "c")])
        assert (again.exit_code, "a cluster of 2 is here already" in again.stderr) == (1, True)
        other = ["cluster", "up", "--set", "engine.jit=c1", "--dir", str(tmp_path / "c")]
        assert "start the stopped nodes again, with their settings: sbon cluster start" in CliRunner().invoke(sbon, other).stderr
        wrong = CliRunner().invoke(sbon, ["cluster", "start", up[1]["node"], "--dir", str(tmp_path / "c")])
        assert (wrong.exit_code, up[0]["node"] in wrong.stderr) == (1, True)
        back = run("start")
        assert isinstance(back, list)
        assert [(n["node"], n["state"], n["api"]) for n in back] == [(n["node"], "running", n["api"]) for n in up]
        assert (back[0]["pid"] != up[0]["pid"], back[1]["pid"]) == (True, up[1]["pid"])
        until(lambda: [n["members"] for n in run("status")] == [2, 2])  # type: ignore[attr-defined]
        psutil.Process(back[1]["pid"]).kill()
        until(lambda: "start the stopped nodes again" in CliRunner().invoke(sbon, status).stderr)
        up = run("up")
        assert isinstance(up, list)
        assert (up[0]["pid"], up[1]["pid"] != back[1]["pid"]) == (back[0]["pid"], True)
        assert said[-1] == f"restarted: {up[1]['node']}"
        assert CliRunner().invoke(sbon, ["--node", up[0]["api"], "leave", "--yes"]).exit_code == 0
        until(lambda: "start the stopped nodes again" in CliRunner().invoke(sbon, status).stderr)
        assert CliRunner().invoke(sbon, ["cluster", "start", "--dir", str(tmp_path / "c")]).exit_code == 0
        again = CliRunner().invoke(sbon, ["cluster", "up", "--dir", str(tmp_path / "c")])
        assert "a cluster runs here already" in again.stderr, "a node that has left is started by its name"
        assert [n["pid"] == up[0]["pid"] for n in run("start", up[0]["node"])] == [False, False]  # type: ignore[attr-defined]
        run("down")
        again = CliRunner().invoke(sbon, other)
        assert (again.exit_code, "a cluster with other settings is here already" in again.stderr) == (1, True)
        back = run("up", "-n", "2")
        assert isinstance(back, list)
        assert [(n["node"], n["api"]) for n in back] == [(n["node"], n["api"]) for n in up]
        assert (tmp_path / "c" / up[0]["node"] / "data").is_dir()
    finally:
        run("down")
        assert (tmp_path / "c" / up[0]["node"]).is_dir()
        run("down", "--purge")
    assert said[-1] == "stopped 0 of 2 nodes", "the data of a stopped cluster can still be deleted"
    assert not any(psutil.pid_exists(n["pid"]) and psutil.Process(n["pid"]).status() != "zombie" for n in up)
    assert not (tmp_path / "c").exists()


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_cluster_up_on_a_small_disk_names_the_limit_that_holds_it_back(tmp_path: Path) -> None:
    """In a mount namespace of its own: nothing stays mounted, whatever dies."""
    alone = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    command = f"{sys.executable} -m sbon_cli.main cluster up -n 1 --dir {tmp_path}/c"
    up = f"mount -t tmpfs -o size=40m tmpfs {tmp_path} && exec {command}"
    done = subprocess.run([*alone, "sh", "-c", up], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    told = " ".join(done.stderr.split())
    assert "is not ready: 42 MB are left on the disk of the data directory, a node needs 64" in told
    assert "free some space" in told
    assert '"event"' not in told, "nothing of a log that says nothing of it"
