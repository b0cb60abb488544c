"""Schedules of faults against queries over whole daemons, drawn from a seed or given."""

import functools
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from sbon_lab.simulation.casting import Casting
from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.drawing import aimed, random_casting
from sbon_lab.simulation.engine.engine_process import EngineTimes
from sbon_lab.simulation.faults.plan import ACTIONS, HELD_BACK, Fault, occurrences, random_plan
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.one_query import OneQuery
from sbon_lab.simulation.outcome import Ended, Outcome, run_cluster
from sbon_lab.simulation.several_queries import BY_USERS, SeveralQueries
from sbon_node.base.failpoints import Failpoint
from sbon_node.context import ControlSettings

MAX_TIME_S = 1800.0
NO_ROOM = ControlSettings(cores=0.01, memory_mb=10.0)
TIMES = EngineTimes(watch=(0.001, 0.2))


class Schedule(NamedTuple):
    """A planned run: the seed of its world, its casting, and its faults."""

    seed: int
    casting: Casting
    faults: tuple[Fault, ...]


WORLDS = 50
"""Number of different runs that the random schedules disturb."""
MOST_AMID_MOVES = 3
"""Most faults of a schedule with moves, so that some are committed."""
COUNTED: tuple[str, ...] = (*ACTIONS, *BY_USERS)
"""Faults of a run, and its users' actions: all are counted."""


def random_schedule(seed: int, *, moves: bool = False) -> Schedule:
    """Draw a schedule, with ``moves`` mostly one in which operators move.

    The faults strike at steps that the undisturbed run takes, so that the first of them surely strikes. A world whose
    undisturbed run fails has no faults: its schedule is that run.
    """
    world = seed % WORLDS
    casting = random_casting(world, moves=moves)
    undisturbed = _undisturbed(world, casting)
    if undisturbed is None:
        return Schedule(world, casting, ())
    failpoint = occurrences(undisturbed.steps)
    hosts = tuple(node for node in casting.nodes if any(when.node == node and when.step == "plan" for when in failpoint))
    stage = msgspec.structs.replace(casting.stage, operators=hosts, also=HELD_BACK)
    if not undisturbed.moving:
        return Schedule(world, casting, random_plan(seed, stage, failpoint, undisturbed.calls))
    failpoint = aimed(seed, undisturbed.steps, undisturbed.moving)
    return Schedule(world, casting, random_plan(seed, stage, failpoint, undisturbed.calls, most=MOST_AMID_MOVES))


class _Undisturbed(NamedTuple):
    """The steps and disk calls of a run without faults, and the spans of steps in which operators moved."""

    steps: tuple[tuple[str, Failpoint], ...]
    calls: Mapping[str, int]
    moving: tuple[tuple[int, int], ...]


@functools.cache
def _undisturbed(world: int, casting: Casting) -> _Undisturbed | None:
    """Return the run without faults; None if it fails."""
    outcome = run_schedule((), seed=world, casting=casting)
    return None if outcome.failure else _Undisturbed(outcome.failpoint, outcome.calls, outcome.moving)


def run_schedule(faults: Sequence[Fault], *, seed: int | str, casting: Casting = Casting()) -> Outcome:  # noqa: B008 - immutable
    """Run once with all checks on; the faults may strike from the submission on."""

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        config, full = casting.config, msgspec.structs.replace(casting.config, control=NO_ROOM)
        configs = {name: config if name in casting.room else full for name in casting.nodes}
        quality = NetworkQuality(jitter=0.3)
        return SimulatedCluster(loop, seed, casting.nodes, root, config=config, configs=configs, quality=quality, times=TIMES)

    async def query_run(cluster: SimulatedCluster, root: Path) -> Ended:
        if casting.queries:
            return await SeveralQueries(cluster, casting, faults, root).run()
        return await OneQuery(cluster, casting, faults, root).run()

    return run_cluster(build, query_run, seed=seed, max_time_s=MAX_TIME_S, replay=replay_command(seed, faults, casting))


def replay_command(seed: int | str, faults: Sequence[Fault], casting: Casting) -> str:
    """Return the command that replays the run, and prints its trace."""
    plan, cast = msgspec.json.encode(list(faults)).decode(), msgspec.json.encode(casting).decode()
    return f"python -m sbon_lab.simulation --seed {seed} --casting {shlex.quote(cast)} --faults {shlex.quote(plan)}"
