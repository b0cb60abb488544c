"""A run of ``sbon bench chaos``: six nodes, queries, and faults until the time is over."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.wide_area import cities
from sbon_lab.chaos.asking import Gate
from sbon_lab.chaos.faults import ACTIONS, Action, Fault, Stage, draw
from sbon_lab.chaos.growing import Growing, Posted, Tailed
from sbon_lab.chaos.injector import Injector
from sbon_lab.chaos.network import Network
from sbon_lab.chaos.suite_queries import FAILED, FINISHED, STUCK, Outcome, Sites, SuiteQueries
from sbon_lab.chaos.timeline import Timeline
from sbon_lab.chaos.workload import plan
from sbon_lab.suite.streams import SITES, write_streams
from sbon_protocol.api.durability import LOCAL, REPLICATED, Durability

FIRST_S = 300.0
"""Longest time until the first query runs; the faults begin then."""
SETTINGS = {
    **SHORT_LIVED,
    "adaptation.default": "off",
    "control.repair_s": 2.0,  # how soon a register has another acceptor in place of a lost one
    "control.start_timeout_s": 400.0,
    "engine.max_operators": 30,
    "engine.start_timeout_s": 300.0,
    "membership.sync_interval_s": 2.0,  # how soon a healed partition is noticed
}
GROWING: tuple[tuple[str, Durability], ...] = (("tumbling", REPLICATED), ("filter", LOCAL))


def run(
    folder: Path, seconds: float, seed: int, show: Callable[[str], None], actions: Sequence[Action] = ACTIONS
) -> dict[str, Any]:
    """Return counts as a flat row, and the timeline with all queries."""
    area = cities()
    sources, consumer = dict(zip(SITES, area.names, strict=False)), area.names[len(SITES)]
    stage = Stage(pinned=(*sources.values(), consumer), free=tuple(area.names[len(SITES) + 1 :]))
    faults = draw(seed, seconds, stage, actions)
    streams = write_streams(folder / "input")
    (folder / "output").mkdir()
    with LocalCluster(area.names, area, folder=folder / "cluster", overrides=SETTINGS) as cluster:
        timeline = Timeline(show)
        gate = Gate()
        injector = Injector(cluster, stage, Network(cluster, area), timeline, gate)
        growing: list[Growing] = [
            *(Tailed(cluster, consumer, kind, durability, folder / f"tail-{kind}", timeline) for kind, durability in GROWING),
            Posted(cluster, sources[SITES[0]], consumer, timeline),
        ]
        for query in growing:
            query.begin()
        suite = SuiteQueries(cluster, Sites(sources, consumer), injector.asking, gate, streams, folder / "output")
        with ThreadPoolExecutor(1, thread_name_prefix="faults") as pool:
            striking = pool.submit(_strike, injector, suite, faults)
            suite.run(plan(seed), timeline)
            striking.result()
        outcomes = [*suite.outcomes, *(query.end() for query in growing)]
        return result(seed, seconds, outcomes, injector.struck, injector.given_up, timeline.rows())


def _strike(injector: Injector, suite: SuiteQueries, faults: Sequence[Fault]) -> None:
    """Strike from the first query on; then let all queries end."""
    try:
        suite.first_runs.wait(FIRST_S)
        injector.run(faults)
    finally:
        suite.submit_no_more()
        suite.repaired()


def result(
    seed: int,
    seconds: float,
    outcomes: Sequence[Outcome],
    struck: Counter[str],
    given_up: Sequence[str],
    timeline: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Return the counts as a flat row, and the parts from which they come."""
    ends = Counter(one.end for one in outcomes)
    row: dict[str, Any] = {
        "minutes": round(seconds / 60, 2),
        "seed": seed,
        "finished": ends[FINISHED],
        "failed": ends[FAILED] + sum(count for end, count in ends.items() if end not in (FINISHED, FAILED, STUCK)),
        "wrong": sum(one.verdict.wrong for one in outcomes),
        "lost": sum(one.verdict.lost for one in outcomes),
        "doubled": sum(one.verdict.doubled for one in outcomes),
        "stuck": ends[STUCK] + len(given_up),
        **{action: struck[action] for action in ACTIONS},
    }
    queries = [one._asdict() | one.verdict._asdict() for one in sorted(outcomes, key=lambda one: one.began_s)]
    for one in queries:
        del one["verdict"]
    return {"name": "chaos", "rows": [row], "queries": queries, "given_up": list(given_up), "timeline": list(timeline)}
