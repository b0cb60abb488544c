"""``sbon experiment ants``: the exact optimum against trying everything, ants beside it, and rows as promised."""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from sbon_cli.main import sbon
from sbon_lab.experiments.ants import adaptation, quality
from sbon_lab.experiments.ants.quality import SETTINGS
from sbon_lab.experiments.ants.reuse import KINDS, NEVER, Sharing, overlapping
from sbon_lab.experiments.ants.world import World, chain_of, chain_query
from sbon_lab.experiments.harness.network import between, plain
from sbon_lab.experiments.harness.network_model import name_of, number_of
from sbon_lab.experiments.harness.topologies import topology_named
from sbon_node.placement.model.objective import latency_by_queueing
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.model.queueing import Server, Service, ThroughServers, side_by_side

ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("experiments of today's size")


def small(seed: int, nodes: int = 6) -> World:
    places = np.random.default_rng(seed).uniform(0, 40, (nodes, 2))
    return World(plain("small", between(places)), seed, SETTINGS)


@pytest.mark.parametrize("seed", range(4))
def test_the_exact_optimum_is_that_of_trying_everything(seed: int) -> None:
    world, rng = small(seed), np.random.default_rng(seed)
    for number in range(3):
        chain = chain_of(chain_query(number, 6, rng, 2))
        found = world.optimum(chain)
        assert found is not None
        world.deploy(chain, [name_of(host) for host in found.hosts])
    problem = chain_query(9, 6, rng, 4)
    chain = chain_of(problem)
    best = world.optimum(chain)
    assert best is not None
    assert best.exact
    cells = [world.colony.cells[name] for name in world.network_model.names]
    ends = [number_of(chain.source), number_of(chain.destination)]
    known = side_by_side([cell.server for cell in cells])
    every = np.array(list(itertools.product(range(6), repeat=4)))
    costs = np.sum(ThroughServers(problem, world.network.latency_ms, ends, *known).evaluate(every), axis=0)
    assert best.cost_ms == pytest.approx(costs.min())
    assert costs[(every == best.hosts).all(axis=1)][0] == pytest.approx(best.cost_ms)


def test_a_deployment_is_withdrawn_without_a_trace() -> None:
    world = small(1)
    chains = [chain_of(chain_query(number, 6, np.random.default_rng(number), 3)) for number in range(2)]
    world.deploy(chains[0], ["n0001", "n0002", "n0001"])
    alone = world.latency_ms(chains[0].id)
    world.deploy(chains[1], ["n0001", "n0001", "n0001"])
    assert world.latency_ms(chains[0].id) > alone
    assert world.withdraw(chains[1].id)[1] == ["n0001"] * 3
    assert world.latency_ms(chains[0].id) == alone
    world.disturb(np.full(6, 0.9))
    assert world.latency_ms(chains[0].id) > alone


def test_ants_are_near_the_exact_optimum_on_208_nodes() -> None:
    network = topology_named("ts208", 7)
    assert network.nodes == 208
    world, rng = World(network, 7, SETTINGS), np.random.default_rng(7)
    ants, exact, anywhere = [], [], []
    for number in range(6):
        problem = chain_query(number, 208, rng)
        chain = chain_of(problem)
        best = world.optimum(chain)
        assert best is not None
        for found, hosts in (
            (exact, [name_of(host) for host in best.hosts]),
            (ants, world.place(problem, "ants", number)),
            (anywhere, world.place(problem, "random", number)),
        ):
            assert hosts is not None
            world.deploy(chain, hosts)
            found.append(world.latency_ms(chain.id))
            world.withdraw(chain.id)
    assert sum(exact) <= sum(ants) * (1 + 1e-9)
    assert sum(ants) <= 1.03 * sum(exact)
    assert sum(anywhere) > 2 * sum(exact)


