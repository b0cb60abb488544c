"""Replay one schedule of faults: ``python -m sbon_lab.simulation --seed N [--casting J] [--faults J]``.

It prints the trace. With ``--shrink``, a failing schedule is shrunk to the fewest faults that still fail; the command for these
follows. ``sbon simulate`` runs scenarios, ``sbon bench schedules`` many schedules.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from functools import partial

import msgspec
import structlog

from sbon_lab.simulation.casting import Casting
from sbon_lab.simulation.faults.plan import Fault
from sbon_lab.simulation.outcome import Outcome
from sbon_lab.simulation.schedule import Schedule, random_schedule, replay_command, run_schedule
from sbon_lab.simulation.shrink import shrink


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sbon_lab.simulation", description=__doc__)
    parser.add_argument("--seed", default="1", help="of the run; with neither casting nor faults, of a random schedule")
    parser.add_argument("--casting", help="who plays what, as JSON; {} for the usual")
    parser.add_argument("--faults", help="the faults, as JSON; [] for none")
    parser.add_argument("--moves", action="store_true", help="draw a schedule with moves of operators, as sbon bench schedules")
    parser.add_argument("--shrink", action="store_true", help="look for the fewest faults that still fail")
    parser.add_argument("--log", action="store_true", help="print the nodes' logs as well, to stderr")
    arguments = parser.parse_args()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if arguments.log else logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    if arguments.casting is None and arguments.faults is None:
        schedule = random_schedule(int(arguments.seed), moves=arguments.moves)
    else:
        casting = msgspec.json.decode(arguments.casting or "{}", type=Casting)
        faults = msgspec.json.decode(arguments.faults or "[]", type=tuple[Fault, ...])
        schedule = Schedule(int(arguments.seed), casting, faults)
    print("\n".join(str(fault) for fault in schedule.faults))
    status = _tell(run_schedule(schedule.faults, seed=schedule.seed, casting=schedule.casting))
    if status and arguments.shrink:
        fewest = shrink(schedule.faults, partial(_fails, schedule))
        print(f"shrunk to {len(fewest)} faults: {replay_command(schedule.seed, fewest, schedule.casting)}")
    return status


def _fails(schedule: Schedule, faults: Sequence[Fault]) -> bool:
    return bool(run_schedule(faults, seed=schedule.seed, casting=schedule.casting).failure)


def _tell(outcome: Outcome) -> int:
    print("\n".join(outcome.trace))
    print(outcome.failure or f"{outcome.ending}; {outcome.checks} checks, {outcome.virtual_s:.3f} s of virtual time")
    return 1 if outcome.failure else 0


if __name__ == "__main__":
    sys.exit(main())
