"""Queries of experiments with ants, as lines of JSON from which another program can compute their latency again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from sbon_node.experiments.ants_world import World, chain_of
from sbon_node.experiments.trials import Dump, true_latency
from sbon_node.placement.objective import longest_delay_ms, network_usage
from sbon_node.placement.problem import PlacementProblem


def record(
    lines: Dump, world: World, problem: PlacementProblem, hosts: Sequence[str], latency_ms: float, /, **labels: object
) -> None:
    """Of a query that is deployed on ``hosts``, or would be; ``reached_ms`` is its latency by queueing, ``delay_ms`` that of its
    links alone; ``servers`` say what its hosts serve beside it."""
    if not lines.wanted:
        return
    placed = {operator.id: node for operator, node in zip(problem.operators, hosts, strict=True)}
    chain_id, latency = chain_of(problem).id, true_latency(world.network)
    lines.record(
        problem,
        world.ground,
        placed,
        {
            "reached_ms": latency_ms,
            "usage": network_usage(problem, placed, latency),
            "delay_ms": longest_delay_ms(problem, placed, latency),
            "services": {operator.id: msgspec.to_builtins(operator.service) for operator in problem.operators},
            "servers": {node: msgspec.to_builtins(world.colony.cells[node].beside(chain_id)) for node in sorted(set(hosts))},
        },
        topology=world.network.name,
        **labels,
    )


def record_deployed(lines: Dump, world: World, problem: PlacementProblem, /, **labels: object) -> None:
    """As :func:`record`, where it is and at the rate it has now; nothing where it is not deployed."""
    chain_id = chain_of(problem).id
    if lines.wanted and chain_id in world.deployed:
        chain, hosts = world.deployed[chain_id]
        record(lines, world, at_rate(problem, chain.rate_s), hosts, world.latency_ms(chain_id), questions=0, **labels)


def at_rate(problem: PlacementProblem, rows_s: float) -> PlacementProblem:
    """The same with so many messages a second from its producer."""
    times = rows_s / chain_of(problem).rate_s
    operators = []
    for operator in problem.operators:
        needs = replace(operator.needs, cores=operator.needs.cores * times)
        operators.append(replace(operator, needs=needs, rows_s=operator.rows_s * times))
    edges = [replace(edge, rate_bytes_s=edge.rate_bytes_s * times, rows_s=edge.rows_s * times) for edge in problem.edges]
    return replace(problem, operators=tuple(operators), edges=tuple(edges))
