"""Runs one schedule of faults, or one scenario, again and prints its trace.

``python -m sbon_node.simulation --seed N [--casting JSON] [--faults JSON]`` or ``--seed N --scenario FILE.toml``.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import msgspec
import structlog

from sbon_node.simulation.faults import Fault, random_plan
from sbon_node.simulation.outcome import Outcome
from sbon_node.simulation.scenario import load_scenario, run_scenario
from sbon_node.simulation.schedule import Casting, drawn, run_schedule


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sbon_node.simulation", description=__doc__)
    parser.add_argument("--seed", default="1", help="of the run, and of its casting and faults where none are given")
    parser.add_argument("--casting", help="who plays what, as JSON; {} for the usual")
    parser.add_argument("--faults", help="the faults, as JSON; [] for none")
    parser.add_argument("--scenario", type=Path, help="run this scenario instead")
    parser.add_argument("--log", action="store_true", help="print what the nodes log as well, to stderr")
    given = parser.parse_args()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if given.log else logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    if given.scenario is not None:
        return _tell(run_scenario(load_scenario(given.scenario), seed=given.seed))
    casting = drawn(given.seed) if given.casting is None else msgspec.json.decode(given.casting, type=Casting)
    plan = random_plan(given.seed, casting.stage)
    faults = plan if given.faults is None else msgspec.json.decode(given.faults, type=tuple[Fault, ...])
    print("\n".join(str(fault) for fault in faults))
    return _tell(run_schedule(faults, seed=given.seed, casting=casting))


def _tell(outcome: Outcome) -> int:
    print("\n".join(outcome.trace))
    print(outcome.failure or f"{outcome.ending}; {outcome.checks} checks, {outcome.virtual_s:.3f} s of virtual time")
    return 1 if outcome.failure else 0


if __name__ == "__main__":
    sys.exit(main())
