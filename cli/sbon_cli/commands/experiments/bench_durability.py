"""``sbon bench durability``: the cost of replicated operators beside local ones."""

from __future__ import annotations

import importlib
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import click

from sbon_cli.commands.experiments.arriving import arriving, show_rows
from sbon_cli.commands.experiments.bench_migration import KINDS
from sbon_cli.options.types import names_option
from sbon_cli.terminal.output import EXIT_REFUSED, json_option, reports_errors

DURABILITIES = ("local", "replicated", "hot")


@click.command("durability")
@names_option("--kind", "kinds", click.Choice(KINDS), "A kind of query, repeated; filter and tumbling by default.")
@names_option("--durability", "durabilities", click.Choice(DURABILITIES), "A durability, repeated; all by default.")
@click.option("--turns", type=click.IntRange(1, 100), default=2, show_default=True, help="Runs of each, by turns.")
@click.option("--seconds", type=click.FloatRange(1, 3600), default=20.0, show_default=True, help="Time in which rows count.")
@click.option("--rows", type=click.IntRange(1000), default=500_000, show_default=True, help="Length of the file.")
@click.option("--rtt-ms", type=click.FloatRange(0, 1000), default=20.0, show_default=True, help="Emulated round-trip time.")
@json_option
@reports_errors
def durability(
    kinds: tuple[str, ...],
    durabilities: tuple[str, ...],
    turns: int,
    seconds: float,
    rows: int,
    rtt_ms: float,
    json_: bool,
) -> None:
    """The cost of durability: delay of rows, rows a second, bytes sent and processor time, beside local operators.

    Queries run on a local cluster of four nodes. Delays are those of rows of growing files; rows a second those of a whole
    query over a file that is read as fast as may be. Bytes and processor time are of all nodes, for an input row of the growing
    files. All rows are compared with DuckDB's. Ends with code 1 if any is wrong.

    Takes about two minutes for each kind, durability and turn; run it on a machine that does nothing else.
    """
    show, key = partial(show_rows, "durability", json_=json_), ("kind", "durability")
    with tempfile.TemporaryDirectory(prefix="sbon-durability-") as folder, arriving("starting", show, key) as so_far:
        module: Any = importlib.import_module("sbon_cli.commands.experiments.migration.durabilities")
        plan = module.Plan(kinds or ("filter", "tumbling"), durabilities or DURABILITIES, turns, seconds, rows, rtt_ms)
        found = module.run(Path(folder), plan, so_far.notify, so_far.found)
    show(found)
    if any(row["wrong"] for row in found):
        sys.exit(EXIT_REFUSED)
