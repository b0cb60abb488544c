"""Quality of placements by ants: ANTS's Figures 2 (a), 2 (b) and 4."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from sbon_lab.experiments.ants.dump import record
from sbon_lab.experiments.ants.world import World, chain_of, chain_query
from sbon_lab.experiments.harness.experiment import Notify
from sbon_lab.experiments.harness.network import Network
from sbon_lab.experiments.harness.network_model import name_of
from sbon_lab.experiments.harness.topologies import Shape, transit_stub
from sbon_lab.experiments.harness.trials import Dump
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings

SIZES = (2, 4, 6, 8, 10)
"""Tasks of a query in Figure 2 (a)."""
SINGLE = 20
"""Most queries of each of these sizes."""
RIVALS = ("ants", "centralized", "random")
SHOWN = 5
"""Number of points in Figure 2 (b)."""
STUB_NODES = (4, 6, 8, 10, 12)
"""Stub sizes of Figure 4's networks: 208 to 592 nodes, with equal shape and diameter."""
LOADED = 300
"""Number of queries of Figure 4."""

SETTINGS = PlacementSettings()
ONE_TRY = msgspec.structs.replace(SETTINGS, ant_tries=1)


class Sample(NamedTuple):
    """Result of a seed: mean latency, that of the exact optimum, share of unplaced queries, and number of queries.

    With reuse of tasks, the share of queries that pass through another's, busy cores, and messages in transit over all links.
    """

    latency_ms: float | None
    exact_ms: float | None = None
    failed: float | None = None
    queries: int = 1
    updates: float | None = None
    loss_ms: float | None = None
    reused: float | None = None
    busy_cores: float | None = None
    in_transit: float | None = None


Samples = dict[tuple[str, str, float], Sample]
"""Results of a seed, by figure, strategy and x value of the figure."""


def by_tasks(network: Network, seed: int, queries: int, lines: Dump, notify: Notify) -> Samples:
    """Measure Figure 2 (a): a single query in an otherwise idle network, by its number of tasks."""
    samples: Samples = {}
    world = World(network, seed, SETTINGS)
    rng = np.random.default_rng((seed, 62))
    for tasks in SIZES:
        latencies: dict[str, list[float]] = {"optimal": [], "ants": [], "centralized": [], "random": []}
        for number in range(min(queries, SINGLE)):
            notify(f"{tasks} tasks, query {number + 1}")
            problem = chain_query(number, network.nodes, rng, tasks)
            best = _optimal(world, problem)
            assert best is not None
            for strategy, each in latencies.items():
                hosts = best if strategy == "optimal" else world.place(problem, strategy, number)
                assert hosts is not None
                each.append(_tried(world, problem, hosts))
                labels = {"figure": "2a", "strategy": strategy, "seed": seed, "query": number}
                probes = 0 if strategy == "optimal" else world.probes
                record(lines, world, problem, hosts, each[-1], probes=probes, **labels)
        exact_ms = float(np.mean(latencies["optimal"]))
        for strategy, each in latencies.items():
            samples["2a", strategy, tasks] = Sample(float(np.mean(each)), exact_ms, 0.0, len(each))
    return samples


def by_queries(network: Network, seed: int, queries: int, lines: Dump, notify: Notify) -> Samples:
    """Measure Figure 2 (b): mean latency of all deployed queries, after so many in sequence; placed queries stay."""
    problems = _problems(network, seed, queries)
    shown = sorted({round(queries * (i + 1) / SHOWN) for i in range(SHOWN)})
    samples: Samples = {}
    for strategy in ("optimal", *RIVALS):
        world, failed = World(network, seed, SETTINGS), 0
        for number, problem in enumerate(problems):
            notify(f"{strategy}, query {number + 1}")
            hosts = _placed(world, problem, strategy, number)
            failed += hosts is None
            _settle(lines, world, problem, hosts, figure="2b", strategy=strategy, seed=seed, query=number)
            if number + 1 in shown:
                exact = samples.get(("2b", "optimal", number + 1))
                mean_ms = world.mean_latency_ms()
                exact_ms = mean_ms if exact is None else exact.latency_ms
                samples["2b", strategy, number + 1] = Sample(mean_ms, exact_ms, failed / (number + 1), number + 1)
    return samples


def by_nodes(seed: int, queries: int, lines: Dump, notify: Notify) -> Samples:
    """Measure Figure 4: number of ``queries`` that can be placed, in networks of increasing size."""
    samples: Samples = {}
    for stub_nodes in STUB_NODES:
        network = transit_stub("", Shape(4, 4, 3, stub_nodes, 100.0), seed)
        network = network._replace(name=f"transit-stub-{network.nodes}")
        problems = _problems(network, seed, queries)
        for strategy in ("optimal", "ants", "ants, one try"):
            world = World(network, seed, ONE_TRY if strategy == "ants, one try" else SETTINGS)
            for number, problem in enumerate(problems):
                notify(f"{network.nodes} nodes: {strategy}, query {number + 1}")
                hosts = _placed(world, problem, strategy, number)
                _settle(lines, world, problem, hosts, figure="4", strategy=strategy, seed=seed, query=number)
            mean_ms, failed = world.mean_latency_ms(), 1.0 - len(world.deployed) / queries
            exact = samples.get(("4", "optimal", network.nodes))
            exact_ms = mean_ms if exact is None else exact.latency_ms
            samples["4", strategy, network.nodes] = Sample(mean_ms, exact_ms, failed, queries)
    return samples


def _settle(
    lines: Dump, world: World, problem: PlacementProblem, hosts: list[str] | None, /, *, strategy: str, **labels: Any
) -> None:
    """Deploy the query if it has hosts, and write the result."""
    probes = 0 if strategy == "optimal" else world.probes
    if hosts is None:
        lines.refused(
            problem, world.network_model, "no-capacity", probes, topology=world.network.name, strategy=strategy, **labels
        )
        return
    world.deploy(chain_of(problem), hosts)
    latency_ms = world.latency_ms(chain_of(problem).id)
    record(lines, world, problem, hosts, latency_ms, strategy=strategy, probes=probes, **labels)


def _problems(network: Network, seed: int, queries: int) -> Sequence[PlacementProblem]:
    rng = np.random.default_rng((seed, 63))
    return [chain_query(number, network.nodes, rng) for number in range(queries)]


def _placed(world: World, problem: PlacementProblem, strategy: str, number: int) -> list[str] | None:
    return _optimal(world, problem) if strategy == "optimal" else world.place(problem, strategy.split(",")[0], number)


def _optimal(world: World, problem: PlacementProblem) -> list[str] | None:
    best = world.optimum(chain_of(problem))
    return None if best is None else [name_of(host) for host in best.hosts]


def _tried(world: World, problem: PlacementProblem, hosts: list[str]) -> float:
    """Return the query's latency on these hosts beside the deployed queries, without deploying it."""
    chain = chain_of(problem)
    world.deploy(chain, hosts)
    latency_ms = world.latency_ms(chain.id)
    world.withdraw(chain.id)
    return latency_ms
