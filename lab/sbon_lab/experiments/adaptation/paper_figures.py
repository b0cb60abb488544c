"""SBON's Figures 10 to 12 (section 4.2), simulated: queries whose operators may move, beside the same queries where they may not.

The paper ran two queries of each pair. Here one query runs, with its operators free to move. The usage of its fixed twin is that
of its first placement by the same rates and latencies, which do not depend on where its operators are.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from sbon_lab.experiments.adaptation.figures import plan_changes
from sbon_lab.experiments.adaptation.run import Look, Observed, observe
from sbon_lab.experiments.adaptation.world import Change, draw
from sbon_lab.experiments.harness.pictures import Lines, Picture
from sbon_lab.experiments.harness.pictures import draw as draw_pictures

Row = dict[str, Any]
PICTURES = {
    10: Picture(
        "figure10",
        [[Lines("minutes", "usage_bytes", "{variant}", axes={"xlabel": "minutes", "ylabel": "network usage, bytes in transit"})]],
        each=(),
    ),
    11: Picture(
        "figure11",
        [[Lines("placement", "normalized", "{query}", axes={"xlabel": "placement", "ylabel": "usage / usage of the first"})]],
        each=(),
    ),
    12: Picture(
        "figure12",
        [[Lines("rank", "relative_change", "all queries", axes={"xlabel": "query", "ylabel": "change of usage by migration"})]],
        each=(),
    ),
}


def figure(
    number: int,
    data: Path,
    *,
    nodes: int = 20,
    queries: int = 4,
    minutes: float = 20.0,
    period_s: float = 20.0,
    seed: int = 1,
    out: Path | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Return ``{"name", "rows"}`` of Figure 10, 11 or 12, and write it with its picture to ``out``.

    Figures 10 and 11 show the first query, whose world changes once, a quarter through; 12 shows all, with all changes.

    Raises :class:`SbonError` ``bad-matrix``, ``simulation-failed``, or ``input-missing`` where matplotlib is not installed.
    """
    seconds, count = 60 * minutes, queries if number == 12 else 1
    changes = plan_changes(seconds, count) if number == 12 else (Change(seconds / 4, "latency"),)
    world = draw(data, nodes=nodes, queries=count, seed=seed, changes=changes, round_s=seconds / 18)
    observed = observe(world, seed=seed, seconds=seconds, period_s=period_s, every_s=period_s / 4, notify=notify)
    rows = {10: over_time, 11: by_placement, 12: by_query}[number](observed)
    result = {"name": f"sbon-figure{number}", "rows": rows}
    if out is not None:
        draw_pictures([PICTURES[number]], result, {}, out)
    return result


def over_time(observed: Observed) -> list[Row]:
    """Return the usage of both variants at each look, and the operators' hosts of the migrating one."""
    rows = []
    for look in observed.looks:
        hosts = " ".join(f"{operator.rpartition('.')[2]}@{_host(seen, look.at_s)}" for operator, seen in observed.hosts.items())
        for variant, usage, at in (("migrating", look.adapting, hosts), ("fixed", look.never, "")):
            rows.append({"minutes": look.at_s / 60, "variant": variant, "usage_bytes": usage, "hosts": at})
    return rows


def by_placement(observed: Observed) -> list[Row]:
    """Return for each placement of the query, one after another, its usage over that of the first at the same times."""
    rows = []

    def hosts(look: Look) -> tuple[str, ...]:
        return tuple(_host(seen, look.at_s) for seen in observed.hosts.values())

    for number, (placed, group) in enumerate(groupby(observed.looks, key=hosts)):
        looks = list(group)
        usage, first = sum(look.adapting for look in looks), sum(look.never for look in looks)
        rows.append(
            {
                "query": looks[0].query,
                "placement": number,
                "hosts": " ".join(placed),
                "from_minutes": looks[0].at_s / 60,
                "usage_bytes": usage / len(looks),
                "normalized": usage / first if first else None,
            }
        )
    return rows


def by_query(observed: Observed) -> list[Row]:
    """Return each query's change of mean usage by migration, the greatest decrease first, with its moves."""
    rows = []
    for query in sorted({look.query for look in observed.looks}):
        own = [look for look in observed.looks if look.query == query]
        never = sum(look.never for look in own)
        moves = sum(len(seen) - 1 for operator, seen in observed.hosts.items() if operator.partition("-")[0] == query)
        change = (sum(look.adapting for look in own) - never) / never if never else 0.0
        rows.append({"query": query, "relative_change": change, "moves": moves})
    rows.sort(key=lambda row: (row["relative_change"], row["query"]))
    return [{"rank": rank, **row} for rank, row in enumerate(rows, 1)]


def _host(seen: Sequence[tuple[float, str]], at_s: float) -> str:
    """Return the host at a time, from the times at which hosts were first seen."""
    return [node for since_s, node in seen if since_s <= at_s][-1]
