"""Distances between real nodes in an emulated wide area, on the command line."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sbon.local.cluster import LocalCluster
from sbon.local.node import LocalNode
from sbon.local.wide_area import cities
from tests.cli.commands import lines, run

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3, latency="cities") as started:
        yield started


@pytest.fixture(scope="module")
def nodes(cluster: LocalCluster) -> dict[str, LocalNode]:
    return {node.name: node for node in cluster.nodes}


def answer(node: LocalNode, *arguments: str) -> Any:
    result = run(node.client.api, *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    told = lines(result.stdout)
    return told if arguments[0] == "members" else told[0]


AREA = cities()
RTT_MS = {(a, b): AREA.rtt_ms[i][j] for i, a in enumerate(AREA.names) for j, b in enumerate(AREA.names)}


def measured(node: LocalNode, a: str, b: str) -> Any:
    """Measured until it is what is emulated: jitter is a few per cent, and a machine that is busy only adds, now and then."""
    deadline = time.monotonic() + 60
    while (found := answer(node, "rtt", a, b, "--measure"))["measured_ms"] > 1.15 * RTT_MS[a, b] + 5:
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    return found


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_measurements_equal_the_emulated_latency(nodes: dict[str, LocalNode]) -> None:
    for a, b in (("new-york", "frankfurt"), ("new-york", "london"), ("frankfurt", "london")):
        found = measured(nodes["london"], a, b)
        assert found["measured_ms"] > 0.85 * RTT_MS[a, b]
        assert (found["by"], found["age_s"] < 5) == (b if b == "london" else a, True)
    again = answer(nodes["london"], "rtt", "frankfurt", "new-york", "--cached")
    assert again["by"] == "new-york"
    assert again["estimate_source"] == "measured"
    assert answer(nodes["london"], "rtt", "frankfurt")["b"] == "london"


@pytest.mark.parametrize(
    "asked, arguments, expected",
    [
        ("frankfurt", ("--near", "frankfurt"), ["frankfurt", "london", "new-york"]),
        ("frankfurt", ("--within", "50ms"), ["frankfurt", "london"]),
        ("new-york", ("--near", "frankfurt", "--within", "50ms"), ["frankfurt", "london"]),
    ],
)
def test_near_is_who_is_near(nodes: dict[str, LocalNode], asked: str, arguments: tuple[str, ...], expected: list[str]) -> None:
    """Once it is measured well: the first samples of nodes that have just started may not be."""
    for other in ("london", "new-york"):
        measured(nodes[asked], "frankfurt", other)
    deadline = time.monotonic() + 60
    while (near := [member["name"] for member in answer(nodes[asked], "members", *arguments)]) != expected:
        assert time.monotonic() < deadline, near
        time.sleep(0.5)


def test_the_map_shows_all(nodes: dict[str, LocalNode], tmp_path: Path) -> None:
    assert {place["name"] for place in answer(nodes["london"], "map")["places"]} == set(nodes)


WRONG = [
    (("rtt", "londn"), "error: node: there is no node 'londn'", "  hint: did you mean london?"),
    (("rtt", "london", "paris", "--cached"), "error: node: there is no node 'paris'", "  hint: see: sbon members"),
    (("members", "--near", "franfkurt"), "error: node: there is no node 'franfkurt'", "  hint: did you mean frankfurt?"),
    (("rtt", "london"), "error: pairs: the latency from london to itself is not measured", "  hint: name two nodes"),
]


@pytest.mark.parametrize("arguments, error, hint", WRONG)
def test_wrong_names_are_reported_with_similar_names(
    nodes: dict[str, LocalNode], arguments: tuple[str, ...], error: str, hint: str
) -> None:
    result = run(nodes["london"].client.api, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == [error, hint]


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_a_node_that_stands_still_does_not_answer(nodes: dict[str, LocalNode]) -> None:
    nodes["frankfurt"].signal(signal.SIGSTOP)
    try:
        result = run(nodes["london"].client.api, "rtt", "frankfurt", "--measure")
    finally:
        nodes["frankfurt"].signal(signal.SIGCONT)
    assert result.exit_code == 1
    assert "frankfurt did not answer 3 pings of london within 2 s" in result.stderr
    assert "by the coordinates: " in result.stderr


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_latencies_may_change_while_nodes_run(cluster: LocalCluster, nodes: dict[str, LocalNode]) -> None:
    longer = 400.0
    names = tuple(nodes)
    cluster.change_latency({(a, b): RTT_MS[a, b] + longer * ("frankfurt" in (a, b)) for a in names for b in names if a < b})
    deadline = time.monotonic() + 60
    while answer(nodes["london"], "rtt", "frankfurt", "--measure")["measured_ms"] < 0.85 * (
        RTT_MS["london", "frankfurt"] + longer
    ):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert measured(nodes["london"], "new-york", "london")["measured_ms"] < longer
