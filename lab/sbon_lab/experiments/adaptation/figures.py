"""The figures of adaptation: saving beside an oracle's, moves, returns, and traffic."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sbon_lab.experiments.adaptation.run import Look, Observed, observe
from sbon_lab.experiments.adaptation.world import KINDS, Change, draw
from sbon_node.adaptation.rules import TOGETHER
from sbon_protocol.api.adaptation import MOVES

SETTLING_PERIODS = 3
"""Periods after a change that its saving leaves out."""
RETURN_PERIODS = 10
LEAST_SHARE = 0.9
"""Aim: share of the oracle's saving."""
MOST_MOVES, MOST_MOVES_UNCHANGED = 5.0, 0.2
"""Aims: moves of an operator in an hour, with changes and without."""
MOST_BYTES_S = 300.0
"""Aim: traffic of the optimizers of a node."""


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
                every_s=period_s / 2,
                adapt=adapt,  # type: ignore[arg-type]
                notify=lambda text: notify(f"seed {seed}, {adapt}: {text}"),
            )

        observed = run("local")
        row = {"seed": seed, "nodes": nodes, "queries": queries, **figures(observed, planned, period_s)}
        if traffic:
            still = run("off")
            sent = observed.sent.bytes / observed.between_s - still.sent.bytes / still.between_s
            row["optimizers_bytes_s_node"] = sent / nodes
            row["missed"] = missed(row)
        rows.append(row)
    return {"name": f"adaptation on {data.stem}, a period of {period_s:g} s", "rows": rows}


def plan_changes(seconds: float, queries: int, least: int = 2) -> tuple[Change, ...]:
    """Return changes at even times, ``least`` or more, of all kinds in turn; the first quarter is without one."""
    count = max(least, round(seconds / 150))
    times = np.linspace(seconds / 4, seconds, count, endpoint=False)
    return tuple(Change(float(at_s), KINDS[number % len(KINDS)], number % queries) for number, at_s in enumerate(times))


def figures(observed: Observed, changes: Sequence[Change], period_s: float) -> dict[str, Any]:
    """Return the figures of a run.

    ``saving_share`` is (never - adapting) / (never - oracle), of sums over all looks from three periods after the begin and after
    each change, until the next; ``saving_share_rate`` and so on are of the looks after changes of one kind. Those after a change
    of load do not count in the whole: the oracle leaves a busy node at once, hosts one operator at a time. ``relieved`` counts
    busy nodes that an operator has left within three periods, ``joint_moves`` those of ``moves`` that operators at two nodes have
    agreed on. ``missed`` are the aims that the run misses.
    """
    marks = [(0.0, "begin"), *((change.at_s, str(change.kind)) for change in changes)]
    settled: dict[str, list[Look]] = {}
    for look in observed.looks:
        since_s, kind = max(mark for mark in marks if mark[0] <= look.at_s)
        if look.at_s - since_s >= SETTLING_PERIODS * period_s:
            settled.setdefault(kind, []).append(look)
    looks = [look for kind, group in settled.items() if kind != "load" for look in group]
    operator_hours = len(observed.hosts) * observed.seconds / 3600
    moves = {operator: len(seen) - 1 for operator, seen in observed.hosts.items()}
    row: dict[str, Any] = {
        "operators": len(observed.hosts),
        "changes": len(changes),
        **{f"{name}_bytes": mean(looks, name) for name in ("never", "adapting", "oracle")},
        "saving_share": saving_share(looks),
        **{f"saving_share_{kind}": saving_share(group) for kind, group in settled.items()},
        "moves": sum(moves.values()),
        "moves_operator_hour": sum(moves.values()) / operator_hours,
        "joint_moves": sum((one.verdict, one.code, one.outcome) == (MOVES, TOGETHER, "") for one in observed.decisions),
        "most_moves": max(moves.values(), default=0),
        "returns": returns(observed.hosts, RETURN_PERIODS * period_s),
        "unpaid_moves": unpaid(observed),
        "loads": len(observed.busy),
        "relieved": relieved(observed, SETTLING_PERIODS * period_s),
        "decisions": dict(sorted(Counter(f"{one.verdict} {one.code}" for one in observed.decisions).items())),
        "cpu_s": round(observed.cpu_s, 1),
    }
    return row | {"missed": missed(row)}


def mean(looks: Sequence[Look], name: str) -> float:
    """Return the mean usage per look of ``never``, ``adapting`` or ``oracle``."""
    return sum(float(getattr(look, name)) for look in looks) / (len(looks) or 1)


def saving_share(looks: Sequence[Look]) -> float | None:
    """Return the share of the oracle's saving that was made; None where the oracle saves nothing."""
    never, adapting, oracle = (mean(looks, name) for name in ("never", "adapting", "oracle"))
    return (never - adapting) / (never - oracle) if never > oracle else None


def missed(row: dict[str, Any]) -> list[str]:
    """Return the names of the figures that miss their aims; those without changes have stricter ones."""
    limits = {"moves_operator_hour": MOST_MOVES if row["changes"] else MOST_MOVES_UNCHANGED, "returns": 0}
    limits |= {"optimizers_bytes_s_node": MOST_BYTES_S} | ({} if row["changes"] else {"unpaid_moves": 0})
    over = [name for name, limit in limits.items() if row.get(name, 0) > limit]
    share = row["saving_share"]
    return [*(["saving_share"] if row["changes"] and share is not None and share < LEAST_SHARE else []), *over]


def returns(hosts: dict[str, list[tuple[float, str]]], within_s: float) -> int:
    """Return how often an operator came back to a host within a time of leaving it."""
    count = 0
    for seen in hosts.values():
        left_s: dict[str, float] = {}
        for (_, node), (left, following) in pairwise(seen):
            left_s[node] = left
            count += following in left_s and left - left_s[following] < within_s
    return count


def relieved(observed: Observed, within_s: float) -> int:
    """Return how many busy nodes an operator has left within a time after their load had risen."""
    left = [(at_s, node) for seen in observed.hosts.values() for (_, node), (at_s, _) in pairwise(seen)]
    return sum(any(node == busy and 0 < at_s - since_s <= within_s for at_s, node in left) for since_s, busy in observed.busy)


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
