"""Adaptation of ants' placements to a changing network: ANTS's Figures 3 (a) and 3 (b), and its Table 1.

A leader sends ants every ten seconds, whose pheromones outlive the visit. If the best report beats the deployed placement by
a factor beta, the leader enforces it and withdraws the old placement (section 3.9).
"""

import msgspec
import numpy as np

from sbon_lab.experiments.ants.dump import record_deployed
from sbon_lab.experiments.ants.quality import SETTINGS, Sample, Samples
from sbon_lab.experiments.ants.world import World, chain_of, chain_query
from sbon_lab.experiments.harness.experiment import Notify
from sbon_lab.experiments.harness.network import Floats, Network
from sbon_lab.experiments.harness.trials import Dump
from sbon_node.papers.ants.algorithm.chain import Chain
from sbon_node.placement.model.problem import PlacementProblem

SECONDS, EVERY_S = 100, 10
RISES_S, LOADS = (20, 60), (0.8, 0.94)
"""Times at which the rate of Figure 3 (a)'s query rises, and the resulting loads of the busiest server at its first
placement.

The paper's "10 ms" is no rate.
"""
TASKS, BESIDE = 10, 0.5
"""Tasks of the query of Figure 3 (a) and Table 1, and number of other queries per query of Figure 2 (b)."""
STAY = 1.1
"""Beta of both figures."""
FIRST, ADDED = 2.0, 0.5
"""Queries of Figure 3 (b), relative to Figure 2 (b): initial, and per addition (200 and 50 of 100)."""
ROUTING_ANTS, SCOUTS = 20, 10
"""Ants of a leader for each query at each visit."""
BETAS = (1.1, 1.25, 1.5, 1.75, 2.0)
CROSS_EVERY_S, CROSSED, CROSS_LOAD = 5, 0.3, (0.5, 0.9)
"""Cross traffic of Table 1: seconds between changes, share of servers, and their load by it."""


def by_rate(network: Network, seed: int, queries: int, lines: Dump, notify: Notify) -> Samples:
    """Measure Figure 3 (a): latency of a query whose rate rises twice, with and without new placements."""
    samples: Samples = {}
    for adapts in (True, False):
        world, _ = _crowded(network, seed, queries)
        problem = chain_query(queries, network.nodes, np.random.default_rng((seed, 65)), TASKS)
        chain = chain_of(problem)
        _deploy(world, chain)
        rates_s = {second: _rate_s(world, chain.id, load) for second, load in zip(RISES_S, LOADS, strict=True)}
        for second in range(0, SECONDS + 1, EVERY_S):
            notify(f"figure 3 (a), second {second}")
            if second in rates_s:
                _, hosts = world.withdraw(chain.id)
                chain = msgspec.structs.replace(chain, rate_s=rates_s[second])
                world.deploy(chain, hosts)
            if adapts:
                review(world, chain.id, STAY, second)
            strategy = "with self-optimization" if adapts else "without"
            record_deployed(lines, world, problem, figure="3a", strategy=strategy, seed=seed, query=queries, second=second)
            samples["3a", strategy, second] = Sample(world.latency_ms(chain.id), _exact_ms(world, chain.id))
    return samples


def by_arrivals(network: Network, seed: int, queries: int, lines: Dump, notify: Notify) -> Samples:
    """Measure Figure 3 (b): mean latency of all queries while others arrive, with and without new placements.

    Writes each query when it arrives, and when it moves.
    """
    samples: Samples = {}
    many = [round(FIRST * queries)] + 2 * [round(ADDED * queries)]
    for adapts in (True, False):
        world = World(network, seed, SETTINGS)
        rng, problems = np.random.default_rng((seed, 66)), dict[str, tuple[int, PlacementProblem]]()
        number = failed = moved = 0
        strategy = "with self-optimization" if adapts else "without"
        for second in range(0, SECONDS + 1, EVERY_S):
            notify(f"figure 3 (b), second {second}")
            coming = many[0] if second == 0 else many[1] if second in RISES_S else 0
            labels = {"figure": "3b", "strategy": strategy, "seed": seed, "second": second}
            for _ in range(coming):
                problem = chain_query(number, network.nodes, rng)
                chain = chain_of(problem)
                problems[chain.id] = number, problem
                if _deploy(world, chain, second):
                    record_deployed(lines, world, problem, query=number, **labels)
                else:
                    failed += 1
                    lines.refused(problem, world.network_model, "no-capacity", 0, topology=network.name, query=number, **labels)
                number += 1
            for chain_id in list(world.deployed) if adapts and second > 0 else ():
                if review(world, chain_id, STAY, second):
                    moved += 1
                    query, problem = problems[chain_id]
                    record_deployed(lines, world, problem, query=query, **labels)
            samples["3b", strategy, second] = Sample(world.mean_latency_ms(), None, failed / number, number, updates=float(moved))
    return samples


