"""Settling of real and simulated daemons' coordinates: the same nodes on sockets and in virtual time.

Both are whole daemons with defaults, over the same round-trip times. Coordinates are read every few seconds. The results are
the error of the last reading, and the movement of coordinates in the second half. At the end some nodes are killed in
sequence. On sockets the emulated area has a jitter of 5 % (log-normal) for each datagram; in virtual time the jitter is
exponential with the same mean.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.outcome import Ended, run_cluster
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_protocol.errors import SbonError

Floats = NDArray[np.float64]

SETTLED_WITHIN = 1.1
"""Factor of the last median error within which a cluster counts as settled."""


CRASHES, PAUSE_S = 3, 0.1
"""Number of nodes killed at the end, and seconds between two looks for observers that have noticed."""


class Sight(NamedTuple):
    """All nodes' coordinates at a time, in seconds since all knew each other, and the members that some node lost."""

    at_s: float
    coordinates: Mapping[str, Coordinate]
    missed: frozenset[str] = frozenset()


class Crash(NamedTuple):
    """Seconds from a node's kill until the first and the last other node regard it as dead."""

    first_s: float
    last_s: float


def figures(sights: Sequence[Sight], names: Sequence[str], rtt_ms: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return ``median`` and ``p90`` of the last |estimate - truth| / truth over all pairs, ``settle_s`` and
    ``movement_ms_s``.

    From ``settle_s`` on, the median was within a tenth of the last. ``movement_ms_s`` is a node's mean movement in a second,
    vector and height together, over the second half. At least two sights are needed, and some time within the last half of
    them.
    """
    pairs = np.triu_indices(len(names), 1)
    truth = np.asarray(rtt_ms, dtype=np.float64)[pairs]
    errors = [_errors(sight.coordinates, names, truth, pairs) for sight in sights]
    medians = [float(np.median(values)) for values in errors]
    outside = [number for number, median in enumerate(medians) if median > SETTLED_WITHIN * medians[-1]]
    settled = sights[outside[-1] + 1 if outside else 0]
    late = sights[len(sights) // 2 - 1 :]
    latencies = [_moved_ms(sight.coordinates, other.coordinates) for sight, other in pairwise(late)]
    return {
        "median": medians[-1],
        "p90": float(np.percentile(errors[-1], 90)),
        "settle_s": settled.at_s,
        "movement_ms_s": sum(latencies) / (late[-1].at_s - late[0].at_s),
    }


def death_figures(sights: Sequence[Sight], crashes: Sequence[Crash]) -> dict[str, float]:
    """Return ``false_deaths`` and the detection times.

    ``false_deaths`` counts nodes that some node had lost at some look. ``detect_s`` and ``detect_most_s`` run from a crash to
    the first detection; ``all_more_s`` and ``all_more_most_s`` from there to the last.
    """
    firsts, lasts = [crash.first_s for crash in crashes], [crash.last_s - crash.first_s for crash in crashes]
    return {
        "false_deaths": len(frozenset[str]().union(*(sight.missed for sight in sights))),
        "detect_s": statistics.median(firsts),
        "detect_most_s": max(firsts),
        "all_more_s": statistics.median(lasts),
        "all_more_most_s": max(lasts),
    }


def victims(names: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes to kill: the last ones, as long as two are left."""
    return tuple(names[max(2, len(names) - CRASHES) :])


def _errors(coordinates: Mapping[str, Coordinate], names: Sequence[str], truth: Floats, pairs: tuple[Any, Any]) -> Floats:
    estimates = [coordinates[names[i]].distance_ms(coordinates[names[j]]) for i, j in zip(*pairs, strict=True)]
    errors: Floats = np.abs(np.asarray(estimates) - truth) / truth
    return errors


def _moved_ms(before: Mapping[str, Coordinate], after: Mapping[str, Coordinate]) -> float:
    """Return the mean movement over nodes."""
    latencies = [
        math.dist(after[name].vector, before[name].vector) + abs(after[name].height - before[name].height) for name in before
    ]
    return sum(latencies) / len(latencies)


def simulated(
    names: Sequence[str],
    rtt_ms: Sequence[Sequence[float]],
    *,
    seconds: float,
    every_s: float,
    seed: int = 1,
    notify: Callable[[float], None] = lambda at_s: None,
) -> dict[str, Any]:
    """Return both kinds of figures in virtual time, and ``bytes_s``, a node's datagram bytes per second sent.

    Raises :class:`SbonError` ``simulation-failed``.
    """
    index = {name: number for number, name in enumerate(names)}
    sights: list[Sight] = []
    totals: list[int] = []
    crashes: list[Crash] = []

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        def one_way_s(source: str, target: str) -> float:
            return rtt_ms[index[source]][index[target]] / 2000

        return SimulatedCluster(loop, seed, names, root, latency=one_way_s, quality=NetworkQuality(spike=0.0))

    async def query_run(cluster: SimulatedCluster, root: Path) -> Ended:
        cluster.start()
        await cluster.together()
        began = cluster.loop.time()
        while not sights or sights[-1].at_s < seconds:
            missed = frozenset(name for name in names if _missed_by(cluster, name))
            sights.append(Sight(cluster.loop.time() - began, {name: _place(cluster, name) for name in names}, missed))
            totals.append(sum(cluster.network.traffic(name).datagram_bytes_sent for name in names))
            notify(sights[-1].at_s)
            await cluster.sleep(every_s)
        for name in victims(names):
            crashes.append(await _crashed(cluster, name))
        return Ended(0, "finished")

    outcome = run_cluster(build, query_run, seed=seed, max_time_s=seconds + 600, replay="sbon experiment overlay")
    if outcome.failure:
        raise SbonError("simulation-failed", outcome.failure)
    row = {**figures(sights, names, rtt_ms), **death_figures(sights, crashes)}
    return {**row, "bytes_s": (totals[-1] - totals[0]) / sights[-1].at_s / len(names)}


def _missed_by(cluster: SimulatedCluster, name: str) -> list[str]:
    """Return the living nodes that do not regard it as alive."""
    living = [node for node in cluster.nodes.values() if node.alive and node.name != name]
    return [node.name for node in living if not node.daemon.membership.is_alive(name)]


async def _crashed(cluster: SimulatedCluster, name: str) -> Crash:
    began = cluster.loop.time()
    cluster.crash(cluster.nodes[name])
    await cluster.until(lambda: bool(_missed_by(cluster, name)), pause_s=PAUSE_S)
    first_s = cluster.loop.time() - began
    living = sum(node.alive for node in cluster.nodes.values())
    await cluster.until(lambda: len(_missed_by(cluster, name)) == living, pause_s=PAUSE_S)
    return Crash(first_s, cluster.loop.time() - began)


def _place(cluster: SimulatedCluster, name: str) -> Coordinate:
    coordinate = cluster.at(name).daemon.membership.coordinate_of(name)
    assert coordinate is not None
    return coordinate
