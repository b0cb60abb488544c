"""How far real nodes are from each other in an emulated wide area, asked on the command line."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sbon_cli.cities import cities
from sbon_cli.local_cluster import LocalCluster, LocalNode
from tests.cli.commands import run

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def nodes() -> Iterator[dict[str, LocalNode]]:
    with LocalCluster(3, latency="cities") as cluster:
        yield {node.name: node for node in cluster.nodes}


def answer(node: LocalNode, *arguments: str) -> Any:
    result = run(node.client.api, *arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_what_is_measured_is_the_emulated_way(nodes: dict[str, LocalNode]) -> None:
    """Of three pings the least: jitter, and a machine that is busy, only add."""
    area = cities()
    rtt_ms = {(a, b): area.rtt_ms[i][j] for i, a in enumerate(area.names) for j, b in enumerate(area.names)}
    for a, b in (("new-york", "frankfurt"), ("new-york", "london"), ("frankfurt", "london")):
        found = answer(nodes["london"], "rtt", a, b, "--measure")
        assert 0.85 * rtt_ms[a, b] < found["measured_ms"] < 1.15 * rtt_ms[a, b] + 15
        assert (found["by"], found["age_s"] < 5) == (b if b == "london" else a, True)
    again = answer(nodes["london"], "rtt", "frankfurt", "new-york", "--cached")
    assert again["by"] == "new-york"
    assert again["estimate_source"] == "measured"
    assert answer(nodes["london"], "rtt", "frankfurt")["b"] == "london"


def test_near_is_who_is_near(nodes: dict[str, LocalNode]) -> None:
    for other in ("london", "new-york"):
        answer(nodes["london"], "rtt", "frankfurt", other)
    near = answer(nodes["london"], "members", "--near", "frankfurt")
    assert [member["name"] for member in near] == ["frankfurt", "london", "new-york"]
    near = answer(nodes["london"], "members", "--near", "frankfurt", "--within", "50ms")
    assert [member["name"] for member in near] == ["frankfurt", "london"]


def test_the_map_shows_all(nodes: dict[str, LocalNode], tmp_path: Path) -> None:
    assert {place["name"] for place in answer(nodes["london"], "map")["places"]} == set(nodes)


WRONG = [
    (("rtt", "londn"), "error: node: there is no node 'londn'", "  hint: did you mean london?"),
    (("rtt", "london", "paris", "--cached"), "error: node: there is no node 'paris'", "  hint: see: sbon members"),
    (("members", "--near", "franfkurt"), "error: node: there is no node 'franfkurt'", "  hint: did you mean frankfurt?"),
    (("rtt", "london"), "error: pairs: the way from london to itself is not measured", "  hint: name two nodes"),
]


@pytest.mark.parametrize("arguments, error, hint", WRONG)
def test_wrong_names_are_told_with_those_that_are_near(
    nodes: dict[str, LocalNode], arguments: tuple[str, ...], error: str, hint: str
) -> None:
    result = run(nodes["london"].client.api, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [error, hint]


def test_a_node_that_stands_still_does_not_answer(nodes: dict[str, LocalNode]) -> None:
    nodes["frankfurt"].signal(signal.SIGSTOP)
    try:
        result = run(nodes["london"].client.api, "rtt", "frankfurt", "--measure")
    finally:
        nodes["frankfurt"].signal(signal.SIGCONT)
    assert result.exit_code == 1
    assert "frankfurt did not answer 3 pings of london within 2 s" in result.stderr
    assert "by the coordinates: " in result.stderr
