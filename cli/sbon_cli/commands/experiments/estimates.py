"""``sbon experiment estimates``: estimated against measured rows of the suite's operators."""

from __future__ import annotations

import importlib
from typing import Any

import click

from sbon_cli.commands.experiments.bench import show_result
from sbon_cli.commands.experiments.options import seed_option
from sbon_cli.terminal.output import err, json_option, reports_errors
from sbon_node.logging import output


@click.command()
@click.option("--query", "-q", "queries", multiple=True, metavar="NAME", help="A query of the suite, repeated; all by default.")
@click.option(
    "--sample-rows",
    type=click.IntRange(0, 1000),
    default=1000,
    show_default=True,
    help="Rows of each source that its node keeps for estimates.",
)
@click.option("--operators", is_flag=True, help="Print each operator instead of each kind.")
@seed_option("the simulation")
@json_option
@reports_errors
def estimates(queries: tuple[str, ...], sample_rows: int, operators: bool, seed: int, json_: bool) -> None:
    """How far the planner's estimates of the suite's operators are from the measured rows.

    Whole daemons in virtual time read files at full speed, without declared rates. A ratio is the greater of the estimated and
    the measured rows over the less.
    """
    output.silence()
    suite: Any = importlib.import_module("sbon_node.experiments.suite.cases")
    module: Any = importlib.import_module("sbon_node.experiments.suite.estimates")
    cases = suite.chosen(queries, "--query") if queries else suite.simulated()
    with err().status("running") as status:
        result = module.experiment(cases, sample_rows=sample_rows, seed=seed, operators=operators, notify=status.update)
    show_result(result, json_)
