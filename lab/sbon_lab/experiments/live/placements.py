"""Costs of placements on the wire, with the prediction and the exact optimum (``sbon experiment live``).

A query ran on real nodes in an emulated area. Its bytes are those that each link carried. *Measured* is these x the area's
one-way latency; the *optimum* is the least of that over all placements on the same nodes, of the same bytes. *Predicted* is
the usage that the strategy expected, from the plan's rates and its known latencies. *True* has the same rates and hosts with
the area's latencies. So *true* differs from *predicted* by errors about the network, and from *measured* by errors about the
streams.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from sbon_lab.bench.usage import Area
from sbon_node.placement.model.from_plan import problem_of
from sbon_node.placement.model.instance import Instance
from sbon_node.placement.model.objective import longest_delay_ms, network_usage
from sbon_node.placement.model.problem import PlacementProblem
from sbon_node.placement.strategies.sbon.optimal import optimum
from sbon_protocol.api.queries import QueryInfo

QUERIES = ("filter_late", "window_carriers", "join_weather", "union_aggregated", "join_three_way", "aggregate_twice")
"""Queries of the suite: one operator at each source, divided and not, trees, and a query that joins results again."""


def judged(info: QueryInfo, area: Area) -> dict[str, Any]:
    """Return the figures of a finished query; ``ratio`` is measured / optimum, None if the optimum is zero."""
    assert info.plan is not None
    assert info.placement is not None
    hosts, latency = info.placement.hosts(), area.one_way_ms
    planned = problem_of(info.plan, info.consumer)
    carried = _carried(planned, info)
    measured = sum(link.bytes * latency(link.source_node, link.target_node) for link in info.links)
    least = 1000 * network_usage(carried, best(carried, area), latency)
    true = network_usage(planned, hosts, latency)
    return {
        "operators": len(hosts),
        "nodes": len(set(hosts.values())),
        "measured_byte_ms": round(measured),
        "optimum_byte_ms": round(least),
        "ratio": round(measured / least, 4) if least > 0 else None,
        "predicted_bytes": round(info.placement.usage, 1),
        "true_bytes": round(true, 1),
        "predicted_ratio": round(info.placement.usage / true, 4) if true > 0 else None,
        "predicted_delay_ms": round(info.placement.delay_ms, 1),
        "true_delay_ms": round(longest_delay_ms(planned, hosts, latency), 1),
        "probes": info.placement.probes,
    }


def best(problem: PlacementProblem, area: Area) -> dict[str, str]:
    """Return the hosts of the exact optimum over all nodes of the area, regardless of capacity."""
    everyone = np.arange(len(area.names))
    instance = Instance(problem, list(area.names), np.asarray(area.rtt_ms) / 2, [everyone] * len(problem.operators), None)
    solution = optimum(instance)
    assert solution is not None  # no bounds
    return instance.named(solution.hosts.tolist())


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a line for each strategy, in order, over the queries that ran under all strategies that ran any."""
    ran = [row for row in rows if not row["failed"]]
    strategies = list(dict.fromkeys(row["strategy"] for row in rows))
    by_strategy = {strategy: {row["query"]: row for row in ran if row["strategy"] == strategy} for strategy in strategies}
    common = set.intersection(*(set(of) for of in by_strategy.values() if of)) if any(by_strategy.values()) else set()
    lines = []
    for strategy, of in by_strategy.items():
        shared = [row for query, row in of.items() if query in common]
        least = sum(row["optimum_byte_ms"] for row in shared)
        predicted = [row["predicted_ratio"] for row in shared if row["predicted_ratio"] is not None]
        lines.append(
            {
                "strategy": strategy,
                "queries": len(of),
                "failed": sum(row["strategy"] == strategy for row in rows) - len(of),
                "wrong": sum(row["wrong"] for row in of.values()),
                "of_optimum": round(sum(row["measured_byte_ms"] for row in shared) / least, 3) if least else None,
                "predicted_of_true": round(statistics.median(predicted), 3) if predicted else None,
                "delay_ms": round(statistics.mean(row["true_delay_ms"] for row in shared), 1) if shared else None,
                "probes": round(statistics.mean(row["probes"] for row in shared), 1) if shared else None,
            }
        )
    return lines


def _carried(problem: PlacementProblem, info: QueryInfo) -> PlacementProblem:
    """Return the problem with each stream's bytes in place of its rate; links of a stream carry the same frames."""
    size: dict[str, int] = {}
    for link in info.links:
        size[link.stream] = max(size.get(link.stream, 0), link.bytes)
    edges = tuple(msgspec.structs.replace(edge, rate_bytes_s=float(size.get(edge.source, 0))) for edge in problem.edges)
    return msgspec.structs.replace(problem, edges=edges)
