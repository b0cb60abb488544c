"""Queries of ant experiments as JSON lines, from which another program can recompute their latency."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from sbon_lab.experiments.ants.world import World, chain_of
from sbon_lab.experiments.harness.trials import Dump, true_latency
from sbon_node.placement.model.objective import longest_delay_ms, network_usage
from sbon_node.placement.model.problem import PlacementProblem


def record(
    lines: Dump, world: World, problem: PlacementProblem, hosts: Sequence[str], latency_ms: float, /, **labels: object
) -> None:
    """Write a query with deployed or possible ``hosts``.

    ``reached_ms`` is its latency with queueing, ``delay_ms`` that of its links alone; ``servers`` describe the other load of
    its hosts.
    """
    if not lines.wanted:
        return
    node_of = {operator.id: node for operator, node in zip(problem.operators, hosts, strict=True)}
    chain_id, latency = chain_of(problem).id, true_latency(world.network)
    lines.record(
        problem,
        world.network_model,
        node_of,
        {
            "reached_ms": latency_ms,
            "usage": network_usage(problem, node_of, latency),
            "delay_ms": longest_delay_ms(problem, node_of, latency),
            "services": {operator.id: msgspec.to_builtins(operator.service) for operator in problem.operators},
            "servers": {node: msgspec.to_builtins(world.colony.cells[node].beside(chain_id)) for node in sorted(set(hosts))},
        },
        topology=world.network.name,
        **labels,
    )


def record_deployed(lines: Dump, world: World, problem: PlacementProblem, /, **labels: object) -> None:
    """Write a deployed query as :func:`record` does, at its present hosts and rate; nothing if it is not deployed."""
    chain_id = chain_of(problem).id
    if lines.wanted and chain_id in world.deployed:
        chain, hosts = world.deployed[chain_id]
        record(lines, world, at_rate(problem, chain.rate_s), hosts, world.latency_ms(chain_id), probes=0, **labels)


def at_rate(problem: PlacementProblem, rows_s: float) -> PlacementProblem:
    """Return the problem with so many messages a second from its producer."""
    times = rows_s / chain_of(problem).rate_s
    operators = []
    for operator in problem.operators:
        needs = replace(operator.needs, cores=operator.needs.cores * times)
        operators.append(replace(operator, needs=needs, rows_s=operator.rows_s * times))
    edges = [replace(edge, rate_bytes_s=edge.rate_bytes_s * times, rows_s=edge.rows_s * times) for edge in problem.edges]
    return replace(problem, operators=tuple(operators), edges=tuple(edges))
