"""ANTS's Figures 3 (a) and 3 (b) and its Table 1 with ants as messages and operators that migrate (``ants-live --figure``).

Columns and keys are those of the same figures in one process (:mod:`sbon_lab.experiments.ants.figures`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from sbon_lab.experiments.ants.adaptation import BETAS, STAY
from sbon_lab.experiments.ants.figures import AXES, EXPERIMENT, Key
from sbon_lab.experiments.ants.quality import Sample, Samples
from sbon_lab.experiments.harness.experiment import Notify, ignore
from sbon_lab.experiments.harness.network import Floats, Network
from sbon_lab.experiments.live.ant_adaptation import Chained, Live, Plan, Watched, drawn, watched

SECONDS, EVERY_S = 300.0, 20.0
"""Length of a run, and pause between two looks: the paper's 100 s and 10 s, for moves take seconds here."""
RISES_S, LOADS = (60.0, 180.0), (0.25, 0.45, 0.65)
"""Times at which the rate rises or queries arrive; loads of a server that would run the whole query of Figure 3 (a)."""
BESIDE = (0.05, 0.25)
"""Load of each node by others in Figure 3 (a): daemons report at most 0.8, so that ants do not see that more is too much."""
LIGHT = 0.15
"""Load of a server that would run the whole query of Table 1: it fits beside the most cross traffic."""
CROSS_EVERY_S, CROSSED, CROSS_LOAD = 60.0, 0.5, (0.5, 0.7)
"""Pause between changes of cross traffic, share of nodes, and their load by it: a daemon reports at most 0.8.

The share is greater than in one process (0.3), as all operators of a query are mostly at one node, which then is hit in few runs.
With loads of 0.02 to 0.7 at all nodes ants moved nothing for any beta.
"""
ARRIVING_ROWS = 0.5
"""Rows a second of a query of Figure 3 (b), of those of a query of the other figures: two of most fit at a node."""
FIRST, ADDED = 1.0, 0.25
"""Queries of Figure 3 (b) at first and by each arrival, of the number asked for."""
WITH, WITHOUT = "with self-optimization", "without"


class Size(NamedTuple):
    """Length of each run, queries of Figure 3 (b) at first, and the factors beta of Table 1."""

    seconds: float = SECONDS
    queries: int = 8
    betas: tuple[float, ...] = BETAS


def by_rate(network: Network, seed: int, size: Size, notify: Notify) -> Samples:
    """Measure Figure 3 (a): the latency of a query whose rate rises twice, with and without ants."""
    samples: Samples = {}
    for adapts in (True, False):
        query = drawn(0, network.nodes, np.random.default_rng((seed, 65)))
        beside = np.random.default_rng((seed, 64)).uniform(*BESIDE, network.nodes)
        changes: dict[float, Callable[[Live], None]] = {0.0: partial(_cross, loads=beside)}
        for second, load in zip(_scaled(RISES_S, size.seconds), LOADS[1:], strict=True):
            changes[second] = partial(_quicken, query=query, load=load)
        query.flow.rows_s = query.rate_for(LOADS[0])
        plan = Plan(network, seed, size.seconds, EVERY_S, {0.0: [query]}, changes, adapts, STAY)
        found = watched(plan, notify)
        for look in found.looks:
            (latency_ms,), (exact_ms,) = look.latency_ms.values(), look.exact_ms.values()
            samples["3a", WITH if adapts else WITHOUT, look.at_s] = Sample(latency_ms, exact_ms, updates=float(found.updates))
    return samples


def by_arrivals(network: Network, seed: int, size: Size, notify: Notify) -> Samples:
    """Measure Figure 3 (b): the mean latency of all queries while others arrive, with and without ants."""
    samples: Samples = {}
    for adapts in (True, False):
        rng, arrivals, number = np.random.default_rng((seed, 66)), dict[float, Sequence[Chained]](), 0
        for second in (0.0, *_scaled(RISES_S, size.seconds)):
            coming = max(1, round((ADDED if second else FIRST) * size.queries))
            arrivals[second] = [drawn(number + i, network.nodes, rng, ARRIVING_ROWS) for i in range(coming)]
            number += coming
        plan = Plan(network, seed, size.seconds, EVERY_S, arrivals, {}, adapts, STAY, cross=False)
        found = watched(plan, notify)
        for look in found.looks:
            samples["3b", WITH if adapts else WITHOUT, look.at_s] = Sample(
                fmean(look.latency_ms.values()), queries=len(look.latency_ms), updates=float(found.updates)
            )
    return samples


def by_beta(network: Network, seed: int, size: Size, notify: Notify) -> Samples:
    """Measure Table 1: placements of a query and its loss against the best of each moment, under cross traffic, by beta."""
    samples: Samples = {}
    for beta in size.betas:
        query = drawn(0, network.nodes, np.random.default_rng((seed, 65)))
        query.flow.rows_s = query.rate_for(LIGHT)
        rng = np.random.default_rng((seed, 64))
        times = np.arange(0.0, size.seconds, CROSS_EVERY_S).tolist()
        changes: dict[float, Callable[[Live], None]] = {
            second: partial(_cross, loads=_cross_traffic(network.nodes, rng)) for second in times
        }
        found = watched(Plan(network, seed, size.seconds, EVERY_S / 2, {0.0: [query]}, changes, True, beta), notify)
        samples["table1", "ants", beta] = _of_table(found)
    return samples


FIGURES: Mapping[str, Callable[[Network, int, Size, Notify], Samples]] = {
    "3a": by_rate,
    "3b": by_arrivals,
    "table1": by_beta,
}


def measured(
    figures: Sequence[str],
    networks: Callable[[int], Iterable[Network]],
    seeds: Sequence[int],
    size: Size,
    notify: Notify = ignore,
) -> dict[str, Any]:
    """Return the rows of the figures, over all seeds. Raises :class:`SbonError` ``simulation-failed``."""
    trials: dict[Key, list[list[Sample]]] = {}
    for figure in figures:
        for seed in seeds:
            for network in networks(seed):
                samples = FIGURES[figure](network, seed, size, _about(f"{network.name}, {figure}, seed {seed}", notify))
                for (part, strategy, at), sample in samples.items():
                    trials.setdefault(Key(part, network.name, strategy, AXES[part], at), []).append([sample])
    return {**EXPERIMENT.result(trials), "name": "ants-live"}


def _about(text: str, notify: Notify) -> Notify:
    return lambda news: notify(f"{text}: {news}")


def _of_table(found: Watched) -> Sample:
    mean_ms, loss_ms = found.mean_ms(), found.loss_ms()
    return Sample(mean_ms, mean_ms - loss_ms, updates=float(found.updates), loss_ms=loss_ms)


def _scaled(times_s: Sequence[float], seconds: float) -> list[float]:
    """Return the times of a shorter or longer run, at looks."""
    return [max(EVERY_S, round(time_s * seconds / SECONDS / EVERY_S) * EVERY_S) for time_s in times_s]


def _cross(live: Live, *, loads: Floats) -> None:
    live.cross = loads


def _quicken(live: Live, *, query: Chained, load: float) -> None:
    query.flow.rows_s = query.rate_for(load)


def _cross_traffic(nodes: int, rng: np.random.Generator) -> Floats:
    return np.where(rng.random(nodes) < CROSSED, rng.uniform(*CROSS_LOAD, nodes), 0.02)
