"""Schedules of faults against queries over whole daemons, drawn from a seed or given."""

from __future__ import annotations

import functools
import random
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from sbon_node.failpoints import Failpoint
from sbon_node.simulation.casting import NODES, Casting, Life, PlannedQuery
from sbon_node.simulation.cluster import SimulatedCluster
from sbon_node.simulation.engine.engine_process import EngineTimes
from sbon_node.simulation.faults.plan import ACTIONS, HELD_BACK, Fault, occurrences, random_plan
from sbon_node.simulation.loop import VirtualLoop
from sbon_node.simulation.network.paths import NetworkQuality
from sbon_node.simulation.one_query import OneQuery
from sbon_node.simulation.outcome import Ended, Outcome, run_cluster
from sbon_node.simulation.several_queries import BY_USERS, SeveralQueries
from sbon_node.workflow.settings import ControlSettings

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
SEVERAL = 10
"""One world in so many runs several queries."""
TWINS = 0.4
"""Probability that a query of several is submitted under the name of an earlier one, which may still run."""
COUNTED: tuple[str, ...] = (*ACTIONS, *BY_USERS)
"""Faults of a run, and its users' actions: all are counted."""


def random_schedule(seed: int) -> Schedule:
    """Draw a schedule: any node may hold the record or host the operator.

    The faults strike at steps that the undisturbed run takes, so that the first of them surely strikes. A world whose
    undisturbed run fails has no faults: its schedule is that run.
    """
    world = seed % WORLDS
    rng = random.Random(f"casting/{world}")
    casting = Casting(
        holder=rng.choice(NODES),
        room=NODES,
        strategy=rng.choice(("relaxation", "producer", "consumer", "random")),
        sink=rng.choice(("file", "follow")),
        fsync=rng.random() < 0.7,
        queries=_several(rng) if world % SEVERAL == SEVERAL - 1 else (),
    )
    undisturbed = _undisturbed(world, casting)
    if undisturbed is None:
        return Schedule(world, casting, ())
    steps, calls = undisturbed
    failpoint = occurrences(steps)
    hosts = tuple(node for node in NODES if any(when.node == node and when.step == "plan" for when in failpoint))
    stage = msgspec.structs.replace(casting.stage, operators=hosts, also=HELD_BACK)
    return Schedule(world, casting, random_plan(seed, stage, failpoint, calls))


def _several(rng: random.Random) -> tuple[PlannedQuery, ...]:
    """Draw two to four queries at once. Some are stopped, some names are used again, and some have two queries at once."""
    queries: list[PlannedQuery] = []
    for number in range(rng.randint(2, 4)):
        lives = []
        for _ in range(rng.randint(1, 2)):
            sources = tuple(rng.sample(NODES, rng.randint(1, 2)))
            stop_after_s = rng.uniform(0.0, 4.0) if rng.random() < 0.4 else None
            lives.append(
                Life(
                    sql=rng.choice(("filter", "window")),
                    sources=sources,
                    holder=rng.choice(NODES),
                    consumer=rng.choice(NODES),
                    after_s=rng.uniform(0.0, 2.0),
                    stop_after_s=stop_after_s,
                    stop_at=rng.choice(NODES),
                )
            )
        name = rng.choice(queries).name if queries and rng.random() < TWINS else f"q{number}"
        queries.append(PlannedQuery(name=name, lives=tuple(lives)))
    return tuple(queries)


@functools.cache
def _undisturbed(world: int, casting: Casting) -> tuple[tuple[tuple[str, Failpoint], ...], Mapping[str, int]] | None:
    """Return the steps and disk calls of the run without faults; None if it fails."""
    outcome = run_schedule((), seed=world, casting=casting)
    return None if outcome.failure else (outcome.failpoint, outcome.calls)


def run_schedule(faults: Sequence[Fault], *, seed: int | str, casting: Casting = Casting()) -> Outcome:  # noqa: B008 - immutable
    """Run once with all checks on; the faults may strike from the submission on."""

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        config, full = casting.config, msgspec.structs.replace(casting.config, control=NO_ROOM)
        configs = {name: config if name in casting.room else full for name in NODES}
        quality = NetworkQuality(jitter=0.3)
        return SimulatedCluster(loop, seed, NODES, root, config=config, configs=configs, quality=quality, times=TIMES)

    async def query_run(cluster: SimulatedCluster, root: Path) -> Ended:
        if casting.queries:
            return await SeveralQueries(cluster, casting, faults, root).run()
        return await OneQuery(cluster, casting, faults, root).run()

    return run_cluster(build, query_run, seed=seed, max_time_s=MAX_TIME_S, replay=replay_command(seed, faults, casting))


def replay_command(seed: int | str, faults: Sequence[Fault], casting: Casting) -> str:
    """Return the command that replays the run, and prints its trace."""
    plan, cast = msgspec.json.encode(list(faults)).decode(), msgspec.json.encode(casting).decode()
    return f"python -m sbon_node.simulation --seed {seed} --casting {shlex.quote(cast)} --faults {shlex.quote(plan)}"
