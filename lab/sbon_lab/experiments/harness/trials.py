"""True costs of each strategy's placements, against the exact optimum on the same hosts and latencies."""

import asyncio
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np

from sbon_lab.experiments.harness.network import Floats, Network
from sbon_lab.experiments.harness.network_model import NetworkModel, NetworkModelView, name_of, number_of
from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model.instance import RESOURCES, Instance
from sbon_node.placement.model.objective import Latency, longest_delay_ms, network_usage
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.sbon.optimal import optimum
from sbon_protocol.errors import SbonError


class Trial(NamedTuple):
    """Result of a query. ``usage`` is in bytes in transit, ``best`` that of the optimum, NaN if unknown.

    ``delay_ms`` is the delay of the longest path, ``direct_ms`` that of the longest direct path from a producer to the
    consumer. The others are the number of probes and the CPU time.
    """

    usage: float
    best: float
    delay_ms: float
    direct_ms: float
    probes: int
    cpu_ms: float

    @property
    def penalty(self) -> float:
        return self.usage / self.best - 1

    @property
    def delay_penalty(self) -> float:
        return self.delay_ms / self.direct_ms - 1


def true_latency(network: Network) -> Latency:
    return lambda a, b: float(network.latency_ms[number_of(a), number_of(b)])


def place(
    problem: PlacementProblem, strategy: str, view: NetworkModelView, settings: PlacementSettings
) -> tuple[dict[str, str], int, float]:
    """Return the hosts, the number of probes, and the CPU milliseconds."""
    started = time.process_time()
    placement = asyncio.run(_run(problem, strategy, view, settings))
    return placement[0], placement[1], (time.process_time() - started) * 1000


async def _run(
    problem: PlacementProblem, strategy: str, view: NetworkModelView, settings: PlacementSettings
) -> tuple[dict[str, str], int]:
    placement = await STRATEGIES[strategy](problem, view, settings)
    return placement.hosts(), placement.probes


def best_hosts(problem: PlacementProblem, network_model: NetworkModel, free: Floats | None = None) -> dict[str, str]:
    """Return the exact optimum over all hosts by true latencies, within ``free`` cores [n], if given.

    Raises :class:`SbonError` ``no-capacity``.
    """
    nodes = [name_of(node) for node in range(network_model.network.nodes)]
    capacity, candidates = None, [network_model.hosts] * len(problem.operators)
    if free is not None:
        capacity = np.full((len(nodes), RESOURCES), np.inf)
        capacity[:, 0] = free
        candidates = [network_model.hosts[free[network_model.hosts] >= operator.needs.cores] for operator in problem.operators]
    instance = Instance(problem, nodes, network_model.network.latency_ms, candidates, capacity)
    solution = optimum(instance)
    if solution is None:
        raise SbonError("no-capacity", "no placement fits", where="experiment")
    return instance.named(solution.hosts.tolist())


def exact_usage(problem: PlacementProblem, network_model: NetworkModel, free: Floats) -> float | None:
    """Return the usage of :func:`best_hosts`; None if the problem is too large."""
    try:
        hosts = best_hosts(problem, network_model, free)
    except SbonError as error:
        if error.code != "too-large":
            raise
        return None
    return network_usage(problem, hosts, true_latency(network_model.network))


def judged(
    problem: PlacementProblem, network: Network, hosts: dict[str, str], best: dict[str, str], probes: int, cpu_ms: float
) -> Trial:
    latency = true_latency(network)
    consumer = problem.pinned["consumer"]
    direct = max(latency(node, consumer) for vertex, node in problem.pinned.items() if vertex != "consumer")
    return Trial(
        usage=network_usage(problem, hosts, latency),
        best=network_usage(problem, best, latency),
        delay_ms=longest_delay_ms(problem, hosts, latency),
        direct_ms=direct,
        probes=probes,
        cpu_ms=cpu_ms,
    )


class Dump:
    """Writer of every instance and placement as a JSON line, for other programs to check; without a folder, nothing.

    ``latency_ms`` is one-way, between all nodes named in the line. If ``hosts`` are many, the whole matrix is in
    ``NETWORK.npz`` beside the lines.
    """

    def __init__(self, folder: Path | None, name: str) -> None:
        self._folder = folder
        self._file: IO[str] | None = None
        self._networks: set[str] = set()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"{name}.jsonl").open("w", encoding="utf-8")

    @property
    def wanted(self) -> bool:
        return self._file is not None

    def write(
        self, problem: PlacementProblem, network_model: NetworkModel, hosts: dict[str, str], trial: Trial, /, **labels: Any
    ) -> None:
        costs = {
            "usage": trial.usage,
            "optimal_usage": None if math.isnan(trial.best) else trial.best,
            "delay_ms": trial.delay_ms,
            "direct_delay_ms": trial.direct_ms,
            "probes": trial.probes,
        }
        self.record(problem, network_model, hosts, costs, **labels)

    def record(
        self,
        problem: PlacementProblem,
        network_model: NetworkModel,
        hosts: dict[str, str],
        costs: Mapping[str, Any],
        /,
        **labels: Any,
    ) -> None:
        """Write a placement with the ``costs`` that the experiment compares."""
        if self._file is None or self._folder is None:
            return
        network = f"{labels['topology']}-{labels['seed']}"
        if network not in self._networks:
            self._networks.add(network)
            np.savez_compressed(self._folder / f"{network}.npz", latency_ms=network_model.network.latency_ms)
        nodes = sorted({*problem.pinned.values(), *hosts.values()})
        latency = true_latency(network_model.network)
        line = {
            **labels,
            "network": f"{network}.npz",
            "hosts_allowed": [name_of(node) for node in network_model.hosts.tolist()],
            "pinned": problem.pinned,
            "operators": [operator.id for operator in problem.operators],
            "edges": [msgspec.to_builtins(edge) for edge in problem.edges],
            "nodes": nodes,
            "latency_ms": [[latency(a, b) for b in nodes] for a in nodes],
            "placement": hosts,
            **costs,
        }
        self._file.write(json.dumps(line) + "\n")

    def refused(self, problem: PlacementProblem, network_model: NetworkModel, code: str, probes: int, /, **labels: Any) -> None:
        """Write a rejected query with the reason and an empty placement."""
        self.record(problem, network_model, {}, {"refused": code, "probes": probes}, **labels)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
