"""The result of a simulated run, and the common start and end of every kind of run."""

import random
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sbon_lab.simulation.checks import CheckFailedError, StuckError
from sbon_lab.simulation.cluster import SimulatedCluster, Spent
from sbon_lab.simulation.faults.disk import watched_disks
from sbon_lab.simulation.faults.plan import Fault
from sbon_lab.simulation.loop import VirtualLoop, VirtualTimeError, run
from sbon_node.base.failpoints import Failpoint


class Outcome(NamedTuple):
    """The result of a run. ``failure`` is empty if every check passed, otherwise it ends with the command that replays the
    run.

    ``events`` counts turns of the loop. ``failpoint`` are the failpoints passed since faults could strike, the first
    ``submission`` of them before the submission was answered. ``calls`` counts each node's disk calls. ``ending`` is the end of
    the query. ``unstruck`` are faults whose step was not taken often enough.
    """

    failure: str
    trace: tuple[str, ...]
    checks: int
    events: int
    virtual_s: float
    unstruck: tuple[Fault, ...]
    failpoint: tuple[tuple[str, Failpoint], ...]
    calls: Mapping[str, int]
    submission: int = 0
    ending: str = ""
    afterwards: Spent = Spent(0.0, 0, 0.0)
    """Cost of the run after all nodes knew each other."""
    struck: Mapping[str, int] = {}
    """Number of faults that struck, by action."""
    stuck: bool = False
    """Whether the failure is that something did not end."""
    moving: tuple[tuple[int, int], ...] = ()
    """Spans of ``failpoint`` in which users waited for moves of operators."""


class Ended(NamedTuple):
    """The query's result in a run that passed all checks."""

    submission: int
    ending: str
    moving: tuple[tuple[int, int], ...] = ()


Build = Callable[[VirtualLoop, Path], SimulatedCluster]
Play = Callable[[SimulatedCluster, Path], Coroutine[Any, Any, Ended]]


def run_cluster(build: Build, query_run: Play, *, seed: int | str, max_time_s: float, replay: str) -> Outcome:
    """Run a cluster in a folder of its own, in virtual time."""
    clusters: list[SimulatedCluster] = []

    async def main(loop: VirtualLoop, rng: random.Random) -> Ended:
        clusters.append(build(loop, Path(root)))
        with watched_disks(clusters[0].disks):
            return await query_run(clusters[0], Path(root))

    failure, ended, stuck = "", Ended(0, ""), False
    with tempfile.TemporaryDirectory(prefix="sbon-simulation-", dir=in_memory()) as root:
        try:
            ended = run(main, seed=seed, max_time_s=max_time_s, permute=True)
        except (CheckFailedError, VirtualTimeError) as error:
            failure, stuck = f"{error}\nreplay: {replay}", isinstance(error, StuckError | VirtualTimeError)
    (cluster,) = clusters
    plan = cluster.fault_injector.plan
    return Outcome(
        failure=failure,
        trace=tuple(cluster.trace),
        checks=cluster.watch.checker.checks,
        events=cluster.loop.turns,
        virtual_s=cluster.loop.time(),
        unstruck=tuple(plan.never_injected()),
        failpoint=tuple(plan.history),
        calls=dict(sorted(plan.calls.items())),
        submission=ended.submission,
        ending=ended.ending,
        afterwards=cluster.spent().since(cluster.met),
        struck=dict(cluster.fault_injector.struck),
        stuck=stuck,
        moving=ended.moving,
    )


def in_memory() -> str | None:
    """Return a folder for files in memory, if the machine has one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
