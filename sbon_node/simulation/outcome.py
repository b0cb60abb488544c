"""How a simulated run went, and what every kind of run begins and ends with."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from sbon_node.simulation.checks import CheckFailedError
from sbon_node.simulation.cluster import SimulatedCluster, Spent
from sbon_node.simulation.disk import watched_databases
from sbon_node.simulation.faults import Fault
from sbon_node.simulation.loop import VirtualLoop, VirtualTimeError, run
from sbon_node.steps import Step


class Outcome(NamedTuple):
    """``failure`` is empty where every check held, and else ends with the command that replays the run.

    ``events`` are turns of the loop; ``steps`` are those taken since faults could strike, the first ``submission`` of them before
    the submission was answered; ``ending`` is what became of the query, ``unstruck`` faults whose step was not taken so often.
    """

    failure: str
    trace: tuple[str, ...]
    checks: int
    events: int
    virtual_s: float
    unstruck: tuple[Fault, ...]
    steps: tuple[tuple[str, Step], ...]
    submission: int = 0
    ending: str = ""
    afterwards: Spent = Spent(0.0, 0, 0.0)
    """What the run took after all knew each other."""


class Ended(NamedTuple):
    """What a run that held all checks tells of its query."""

    submission: int
    ending: str


Build = Callable[[VirtualLoop, Path], SimulatedCluster]
Play = Callable[[SimulatedCluster, Path], Coroutine[Any, Any, Ended]]


def run_cluster(build: Build, play: Play, *, seed: int | str, max_time_s: float, replay: str) -> Outcome:
    """Plays on a cluster in a folder of its own, in virtual time."""
    clusters: list[SimulatedCluster] = []

    async def main(loop: VirtualLoop, rng: random.Random) -> Ended:
        clusters.append(build(loop, Path(root)))
        with watched_databases(clusters[0].disks):
            return await play(clusters[0], Path(root))

    failure, ended = "", Ended(0, "")
    with tempfile.TemporaryDirectory(prefix="sbon-simulation-", dir=in_memory()) as root:
        try:
            ended = run(main, seed=seed, max_time_s=max_time_s)
        except (CheckFailedError, VirtualTimeError) as error:
            failure = f"{error}\nreplay: {replay}"
    (cluster,) = clusters
    plan = cluster.strikes.plan
    return Outcome(
        failure=failure,
        trace=tuple(cluster.trace),
        checks=cluster.watch.checker.checks,
        events=cluster.loop.turns,
        virtual_s=cluster.loop.time(),
        unstruck=tuple(plan.never_struck()),
        steps=tuple(plan.history),
        submission=ended.submission,
        ending=ended.ending,
        afterwards=cluster.spent().since(cluster.met),
    )


def in_memory() -> str | None:
    """Files in memory, where the machine has such a folder."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
