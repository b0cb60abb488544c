"""``sbon bench schedules``: random schedules of faults against whole daemons in virtual time."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from typing import Any, NamedTuple

from sbon_lab.experiments.harness.experiment import Found, Notify, ignore
from sbon_lab.simulation.schedule import COUNTED, WORLDS, random_schedule, replay_command, run_schedule
from sbon_lab.simulation.shrink import shrink
from sbon_node.base.logging import output

TOGETHER = 5
"""Number of schedules of one world that a process runs at once."""

MOST_REASON = 2000
"""Most characters of a failure's reason."""


class Failed(NamedTuple):
    """A schedule that failed, with the commands that run it again, whole and shrunk."""

    seed: int
    reason: str
    stuck: bool
    replay: str
    shrunk: str


class Tried(NamedTuple):
    seeds: int
    struck: Counter[str]
    schedules: Counter[str]
    """Schedules in which each action has struck."""
    checks: int
    events: int
    cpu_s: float
    failed: tuple[Failed, ...]


NONE = Tried(0, Counter(), Counter(), 0, 0, 0.0, ())


def run(
    first: int,
    count: int,
    *,
    processes: int,
    limit_s: float | None = None,
    notify: Notify = ignore,
    found: Found = ignore,
) -> dict[str, Any]:
    """Run ``count`` schedules from the seed ``first`` on; begin none after ``limit_s`` seconds.

    A run that is interrupted ends its processes, and ``found`` gets the row so far.

    Returns one row with the number of seeds and of checks, the faults that struck by action, the schedules with moves that were
    committed and given up, the failed and stuck schedules with their commands, and the seconds.
    """
    began, done = time.monotonic(), NONE
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=output.silence) as pool:
        waiting = [pool.submit(_try, seeds) for seeds in _portions(first, count)]
        try:
            for finished in as_completed(waiting):
                if finished.cancelled():
                    continue
                done = _sum(done, finished.result())
                notify(f"{done.seeds} of {count} schedules, {len(done.failed)} failed")
                if limit_s is not None and time.monotonic() - began > limit_s:
                    for portion in waiting:
                        portion.cancel()
        except (KeyboardInterrupt, SystemExit):
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()
            found(_row(first, done, time.monotonic() - began, processes))
            raise
    return {"name": "schedules", "rows": [_row(first, done, time.monotonic() - began, processes)]}


def _portions(first: int, count: int) -> Iterator[list[int]]:
    """Cut the seeds into portions of one world each, whose undisturbed run a process then needs only once.

    The worlds take turns: a run that is cut short has tried all of them, and processes side by side have equal shares.
    """
    worlds = [list(range(first + world, first + count, WORLDS)) for world in range(min(WORLDS, count))]
    for at in range(0, len(worlds[0]) if worlds else 0, TOGETHER):
        for seeds in worlds:
            if at < len(seeds):
                yield seeds[at : at + TOGETHER]


def _try(seeds: list[int]) -> Tried:
    began, tried = time.process_time(), NONE
    for seed in seeds:
        tried = _sum(tried, _try_one(seed))
    return tried._replace(cpu_s=time.process_time() - began)


def _try_one(seed: int, *, moves: bool = True) -> Tried:
    """Run the schedule of one seed, mostly with ``moves`` of operators.

    An error that no check has raised, in the daemon or the simulation, is a failure as well.
    """
    world, casting, faults = random_schedule(seed, moves=moves)
    failed: tuple[Failed, ...] = ()
    try:
        outcome = run_schedule(faults, seed=world, casting=casting)
    except Exception as error:  # noqa: BLE001 - whatever it raises, the other seeds go on
        replay = replay_command(world, faults, casting)
        failed = (Failed(seed, f"{type(error).__name__}: {error}"[:MOST_REASON], False, replay, replay),)
        return NONE._replace(seeds=1, failed=failed)
    if outcome.failure:
        shrunk = shrink(faults, lambda fewer: bool(run_schedule(fewer, seed=world, casting=casting).failure))
        commands = (replay_command(world, those, casting) for those in (faults, shrunk))
        failed = (Failed(seed, outcome.failure.split("\nreplay:")[0][:MOST_REASON], outcome.stuck, *commands),)
    struck = Counter(outcome.struck)
    return Tried(1, struck, Counter(action for action in struck if struck[action]), outcome.checks, outcome.events, 0.0, failed)


def _sum(one: Tried, other: Tried) -> Tried:
    return Tried(
        one.seeds + other.seeds,
        one.struck + other.struck,
        one.schedules + other.schedules,
        one.checks + other.checks,
        one.events + other.events,
        one.cpu_s + other.cpu_s,
        one.failed + other.failed,
    )


def _row(first: int, tried: Tried, seconds: float, processes: int) -> dict[str, Any]:
    return {
        "first": first,
        "seeds": tried.seeds,
        "failed": sum(not failed.stuck for failed in tried.failed),
        "stuck": sum(failed.stuck for failed in tried.failed),
        "checks": tried.checks,
        "events": tried.events,
        "seconds": round(seconds, 1),
        "cpu_s": round(tried.cpu_s, 1),
        "processes": processes,
        "schedules_with_a_committed_move": tried.schedules["move"],
        "schedules_with_a_given_up_move": tried.schedules["stay"],
        "struck": {action: tried.struck[action] for action in COUNTED},
        "failures": [failed._asdict() for failed in sorted(tried.failed)],
    }
