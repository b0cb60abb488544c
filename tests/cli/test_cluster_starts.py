"""Starts of a local cluster's nodes: what is said of one that fails, and of nodes that run as root."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon.local import node as local_node
from sbon.local.cluster import AS_ROOT
from sbon.local.node import LocalNode
from sbon_cli.commands.nodes import cluster
from sbon_cli.commands.nodes.cluster import ClusterState, NodeState
from sbon_protocol.errors import SbonError
from tests.addresses import own_host
from tests.cli.commands import run

REFUSED = """print('{"event": "starting"}', flush=True); raise SystemExit("error: node.port: in use\\n  hint: choose another")"""
CRASHED = """print('{"event": "starting"}', flush=True); {}["lost"]"""
JVM = """
import atexit, os
print('{"event": "starting"}', flush=True)
atexit.register(lambda: os.write(2, b"WARNING: sun.misc.Unsafe is old\\n  hint: for the JVM\\n\\n"))
"""
"""The engine's process writes to the same log, also after the node."""
KILLED = """
import os, signal
print('{"event": "starting"}\\nWARNING: sun.misc.Unsafe is old', flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    "script, message, hint",
    [
        (REFUSED, "a ended with exit code 1: node.port: in use", "choose another"),
        (CRASHED, "a ended with exit code 1: KeyError: 'lost'", ""),
        (JVM + REFUSED, "a ended with exit code 1: node.port: in use", "choose another"),
        (JVM + CRASHED, "a ended with exit code 1: KeyError: 'lost'", ""),
        (JVM + "raise SystemExit(1)", "a ended with exit code 1", ""),
        (KILLED, "a was killed by signal 9", ""),
    ],
    ids=["refused", "crashed", "refused beside a JVM", "crashed beside a JVM", "ended beside a JVM", "killed"],
)
def test_a_node_that_ends_is_an_error_with_its_cause_and_the_lines_of_this_start_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str, hint: str
) -> None:
    monkeypatch.setattr(local_node, "DAEMON", ("-c", script))
    node = LocalNode("a", own_host(), tmp_path, (), "mark", tied=False)
    node.log.write_text("error: the disk was full\n  hint: free some space\n")
    node.start()
    with pytest.raises(SbonError) as refused:
        node.wait_ready()
    error = refused.value
    assert (error.code, error.message, error.hint, error.where) == ("node-failed", message, hint, str(node.log))
    assert (error.details[0], "the disk was full" in str(error.details)) == ('{"event": "starting"}', False)


@pytest.mark.parametrize(
    "user, settings, warned",
    [
        (0, (), True),
        (0, ("--set", "connectors.data_roots=/data,/"), True),
        (0, ("--set", "connectors.data_roots=/data"), False),
        (1000, (), False),
    ],
    ids=["root", "root with all folders", "root with a limit", "another user"],
)
def test_a_cluster_of_root_without_a_limit_on_its_files_warns_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, settings: tuple[str, ...], warned: bool
) -> None:
    def refused(*arguments: object, **options: object) -> None:
        raise SbonError("no-addresses", "no loopback addresses are free")

    monkeypatch.setattr(cluster, "LocalCluster", refused)
    monkeypatch.setattr("os.geteuid", lambda: user)
    result = run("http://127.0.0.1:1", "cluster", "up", "--dir", str(tmp_path / "c"), *settings)
    assert (result.exit_code, AS_ROOT in result.stderr) == (1, warned)


@pytest.mark.parametrize("command", ["up", "start"])
@pytest.mark.parametrize("user, roots, warned", [(0, "/", True), (0, "/data", False), (1000, "/", False)])
def test_a_node_that_root_starts_again_without_a_limit_on_its_files_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, roots: str, warned: bool, command: str
) -> None:
    monkeypatch.setattr(local_node, "DAEMON", ("-c", REFUSED))
    monkeypatch.setattr("os.geteuid", lambda: user)
    arguments = ("--name", "a", "--set", "net.local_users=own", "--set", f"connectors.data_roots={roots}")
    node = NodeState(name="a", address=f"{own_host()}:1", api="", pid=2**22 + 1, created_s=0.0, arguments=arguments)
    ClusterState(mark="mark", nodes=(node,)).write(tmp_path)
    result = run("http://127.0.0.1:1", "cluster", command, "--dir", str(tmp_path))
    assert (result.exit_code, "in use" in result.stderr, AS_ROOT in result.stderr) == (1, True, warned)
