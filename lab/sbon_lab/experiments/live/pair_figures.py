"""SBON's Figures 10 to 12 from pairs of queries on real nodes, and the figures of each pair."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from sbon_lab.experiments.adaptation.paper_figures import PICTURES, by_placement, by_query, over_time
from sbon_lab.experiments.adaptation.run import Look, Observed, Sent
from sbon_lab.experiments.harness.pictures import Picture
from sbon_lab.experiments.live.pairs import FIXED

Row = dict[str, Any]
BELOW = 0.95
"""Share of the fixed query's usage below which that of the migrating one counts as below it."""
SETTLING_PERIODS = 2
"""Aim: periods after a change from which the usage is below."""


class Seen(NamedTuple):
    """Both queries of a pair at a time since the looks began: usage in bytes in transit, delay, and hosts by operator."""

    at_s: float
    pair: str
    migrating: float
    fixed: float
    migrating_delay_ms: float
    fixed_delay_ms: float
    hosts: dict[str, str]


class Change(NamedTuple):
    """The time at which a node became slow or busy."""

    at_s: float
    node: str


class PairRun(NamedTuple):
    """Findings of the looks at the pairs; ``over_s`` is the time of the last look.

    ``bytes`` and ``wrong`` are by query: bytes that its links carried, and rows that differ from DuckDB's. ``rows`` is by pair.
    """

    seen: Sequence[Seen]
    changes: Sequence[Change]
    over_s: float
    bytes: dict[str, int]
    wrong: dict[str, int]
    rows: dict[str, int]


def by_pair(run: PairRun, period_s: float) -> list[Row]:
    """Return a row for each pair and change.

    ``before`` and ``after`` are the usage of the migrating query / that of its twin, from the last change until this one, and
    from two periods after it until the next. ``below_after_periods`` is the first period after the change from which the usage is
    below in each period; None if it is not. ``changed_host`` says whether the change was at a host of the pair. Looks after the
    end of a pair's rows do not count.
    """
    rows = []
    for pair in dict.fromkeys(seen.pair for seen in run.seen):
        own = [seen for seen in run.seen if seen.pair == pair and (seen.fixed or seen.migrating)]
        for number, change in enumerate(run.changes):
            since_s = run.changes[number - 1].at_s + SETTLING_PERIODS * period_s if number else 0.0
            until_s = run.changes[number + 1].at_s if number + 1 < len(run.changes) else run.over_s + 1.0
            before = [seen for seen in own if since_s <= seen.at_s < change.at_s]
            then = [seen for seen in own if change.at_s <= seen.at_s < until_s]
            after = [seen for seen in then if seen.at_s >= change.at_s + SETTLING_PERIODS * period_s]
            hosts = [*before[-1:], *then]
            rows.append(
                {
                    "pair": pair,
                    "change_s": round(change.at_s, 1),
                    "changed": change.node,
                    "changed_host": bool(before) and change.node in before[-1].hosts.values(),
                    "moves": sum(_moves(a, b) for a, b in pairwise(hosts)),
                    "moved_after_s": _moved_after_s(hosts, change.at_s),
                    "before": _ratio(before),
                    "after": _ratio(after),
                    "below_after_periods": below_after(then, change.at_s, period_s),
                    "fixed_bytes": _mean([seen.fixed for seen in after]),
                    "migrating_bytes": _mean([seen.migrating for seen in after]),
                    "fixed_delay_ms": _mean([seen.fixed_delay_ms for seen in after]),
                    "migrating_delay_ms": _mean([seen.migrating_delay_ms for seen in after]),
                    "carried_mb": round((run.bytes[pair] + run.bytes[pair + FIXED]) / 1e6, 1),
                    "rows": run.rows[pair],
                    "wrong": run.wrong[pair] + run.wrong[pair + FIXED],
                }
            )
    return rows


def below_after(looks: Sequence[Seen], change_s: float, period_s: float) -> int | None:
    """Return after how many whole periods the usage of the migrating query stays below the fixed one's, by period.

    Periods in which the fixed one has none do not count: its rows have ended.
    """
    periods: dict[int, list[Seen]] = {}
    for seen in looks:
        if seen.fixed > 0:
            periods.setdefault(int((seen.at_s - change_s) / period_s), []).append(seen)
    below = [number for number, group in periods.items() if (ratio := _ratio(group)) is not None and ratio < BELOW]
    first: int | None = None
    for number in sorted(periods, reverse=True):
        if number not in below:
            break
        first = number
    return first


def figure(number: int, run: PairRun) -> tuple[list[Row], Picture]:
    """Return the rows and the picture of Figure 10, 11 or 12; Figure 10 shows the first pair."""
    names = list(dict.fromkeys(seen.pair for seen in run.seen))
    if number == 12:
        rows = by_query(_observed(run, names))
    elif number == 11:
        rows = [row for name in names for row in by_placement(_observed(run, [name]))]
    else:
        rows = over_time(_observed(run, names[:1]))
    return rows, PICTURES[number]


def _observed(run: PairRun, names: Sequence[str]) -> Observed:
    """Return the looks at these pairs as those of a simulated run, in which the best placement is unknown."""
    looks, hosts = [], dict[str, list[tuple[float, str]]]()
    for seen in run.seen:
        if seen.pair in names:
            looks.append(Look(seen.at_s, seen.pair, seen.fixed, seen.migrating, 0.0))
            for operator, node in seen.hosts.items():
                known = hosts.setdefault(operator, [])
                if not known or known[-1][1] != node:
                    known.append((seen.at_s, node))
    return Observed(looks, hosts, [], Sent(0, 0), run.over_s, run.over_s, 0.0)


def _moves(before: Seen, after: Seen) -> int:
    return sum(after.hosts.get(operator, node) != node for operator, node in before.hosts.items())


def _moved_after_s(looks: Sequence[Seen], change_s: float) -> float | None:
    """Return the time from the change until the first look at which an operator was elsewhere; None if none was."""
    moved = (b.at_s for a, b in pairwise(looks) if _moves(a, b))
    at_s = next(moved, None)
    return None if at_s is None else round(at_s - change_s, 1)


def _ratio(looks: Sequence[Seen]) -> float | None:
    fixed = sum(seen.fixed for seen in looks)
    return round(sum(seen.migrating for seen in looks) / fixed, 3) if fixed > 0 else None


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 1) if values else None