def by_beta(network: Network, seed: int, queries: int, lines: Dump, notify: Notify) -> Samples:
    """Measure Table 1: how often a query moves, and its loss against the best placement of each moment, under cross traffic.

    The loss is the mean over time of its latency above the exact optimum's.
    """
    samples: Samples = {}
    for beta in BETAS:
        world, rng = _crowded(network, seed, queries)
        problem = chain_query(queries, network.nodes, np.random.default_rng((seed, 65)), TASKS)
        chain = chain_of(problem)
        _deploy(world, chain)
        losses, latencies, updates = [], [], 0
        for second in range(0, SECONDS + 1, CROSS_EVERY_S):
            notify(f"table 1, beta {beta}, second {second}")
            world.disturb(_cross_traffic(network.nodes, rng))
            updates += review(world, chain.id, beta, second)
            latencies.append(world.latency_ms(chain.id))
            labels = {"strategy": "ants", "seed": seed, "query": queries, "beta": beta, "second": second}
            record_deployed(lines, world, problem, figure="table1", **labels)
            losses.append(latencies[-1] - _exact_ms(world, chain.id))
        mean_ms, loss_ms = float(np.mean(latencies)), float(np.mean(losses))
        samples["table1", "ants", beta] = Sample(mean_ms, mean_ms - loss_ms, updates=float(updates), loss_ms=loss_ms)
    return samples


def review(world: World, chain_id: str, beta: float, now: float) -> bool:
    """Run a leader's visit; return whether it moved the chain."""
    current_ms = world.latency_ms(chain_id)
    chain, hosts = world.withdraw(chain_id)
    colony = world.colony
    colony.route(chain.source, chain.destination, ROUTING_ANTS, now)
    reports = colony.scout(chain, SCOUTS, now=now)
    moved = world.enforce([report for report in reports if report.latency_ms * beta < current_ms])
    if not moved:
        world.deploy(chain, hosts)
    return moved


def _rate_s(world: World, chain_id: str, load: float) -> float:
    """Return the rate at which an unmoved chain gives the busiest of its servers this load."""
    cells = world.colony.cells
    chain, hosts = world.withdraw(chain_id)
    nodes = sorted(set(hosts))
    others = [float(cells[node].traffic.load) for node in nodes]
    world.deploy(chain, hosts)
    shares = [(load - other) / (float(cells[node].traffic.load) - other) for node, other in zip(nodes, others, strict=True)]
    return chain.rate_s * min(shares)


def _crowded(network: Network, seed: int, queries: int) -> tuple[World, np.random.Generator]:
    """Return a world with ``BESIDE`` times as many queries, each deployed at its optimum on arrival and never moved."""
    world, rng = World(network, seed, SETTINGS), np.random.default_rng((seed, 64))
    for number in range(round(BESIDE * queries)):
        chain = chain_of(chain_query(number, network.nodes, rng))
        best = world.optimum(chain)
        if best is not None:
            world.deploy(chain, [world.network_model.names[host] for host in best.hosts])
    return world, rng


def _deploy(world: World, chain: Chain, now: float = 0.0) -> bool:
    """Deploy by ants; return whether they found a placement."""
    settings = world.settings
    reports = world.colony.place(chain, settings.routing_ants, settings.scouting_ants, settings.ant_tries, now)
    return world.enforce(reports)


def _exact_ms(world: World, chain_id: str) -> float:
    """Return the chain's least possible latency with all others fixed; its present latency if nothing else has room."""
    chain, hosts = world.withdraw(chain_id)
    best = world.optimum(chain)
    world.deploy(chain, hosts if best is None else [world.network_model.names[host] for host in best.hosts])
    least_ms = world.latency_ms(chain_id)
    world.withdraw(chain_id)
    world.deploy(chain, hosts)
    return least_ms


def _cross_traffic(nodes: int, rng: np.random.Generator) -> Floats:
    return np.where(rng.random(nodes) < CROSSED, rng.uniform(*CROSS_LOAD, nodes), 0.0)
