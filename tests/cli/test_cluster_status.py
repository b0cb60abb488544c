"""``sbon cluster status`` of nodes whose processes live and do not answer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from sbon_cli.commands.nodes import cluster
from sbon_cli.commands.nodes.cluster import ClusterState, NodeState
from sbon_cli.main import sbon
from tests.addresses import own_host
from tests.cli.commands import lines


@pytest.fixture
def silent() -> Iterator[list[socket.socket]]:
    """Two APIs that accept connections and say nothing, as those of a stopped process do."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_server((own_host(), 0))) for _ in range(2)]


def status(folder: Path, apis: list[socket.socket]) -> list[tuple[str, str]]:
    """Return name and state of the nodes of a cluster with these APIs; this process stands for theirs."""
    created_s = psutil.Process().create_time()
    nodes = tuple(
        NodeState(name=f"n{i}", address="", api="http://{}:{}".format(*api.getsockname()), pid=os.getpid(), created_s=created_s)
        for i, api in enumerate(apis)
    )
    ClusterState(mark="m", nodes=nodes).write(folder)
    result = CliRunner().invoke(sbon, ["cluster", "status", "--output", "json", "--dir", str(folder)])
    assert result.exit_code == 1
    return [(node["node"], node["state"]) for node in lines(result.stdout)]


def test_a_silent_node_is_shown_as_such(tmp_path: Path, silent: list[socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ANSWER_S", 0.1)
    assert status(tmp_path, silent) == [("n0", "no answer"), ("n1", "no answer")]


def test_all_nodes_are_asked_at_once(tmp_path: Path, silent: list[socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is asked while the first has yet to answer: both hang up then."""
    monkeypatch.setattr(cluster, "ANSWER_S", 60.0)
    asked: list[socket.socket] = []

    def hang_up() -> None:
        with suppress(TimeoutError):
            for api in silent:
                api.settimeout(20.0)
                asked.append(api.accept()[0])
        for one in asked:
            one.close()

    monitor = threading.Thread(target=hang_up, daemon=True)
    monitor.start()
    status(tmp_path, silent)
    monitor.join()
    assert len(asked) == 2
