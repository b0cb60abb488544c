"""All strategies side by side over the same weather and changes, each with several kinds of adaptation, in virtual time."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from sbon_lab.experiments.adaptation.figures import mean, plan_changes
from sbon_lab.experiments.adaptation.run import Observed, observe
from sbon_lab.experiments.adaptation.world import KINDS, draw
from sbon_protocol.api.adaptation import ANTS, FULL, LOCAL, OFF, Adapt, adapted
from sbon_protocol.api.strategies import AUTO, STRATEGY_NAMES

NOT_IN_DAEMONS = ("ip-multicast",)
"""Strategies that need routers between the nodes, which no daemon knows."""
STRATEGIES = tuple(name for name in (*STRATEGY_NAMES, AUTO) if name not in NOT_IN_DAEMONS)
ADAPTATIONS: tuple[Adapt, ...] = (OFF, LOCAL, FULL)
BOUND = 1.5
"""Bound on the delay of half of the queries, in latencies from the farthest source straight to the consumer."""
ROUNDS = 18
"""Rounds of the matrix in a run, whatever its length."""


def experiment(
    data: Path,
    *,
    strategies: Sequence[str] = STRATEGIES,
    adaptations: Sequence[Adapt] = ADAPTATIONS,
    nodes: int = 20,
    queries: int = 4,
    minutes: float = 5.0,
    period_s: float = 20.0,
    seeds: Sequence[int] = (1,),
    notify: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Return ``{"name", "rows"}``, a row for each strategy and adaptation: means over the seeds.

    Raises :class:`SbonError` ``bad-matrix`` or ``simulation-failed``.
    """
    seconds, rows = 60 * minutes, []
    changes = plan_changes(seconds, queries, len(KINDS))
    worlds = [
        draw(data, nodes=nodes, queries=queries, seed=seed, changes=changes, round_s=seconds / ROUNDS, bound=BOUND)
        for seed in seeds
    ]
    for strategy, adapt in kinds(strategies, adaptations):
        runs, bounded = [], set[str]()
        for seed, world in zip(seeds, worlds, strict=True):
            bounded = {query.name for query in world.queries if query.max_delay_ms is not None}
            runs.append(
                observe(
                    deepcopy(world),
                    seed=seed,
                    seconds=seconds,
                    period_s=period_s,
                    every_s=period_s / 2,
                    adapt=adapt,
                    strategy=strategy,
                    may_fail=True,
                    notify=partial(_notify, notify, f"{strategy}, {adapt}, seed {seed}"),
                )
            )
        rows.append({"strategy": strategy, "adapt": adapt, **figures(runs, queries, nodes, bounded)})
    name = f"strategies on {nodes} nodes of {data.stem}, {queries} queries for {minutes:g} minutes, a period of {period_s:g} s"
    return {"name": name, "rows": rows}


def _notify(notify: Callable[[str], None], run: str, text: str) -> None:
    notify(f"{run}: {text}")


def kinds(strategies: Sequence[str], adaptations: Sequence[Adapt]) -> Iterator[tuple[str, Adapt]]:
    """Yield each strategy with the adaptations that its queries can have; ants are those of the strategy ``ants`` alone."""
    for strategy in strategies:
        for adapt in dict.fromkeys(adapted(adapt, strategy) for adapt in adaptations):
            if adapt != ANTS or strategy == ANTS:
                yield strategy, adapt


def figures(runs: Sequence[Observed], queries: int, nodes: int, bounded: set[str]) -> dict[str, Any]:
    """Return the figures of a strategy with one adaptation over its runs.

    Usage and delay are means over all looks at queries that run, so over time. ``usage_over_oracle`` is beside the best
    placement at the same times, and ``first_over_oracle`` that of the first placement, had nothing moved. ``late_share`` is the
    share of looks at queries with a bound at which true latencies break it, though rows sent straight to the consumer keep it.
    ``placing`` counts what all nodes send while the queries are submitted, for each query; ``running`` what they send from then
    on.
    """
    looks = [look for run in runs for look in run.looks]
    bound_looks = [look for look in looks if look.query in bounded]
    hours = sum(len(run.hosts) * run.seconds for run in runs) / 3600
    between_s = sum(run.between_s for run in runs)
    moves = sum(len(seen) - 1 for run in runs for seen in run.hosts.values())
    oracle = mean(looks, "oracle")
    return {
        "usage_bytes": mean(looks, "adapting") if looks else None,
        "usage_over_oracle": mean(looks, "adapting") / oracle if oracle else None,
        "first_over_oracle": mean(looks, "never") / oracle if oracle else None,
        "delay_ms": sum(look.delay_ms for look in looks) / len(looks) if looks else None,
        "late_share": sum(look.late for look in bound_looks) / len(bound_looks) if bound_looks else None,
        "moves": moves / len(runs),
        "moves_operator_hour": moves / hours if hours else None,
        "probes_query": sum(run.probes for run in runs) / (queries * len(runs)),
        "placing_messages_query": sum(run.placing.messages for run in runs) / (queries * len(runs)),
        "placing_kb_query": sum(run.placing.bytes for run in runs) / 1000 / (queries * len(runs)),
        "running_messages_s_node": sum(run.sent.messages for run in runs) / between_s / nodes,
        "running_bytes_s_node": sum(run.sent.bytes for run in runs) / between_s / nodes,
        "failed": sum(len(run.failed) for run in runs),
        "failures": sorted({reason for run in runs for reason in run.failed.values()}),
        "cpu_s": round(sum(run.cpu_s for run in runs), 1),
    }
