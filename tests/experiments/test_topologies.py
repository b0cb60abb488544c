"""Generated networks: connected, symmetric, with routes that are as long as they say, and the shape they are asked for."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from sbon_cli.main import sbon
from sbon_lab.commands import options
from sbon_lab.experiments.coordinates.embedding import estimates_ms, refitted, update_all, vivaldi_positions
from sbon_lab.experiments.harness.experiment import networks_of
from sbon_lab.experiments.harness.network import between, lightest_paths, measured, plain, random_edges
from sbon_lab.experiments.harness.topologies import SHAPES, TOPOLOGIES, topology_named
from sbon_lab.experiments.sand import figures
from sbon_lab.experiments.sand.workload import Shape
from sbon_node.overlay.space import vivaldi
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_protocol.errors import SbonError

NODES = {"ts208": 208, "ts592": 592, "ts1550": 1550, "ts1064": 1064, "edge-fog-cloud": 400, "geometric": 400}
NODES |= {f"ts{nodes}": nodes for nodes in (100, 300, 1000, 3000, 10_000)}


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.parametrize("name", sorted(set(TOPOLOGIES) - {"ts3000", "ts10000"}))
def test_latencies_are_those_of_the_routes(name: str) -> None:
    network = topology_named(name, 3)
    assert network.nodes == NODES[name]
    assert np.isfinite(network.latency_ms).all()
    assert np.array_equal(network.latency_ms, network.latency_ms.T) or np.allclose(network.latency_ms, network.latency_ms.T)
    assert (np.diag(network.latency_ms) == 0).all()
    assert network.route is not None
    rng = np.random.default_rng(1)
    for source, target in rng.integers(network.nodes, size=(60, 2)).tolist():
        route = network.route(source, target)
        assert (route[0], route[-1]) == (source, target)
        assert len(set(route)) == len(route)
        length = sum(network.latency_ms[a, b] for a, b in itertools.pairwise(route))
        assert length == pytest.approx(network.latency_ms[source, target])
    assert np.array_equal(topology_named(name, 3).latency_ms, network.latency_ms)
    assert not np.array_equal(topology_named(name, 4).latency_ms, network.latency_ms)


def test_a_transit_stub_network_has_sbons_size_and_policy_makes_routes_longer() -> None:
    network = topology_named("ts1550", 1)
    assert len(network.routers) == 50
    assert network.latency_ms.max() == pytest.approx(878.0)
    routers = network.latency_ms[np.ix_(network.routers, network.routers)]
    relayed = (routers[:, :, None] + routers[None, :, :]).min(axis=1)
    assert (relayed < 0.999 * routers).mean() > 0.2, "some overlay routes are shorter than policy's"
    for source in range(60, 1550, 200):
        for target in range(70, 1550, 300):
            inner = network.route(source, target)[1:-1]  # type: ignore[misc]
            stubs = [node for node in inner if node >= 50]
            assert sum(abs(a - b) > 40 for a, b in itertools.pairwise(stubs)) <= 1, "no stub carries others' traffic"


def test_the_largest_networks_have_the_nodes_they_are_named_for() -> None:
    for name in ("ts3000", "ts10000"):
        shape = SHAPES[name]
        assert shape.domains * shape.transit * (1 + shape.stubs * shape.stub_nodes) == NODES[name]


def test_there_is_no_topology_of_another_name() -> None:
    with pytest.raises(SbonError, match="there is no topology 'ring'"):
        topology_named("ring", 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("penalty", "--topology", "ring"),
        ("coordinates", "--made", "foo:20"),
        ("coordinates", "--made", "space:50", "--algorithm", "x"),
    ],
)
def test_unknown_topologies_are_wrong_usage(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(sbon, ["experiment", *arguments])
    assert (result.exit_code, arguments[-2] in result.stderr) == (2, True), result.output


def test_help_names_all_topologies() -> None:
    assert set(options.TOPOLOGIES.split(", ")) == set(TOPOLOGIES)


def test_lightest_paths_are_chosen_by_weight_and_reported_by_latency() -> None:
    weights = np.array([[np.inf, 1, 5], [1, np.inf, 1], [5, 1, np.inf]])
    latency_ms = np.array([[np.inf, 10, 3], [10, np.inf, 10], [3, 10, np.inf]])
    paths = lightest_paths(weights, latency_ms)
    assert paths.latency_ms[0, 2] == 20
    assert paths.route(0, 2) == [0, 1, 2]
    many = lightest_paths(np.stack([weights, latency_ms]), np.stack([latency_ms, latency_ms]))
    assert many.latency_ms[:, 0, 2].tolist() == [20, 3]


def test_random_graphs_are_connected() -> None:
    rng = np.random.default_rng(1)
    for count in (2, 7, 20):
        edges = random_edges(count, 0.0, rng)
        assert edges.sum() == 2 * (count - 1)
        assert np.isfinite(lightest_paths(np.where(edges, 1.0, np.inf), np.where(edges, 1.0, np.inf)).latency_ms).all()


def test_a_measured_matrix_has_no_gaps_left(tmp_path: Path) -> None:
    rtt_ms = 2 * between(np.random.default_rng(1).uniform(10, 90, (6, 2)))
    rtt_ms[0, 1] = rtt_ms[1, 0] = np.nan
    rtt_ms[2, 3] = np.nan
    np.savez(tmp_path / "m.npz", rtt_ms=rtt_ms)
    network = measured(tmp_path / "m.npz")
    assert network.name == "m"
    assert network.latency_ms[2, 3] == pytest.approx(rtt_ms[3, 2] / 2, rel=1e-5)
    assert network.latency_ms[0, 1] == pytest.approx(np.min((rtt_ms[0, 2:] + rtt_ms[2:, 1]) / 2), rel=1e-5)


def test_gaps_take_as_many_relays_as_there_must_be(tmp_path: Path) -> None:
    """A row of nodes, of which only neighbours are measured; or where it is broken."""
    row = np.full((12, 12), np.nan)
    row[np.arange(11), np.arange(1, 12)] = 2.0
    np.savez(tmp_path / "row.npz", rtt_ms=row)
    away = np.abs(np.arange(12) - np.arange(12)[:, None])
    np.testing.assert_allclose(measured(tmp_path / "row.npz").latency_ms, away, rtol=1e-5)
    row[4, 5] = np.nan
    np.savez(tmp_path / "broken.npz", rtt_ms=row)
    with pytest.raises(SbonError, match="no times lead from 5 of its 12 nodes to the others"):
        measured(tmp_path / "broken.npz")


def test_coordinates_of_a_whole_network_tell_its_latencies() -> None:
    network = plain("flat", between(np.random.default_rng(2).uniform(0, 100, (60, 2))))
    everyone, apart = np.arange(60), ~np.eye(60, dtype=np.bool_)
    for places, most in ((refitted(network, 3, 1), 0.02), (vivaldi_positions(network, 1, noise=0.0), 0.1)):
        assert places.shape == (60, 4)
        errors = np.abs(estimates_ms(places, everyone, everyone) - network.latency_ms)[apart] / network.latency_ms[apart]
        assert np.median(errors) < most


def test_many_nodes_at_once_do_what_vivaldi_does_one_by_one() -> None:
    rng = np.random.default_rng(3)
    vectors, errors, peers = rng.normal(0, 50, (9, 3)), rng.uniform(0.05, 1, 9), np.roll(np.arange(9), 1)
    rtt_ms = rng.uniform(0, 200, 9)
    moved, doubts = update_all(vectors, errors, peers, rtt_ms)
    places = [Coordinate(vector=tuple(v), error=float(e)) for v, e in zip(vectors.tolist(), errors, strict=True)]
    for node in range(9):
        one = vivaldi.update(places[node], places[peers[node]], float(rtt_ms[node]), None)  # type: ignore[arg-type]
        assert one.vector == pytest.approx(moved[node])
        assert one.error == pytest.approx(doubts[node])


def test_files_of_the_same_name_are_distinguished(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) / "plane.npz" for number in range(3)]
    for number, path in enumerate(paths):
        path.parent.mkdir()
        np.savez(path, rtt_ms=np.where(np.eye(4), 0.0, 10.0 + number))
    found = list(networks_of(paths, ["ts100", "ts100"], 1))
    assert [one.name for one in found] == ["plane", "plane-2", "plane-3", "ts100", "ts100-2"]
    assert [one.latency_ms[0, 1] for one in found[:3]] == [5.0, 5.5, 6.0]


def test_dumps_of_files_of_the_same_name_hold_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "SHAPES", (Shape(2, (2,)),))
    monkeypatch.setattr(figures, "BOUNDS", (3.0,))
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        places = np.random.default_rng(number).uniform(0, 100, (40, 2))
        np.savez(tmp_path / str(number) / "plane.npz", rtt_ms=2 * between(places))
    data = [option for number in (1, 2) for option in ("--data", str(tmp_path / str(number) / "plane.npz"))]
    command = ["experiment", "sand", *data, "--queries", "1", "--seeds", "1", "--figure", "9"]
    result = CliRunner().invoke(sbon, [*command, "--dump", str(tmp_path / "dump"), "--json"])
    assert result.exit_code == 0, result.output
    assert {row["topology"] for row in json.loads(result.stdout)["rows"]} == {"plane", "plane-2"}
    lines = [json.loads(line) for line in (tmp_path / "dump" / "sand.jsonl").read_text().splitlines()]
    for line in lines:
        latency_ms = np.load(tmp_path / "dump" / line["network"])["latency_ms"]
        numbers = [int(node[1:]) for node in line["nodes"]]
        assert (latency_ms[np.ix_(numbers, numbers)] == np.array(line["latency_ms"])).all()
    assert len({line["network"] for line in lines}) == 2
