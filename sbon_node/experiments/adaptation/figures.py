"""The figures of adaptation: saving beside an oracle's, moves, returns, and traffic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sbon_node.experiments.adaptation.run import Look, Observed, observe
from sbon_node.experiments.adaptation.world import KINDS, Change, draw

SETTLING_PERIODS = 3
"""Periods after a change that its saving leaves out."""
RETURN_PERIODS = 10


def experiment(
    data: Path,
    *,
    nodes: int = 20,
    queries: int = 4,
    minutes: float = 10.0,
    period_s: float = 20.0,
    seeds: Sequence[int] = (1,),
    changes: bool = True,
    traffic: bool = False,
    notify: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Return ``{"name", "rows"}``, a row for each seed; with ``traffic`` each world runs again with nothing that moves.

    Raises :class:`SbonError` ``bad-matrix`` or ``simulation-failed``.
    """
    seconds, rows = 60 * minutes, []
    for seed in seeds:
        planned = plan_changes(seconds, queries) if changes else ()

        def run(adapt: str, seed: int = seed, planned: tuple[Change, ...] = planned) -> Observed:
            world = draw(data, nodes=nodes, queries=queries, seed=seed, changes=planned, round_s=seconds / 18)
            return observe(
                world,
                seed=seed,
                seconds=seconds,
                period_s=period_s,
                every_s=period_s / 4,
                adapt=adapt,  # type: ignore[arg-type]
                notify=lambda text: notify(f"seed {seed}, {adapt}: {text}"),
            )

        observed = run("local")
        row = {"seed": seed, "nodes": nodes, "queries": queries, **figures(observed, planned, period_s)}
        if traffic:
            still = run("off")
            sent = sum(observed.sent) / observed.seconds - sum(still.sent) / still.seconds
            row["optimizers_bytes_s_node"] = sent / nodes
        rows.append(row)
    return {"name": f"adaptation on {data.stem}, a period of {period_s:g} s", "rows": rows}


def plan_changes(seconds: float, queries: int) -> tuple[Change, ...]:
    """Return changes at even times, of all kinds in turn; the first quarter is without one."""
    count = max(2, round(seconds / 150))
    times = np.linspace(seconds / 4, seconds, count, endpoint=False)
    return tuple(Change(float(at_s), KINDS[number % len(KINDS)], number % queries) for number, at_s in enumerate(times))


def figures(observed: Observed, changes: Sequence[Change], period_s: float) -> dict[str, Any]:
    """Return the figures of a run.

    ``saving_share`` is (never - adapting) / (never - oracle), of sums over all looks from three periods after the begin and after
    each change, until the next.
    """
    changed = [0.0, *(change.at_s for change in changes)]
    settled = [look for look in observed.looks if _since(look, changed) >= SETTLING_PERIODS * period_s]
    never, adapting, oracle = (sum(getattr(look, name) for look in settled) for name in ("never", "adapting", "oracle"))
    operator_hours = len(observed.hosts) * observed.seconds / 3600
    moves = {operator: len(seen) - 1 for operator, seen in observed.hosts.items()}
    times = len(settled) or 1
    return {
        "operators": len(observed.hosts),
        "changes": len(changes),
        "never_bytes": never / times,
        "adapting_bytes": adapting / times,
        "oracle_bytes": oracle / times,
        "saving_share": (never - adapting) / (never - oracle) if never > oracle else None,
        "moves": sum(moves.values()),
        "moves_operator_hour": sum(moves.values()) / operator_hours,
        "most_moves": max(moves.values(), default=0),
        "returns": returns(observed.hosts, RETURN_PERIODS * period_s),
        "unpaid_moves": unpaid(observed),
        "decisions": dict(sorted(observed.decisions.items())),
        "cpu_s": round(observed.cpu_s, 1),
    }


def returns(hosts: dict[str, list[tuple[float, str]]], within_s: float) -> int:
    """Return how often an operator came back to a host within a time of leaving it."""
    count = 0
    for seen in hosts.values():
        left_s: dict[str, float] = {}
        for (_, node), (left, following) in pairwise(seen):
            left_s[node] = left
            count += following in left_s and left - left_s[following] < within_s
    return count


def unpaid(observed: Observed) -> int:
    """Return how many moves were followed by a look at which usage was above that of before the move.

    Usage is as share of *never moves*, so that changes of the world count little.
    """
    count = 0
    for operator, seen in observed.hosts.items():
        looks = [look for look in observed.looks if look.query == operator.partition("-")[0]]
        for at_s, _ in seen[1:]:
            before = [look for look in looks if look.at_s < at_s]
            after = [look for look in looks if look.at_s >= at_s]
            if before and after and after[0].adapting / after[0].never > before[-1].adapting / before[-1].never * 1.001:
                count += 1
    return count


def _since(look: Look, changed: Sequence[float]) -> float:
    return look.at_s - max(at_s for at_s in changed if at_s <= look.at_s)
