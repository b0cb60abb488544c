"""``sbon experiment reuse``: what reuse saves SBON's four queries on real nodes, and many simulated ones."""

import importlib
import tempfile
from pathlib import Path
from typing import Any

import click

from sbon_cli.options.types import Number
from sbon_cli.terminal.output import err, headings, json_option, print_json, print_table, reports_errors
from sbon_lab.commands.options import TOPOLOGIES, seed_option
from sbon_lab.commands.reuse_live import run_paper
from sbon_node.base.logging import output

PAPER, ZIPF = "paper", "zipf"


@click.command()
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice([PAPER, ZIPF]),
    help="The paper's four queries on real nodes, or many queries in virtual time; repeated, both by default.",
)
@click.option("--topology", default="ts208", show_default=True, metavar="NAME", help=f"Of part zipf: {TOPOLOGIES}.")
@click.option("--nodes", type=click.IntRange(10, 1000), default=200, show_default=True, help="Of part zipf: nodes drawn from it.")
@click.option("--queries", type=click.IntRange(1, 1000), default=200, show_default=True, help="Of part zipf: queries drawn.")
@click.option("--exponent", type=Number(0, 4), default=1.0, show_default=True, help="Of part zipf: exponent of Zipf's law.")
@click.option(
    "--every",
    "every_s",
    type=Number(0.01, 600),
    default=0.5,
    show_default=True,
    help="Of part zipf: seconds between two queries.",
)
@click.option(
    "--seconds", type=Number(10, 3600), default=120.0, show_default=True, help="Of part paper: how long producers have rows."
)
@click.option(
    "--jobs", type=click.IntRange(1, 4), default=1, show_default=True, help="Of part zipf: runs at a time; each takes 3 GB."
)
@seed_option("network, rows and queries, and of the query that is stopped")
@json_option
@reports_errors
def reuse(parts: tuple[str, ...], topology: str, seconds: float, seed: int, json_: bool, **drawn: Any) -> None:
    """Savings by reuse of other queries' operators: bytes, operators, and network usage; and whether all rows are exact.

    Part paper is SBON's section 4.2.2: four queries over two producers, on real nodes with Spark. In part zipf, whole daemons in
    virtual time run queries drawn by Zipf's law from templates, without reuse and with each kind of it, and again with one of
    the queries stopped midway. That takes about six minutes of CPU time for each of these runs with the defaults.
    """
    output.silence()
    rows: list[dict[str, Any]] = []
    with err().status("starting") as status, tempfile.TemporaryDirectory(prefix="sbon-reuse-") as folder:
        if PAPER in (parts or (PAPER, ZIPF)):
            rows += [{"part": PAPER, **row} for row in run_paper(seconds, seed, Path(folder), status.update)]
        if ZIPF in (parts or (PAPER, ZIPF)):
            figures: Any = importlib.import_module("sbon_lab.experiments.reuse.figures")
            named: Any = importlib.import_module("sbon_lab.experiments.harness.topologies")
            network = named.topology_named(topology, seed)
            found = figures.experiment(network, seed=seed, notify=status.update, done=err().print, **drawn)
            rows += [{"part": ZIPF, **row} for row in found]
    name = "reuse of operators"
    if json_:
        print_json({"name": name, "rows": rows})
        return
    columns = list(dict.fromkeys(column for row in rows for column in row if column not in ("refusals",)))
    print_table(headings(columns), [[_cell(row.get(column)) for column in columns] for row in rows], title=name)


def _cell(value: object) -> object:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else value
