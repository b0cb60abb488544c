"""Replay one schedule of faults: ``python -m sbon_node.simulation --seed N [--casting J] [--faults J]``.

It prints the trace. ``sbon simulate`` runs scenarios.
"""

from __future__ import annotations

import argparse
import logging
import sys

import msgspec
import structlog

from sbon_node.simulation.faults.plan import Fault
from sbon_node.simulation.outcome import Outcome
from sbon_node.simulation.schedule import Casting, Schedule, random_schedule, run_schedule


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sbon_node.simulation", description=__doc__)
    parser.add_argument("--seed", default="1", help="of the run; with neither casting nor faults, of a random schedule")
    parser.add_argument("--casting", help="who plays what, as JSON; {} for the usual")
    parser.add_argument("--faults", help="the faults, as JSON; [] for none")
    parser.add_argument("--log", action="store_true", help="print the nodes' logs as well, to stderr")
    arguments = parser.parse_args()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if arguments.log else logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    if arguments.casting is None and arguments.faults is None:
        schedule = random_schedule(int(arguments.seed))
    else:
        casting = msgspec.json.decode(arguments.casting or "{}", type=Casting)
        faults = msgspec.json.decode(arguments.faults or "[]", type=tuple[Fault, ...])
        schedule = Schedule(int(arguments.seed), casting, faults)
    print("\n".join(str(fault) for fault in schedule.faults))
    return _tell(run_schedule(schedule.faults, seed=schedule.seed, casting=schedule.casting))


def _tell(outcome: Outcome) -> int:
    print("\n".join(outcome.trace))
    print(outcome.failure or f"{outcome.ending}; {outcome.checks} checks, {outcome.virtual_s:.3f} s of virtual time")
    return 1 if outcome.failure else 0


if __name__ == "__main__":
    sys.exit(main())