def experiment(*options: str) -> dict[str, Any]:
    result = CliRunner().invoke(sbon, ["experiment", "ants", *options, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    path = tmp_path / "plane.npz"
    np.savez(path, rtt_ms=2 * between(np.random.default_rng(5).uniform(0, 100, (30, 2))))
    return path


def recomputed_ms(line: dict[str, Any]) -> float:
    """The latency of a dumped placement, by what the line says alone."""
    services = msgspec.convert(line["services"], dict[str, Service])
    problem = PlacementProblem(
        pinned=line["pinned"],
        operators=tuple(Operator(id=name, row_core_ms=one.mean_ms, row_scv=one.scv) for name, one in services.items()),
        edges=msgspec.convert(line["edges"], tuple[Edge, ...]),
    )
    servers, row = msgspec.convert(line["servers"], dict[str, Server]), {node: i for i, node in enumerate(line["nodes"])}
    found = latency_by_queueing(problem, line["placement"], lambda a, b: line["latency_ms"][row[a]][row[b]], servers)
    return float(found.longest_ms[0])


def of_links(line: dict[str, Any], folder: Path) -> tuple[float, float]:
    """Usage and delay, by the edges and the matrix beside the lines."""
    latency_ms = np.load(folder / line["network"])["latency_ms"]
    at = {vertex: int(node[1:]) for vertex, node in {**line["pinned"], **line["placement"]}.items()}
    ways = [(edge["rate_bytes_s"], latency_ms[at[edge["source"]], at[edge["target"]]]) for edge in line["edges"]]
    return sum(rate * ms for rate, ms in ways) / 1000, sum(ms for _, ms in ways)


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.parametrize("size", ["small", pytest.param("large", marks=ONLY_IN_TEST_ALL)])
def test_rows_pictures_and_dumps(matrix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    repeated = ("2b", "3a")
    if size == "small":
        repeated = ("2b",)
        monkeypatch.setattr(quality, "SIZES", (4,))
        monkeypatch.setattr(adaptation, "BETAS", (1.1, 1.25, 2.0))
        monkeypatch.setattr(adaptation, "CROSS_EVERY_S", 10)
    monkeypatch.setattr(quality, "STUB_NODES", (1,))
    parts = [option for part in ("2a", "2b", "3a", "3b", "4", "table1") for option in ("--part", part)]
    command = ("--data", str(matrix), "--queries", "3", "--seeds", "1")
    drawn = importlib.util.find_spec("matplotlib") is not None
    out = ("--out", str(tmp_path / "out")) if drawn else ()
    found = experiment(*command, *parts, "--dump", str(tmp_path / "dump"), *out)
    again = experiment(*command, *[option for part in repeated for option in ("--part", part)])
    assert again["rows"] == [row for row in found["rows"] if row["figure"] in repeated]
    rows = {(row["figure"], row["strategy"], row["at"]): row for row in found["rows"]}
    assert rows["2a", "optimal", 4]["beyond_exact_pct"] == 0
    assert rows["2a", "random", 4]["beyond_exact_pct"] > rows["2a", "ants", 4]["beyond_exact_pct"] > -1e-6
    assert rows["2b", "ants", 3]["failed_pct"] == 0
    assert {(key[2], row["queries"]) for key, row in rows.items() if key[0] == "4"} == {(64, 9)}
    assert {key[2] for key in rows if key[0] == "3a"} == set(range(0, 101, 10))
    assert rows["3a", "with self-optimization", 100]["latency_ms"] <= rows["3a", "without", 100]["latency_ms"]
    assert max(row["latency_ms"] for key, row in rows.items() if key[0] == "3a") < 10_000, "no move overloads a server"
    assert rows["table1", "ants", 1.25]["paper_updates"] == 10
    assert rows["table1", "ants", 1.1]["updates"] >= rows["table1", "ants", 2.0]["updates"]
    lines = [json.loads(line) for line in (tmp_path / "dump" / "ants.jsonl").read_text().splitlines()]
    assert {line["figure"] for line in lines} == {"2a", "2b", "3a", "3b", "4", "table1"}
    placed = [line for line in lines if "refused" not in line]
    for line in placed:
        assert recomputed_ms(line) == pytest.approx(line["reached_ms"])
        assert (line["usage"], line["delay_ms"]) == pytest.approx(of_links(line, tmp_path / "dump"))
        assert line["probes"] == 0 or line["strategy"] in ("ants", "ants, one try", "centralized", "random")
        assert set(line["placement"].values()) <= set(line["hosts_allowed"])
    for row in (row for key, row in rows.items() if key[0] in ("3a", "table1")):
        reached = [
            line["reached_ms"]
            for line in placed
            if (line["figure"], line["strategy"]) == (row["figure"], row["strategy"])
            and line["second" if row["axis"] == "seconds" else "beta"] == row["at"]
        ]
        assert np.mean(reached) == pytest.approx(row["latency_ms"], abs=1e-3)
    for row in (row for key, row in rows.items() if key[0] == "4"):
        same = [line for line in lines if line["figure"] == "4" and line["strategy"] == row["strategy"]]
        tried = [line for line in same if line["topology"] == f"transit-stub-{row['at']}"]
        assert len(tried) == row["queries"]
        assert 100 * np.mean(["refused" in line for line in tried]) == row["failed_pct"]
    coming = [line for line in placed if line["figure"] == "3b" and line["strategy"] == "without"]
    assert len(coming) == round((1 - rows["3b", "without", 100]["failed_pct"] / 100) * rows["3b", "without", 100]["queries"])
    if drawn:
        names = {path.name for path in (tmp_path / "out").iterdir()}
        assert {"ants.json", "plane-figure2a.png", "plane-figure3b.svg", "plane-table1.png"} <= names


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.parametrize("kind", KINDS)
def test_reuse_costs_what_the_placed_tasks_cost(kind: str) -> None:
    """Each task is work once where it runs, and the latency of a query without reuse is that of any deployed chain."""
    places = np.random.default_rng(5).uniform(0, 100, (20, 2))
    sharing = Sharing(plain("plane", between(places)), 1, kind)
    for number, query in enumerate(overlapping(20, 20, np.random.default_rng(3))):
        assert sharing.place(number, query)
    work = 0.0
    for number, (chain, hosts, passed, feeder) in sharing.deployed.items():
        if passed >= 0:
            before = sharing.deployed[feeder]
            assert hosts[passed] == before.hosts[passed]
            assert chain.tasks[: passed + 1] == before.chain.tasks[: passed + 1]
            assert sharing.upto_ms(number, passed) == sharing.upto_ms(feeder, passed)
            assert sharing.latency_ms(number) > sharing.upto_ms(feeder, passed)
        elif kind == NEVER:
            assert sharing.latency_ms(number) == pytest.approx(sharing.world.latency_ms(chain.id))
        own = chain.flow(passed + 1, len(chain.tasks))
        work += own.rate_s * own.service.mean_ms / 1e3
    assert sharing.busy_cores() == pytest.approx(work)
    assert any(one.passed >= 0 for one in sharing.deployed.values()) == (kind != NEVER)


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_queries_that_reuse_tasks_keep_less_busy_and_send_less(matrix: Path) -> None:
    found = experiment("--data", str(matrix), "--queries", "20", "--seeds", "1", "--part", "reuse")["rows"]
    never, weighed, late, always = (next(row for row in found if row["strategy"] == kind) for kind in KINDS)
    assert (never["reused_pct"], never["failed_pct"], weighed["failed_pct"]) == (0, 0, 0)
    assert always["reused_pct"] >= weighed["reused_pct"] >= late["reused_pct"] > 0
    assert weighed["busy_cores"] < late["busy_cores"] < never["busy_cores"]
    assert weighed["in_transit"] < never["in_transit"]
    assert weighed["in_transit"] < always["in_transit"]
    assert late["latency_ms"] < min(1.02 * never["latency_ms"], weighed["latency_ms"], always["latency_ms"])


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_the_model_is_within_a_tenth_of_the_simulated_queue_in_its_range() -> None:
    rows = experiment("--part", "queue", "--seeds", "1")["rows"]
    within = [row for row in rows if row["strategy"].split()[-1] in ("0.8", "1", "2")]
    assert len(within) == 15
    assert max(abs(row["beyond_exact_pct"]) for row in within) <= 10


def test_an_unknown_part_is_named() -> None:
    result = CliRunner().invoke(sbon, ["experiment", "ants", "--part", "5"])
    assert result.exit_code == 2
    assert "'5' is none of 2a" in result.stderr
