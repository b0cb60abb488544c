"""``sbon bench recovery``: hosts of replicated operators that are lost with their disks."""

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
from sbon_node.model.durability import HOT, REPLICATED, Durability


@click.command("recovery")
@names_option("--kind", "kinds", click.Choice(KINDS), "A kind of query, repeated; all by default.")
@click.option("--losses", type=click.IntRange(1, 1000), default=5, show_default=True, help="Hosts lost by each query.")
@click.option(
    "--durability", type=click.Choice((REPLICATED, HOT)), default=REPLICATED, show_default=True, help="That of the queries."
)
@json_option
@reports_errors
def recovery(kinds: tuple[str, ...], losses: int, durability: Durability, json_: bool) -> None:
    """Hosts that are lost with their disks: the time until rows come again, of which detection is a part.

    Queries over growing files run on a local cluster of four nodes with this durability. All processes of the host of
    each query's last operator are killed, and its data directory is deleted, again and again. All rows are compared with
    DuckDB's. Ends with code 1 if any is wrong.

    Takes some minutes a query; run it on a machine that does nothing else.
    """
    show = partial(show_rows, "recovery", json_=json_)
    with tempfile.TemporaryDirectory(prefix="sbon-recovery-") as folder, arriving("starting", show) as so_far:
        module: Any = importlib.import_module("sbon_cli.commands.experiments.migration.losses")
        rows = module.run(Path(folder), kinds or KINDS, losses, so_far.notify, so_far.found, durability)
    show(rows)
    if any(row["wrong"] or row["repeated_frames"] for row in rows):
        sys.exit(EXIT_REFUSED)
