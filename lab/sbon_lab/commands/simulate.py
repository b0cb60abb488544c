"""``sbon simulate``: whole daemons in virtual time, by a scenario."""

import importlib
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from sbon_cli.terminal.output import EXIT_REFUSED, err, json_option, print_json, print_table, reports_errors
from sbon_cli.terminal.reading import ReadablePath
from sbon_node.base.logging import output

TRACE_LINES = 60
"""Number of lines shown before a failure."""
COLUMNS = ("seed", "ending", "nodes", "checks", "events", "virtual_s")


class Seeds(click.ParamType[range]):
    name = "N|A..B"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> range:
        if isinstance(value, range):
            return value
        match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", value)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            self.fail(f"{value!r} is neither a number nor A..B with A not above B", param, ctx)
        return range(first, last + 1)


@click.command()
@click.argument("scenario", type=ReadablePath(), metavar="SCENARIO.toml|-")
@click.option(
    "--seed", "--seeds", "seeds", type=Seeds(), default="1", show_default=True, help="Seed of a run, or seeds of several."
)
@click.option("--nodes", type=click.IntRange(1, 100_000), metavar="N", help="Total number of nodes, with those of the scenario.")
@click.option("--trace", is_flag=True, help="Print each step to stderr.")
@json_option
@reports_errors
def simulate(scenario: Path, seeds: range, nodes: int | None, trace: bool, json_: bool) -> None:
    """Runs whole daemons through a scenario in virtual time, with every check on.

    The output depends on the seeds alone; times go to stderr. A run that fails ends with its trace and the
    command that runs it again, and exits 1.
    """
    output.silence()
    scenarios: Any = importlib.import_module("sbon_lab.simulation.scenario")
    loaded = scenarios.load_scenario(scenario, nodes)
    rows = []
    for seed in seeds:
        began_s = time.process_time()
        outcome = scenarios.run_scenario(loaded, seed=seed, replay=_replay(scenario, seed, nodes))
        took_s = time.process_time() - began_s
        rows.append(_row(seed, len(loaded.nodes), outcome))
        err().print(f"seed {seed}: {_speed(took_s, outcome.events, outcome.virtual_s)}")
        later = outcome.afterwards
        err().print(f"once all knew each other: {_speed(later.cpu_s, later.events, later.virtual_s)}")
        if trace or outcome.failure:
            lines = outcome.trace if trace else outcome.trace[-TRACE_LINES:]
            err().print(escape("\n".join([*lines, outcome.failure or outcome.ending])))
    if json_:
        print_json({"name": "simulate", "rows": rows})
    else:
        print_table(COLUMNS, [[row[column] for column in COLUMNS] for row in rows], title=loaded.name)
    if any(row["failure"] for row in rows):
        sys.exit(EXIT_REFUSED)


def _speed(cpu_s: float, events: int, virtual_s: float) -> str:
    rates = f"{events / cpu_s:,.0f} events/s, {virtual_s / cpu_s:.1f} times real time" if cpu_s else "no time at all"
    return f"{cpu_s:.1f} s of a core, {rates}"


def _row(seed: int, nodes: int, outcome: Any) -> dict[str, Any]:
    return {
        "seed": seed,
        "ending": "failed" if outcome.failure else outcome.ending,
        "nodes": nodes,
        "checks": outcome.checks,
        "events": outcome.events,
        "virtual_s": round(outcome.virtual_s, 6),
        "failure": outcome.failure,
    }


def _replay(scenario: Path, seed: int, nodes: int | None) -> str:
    return f"sbon simulate {shlex.quote(str(scenario))} --seed {seed}" + (f" --nodes {nodes}" if nodes else "")
