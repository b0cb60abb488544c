"""Runs one schedule of faults, or one scenario, again and prints its trace.

``python -m sbon_node.simulation --seed N [--faults JSON]`` or ``--seed N --scenario FILE.toml``.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import msgspec
import structlog

from sbon_node.simulation.faults import Fault, random_plan
from sbon_node.simulation.harness import ROWS, STAGE, Outcome, run_schedule
from sbon_node.simulation.scenario import load_scenario, run_scenario


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sbon_node.simulation", description=__doc__)
    parser.add_argument("--seed", default="1", help="of the run, and of its faults where none are given")
    parser.add_argument("--faults", help="the faults, as JSON; [] for none")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the source")
    parser.add_argument("--scenario", type=Path, help="run whole daemons through this scenario instead of the fast harness")
    parser.add_argument("--log", action="store_true", help="print what the nodes log as well, to stderr")
    given = parser.parse_args()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if given.log else logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    if given.scenario is not None:
        return _tell(run_scenario(load_scenario(given.scenario), seed=given.seed))
    faults = random_plan(given.seed, STAGE) if given.faults is None else msgspec.json.decode(given.faults, type=tuple[Fault, ...])
    print("\n".join(str(fault) for fault in faults))
    return _tell(run_schedule(faults, seed=given.seed, rows=given.rows))


def _tell(outcome: Outcome) -> int:
    print("\n".join(outcome.trace))
    print(outcome.failure or f"all rows exactly once; {outcome.checks} checks, {outcome.virtual_s:.3f} s of virtual time")
    return 1 if outcome.failure else 0


if __name__ == "__main__":
    sys.exit(main())
