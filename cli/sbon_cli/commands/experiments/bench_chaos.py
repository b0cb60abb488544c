"""``sbon bench chaos``: six nodes whose processes, disks and links fail under running queries."""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from sbon_cli.commands.experiments.options import out_option, seed_option
from sbon_cli.options.types import Number
from sbon_cli.terminal.output import EXIT_REFUSED, err, json_option, print_json, print_table, reports_errors

BAD = ("failed", "wrong", "lost", "doubled", "stuck")
"""Counts that must be 0."""


@click.command("chaos")
@click.option("--minutes", type=Number(0.2, 600), default=10.0, show_default=True, help="How long faults strike.")
@seed_option("faults and queries")
@out_option
@json_option
@reports_errors
def chaos(minutes: float, seed: int, out: Path | None, json_: bool) -> None:
    """Faults of every kind under running queries, on six nodes of this machine with the latencies of six cities.

    Processes die or stop, disks are lost or full, links are cut or slow, operators move, nodes leave and join. Every other query
    is replicated; disks are lost only where no query depends on them alone. All rows are compared with DuckDB's. The timeline is
    written to stderr while it runs, and a picture of it to --out. Ends with code 1 if a query fails or is stuck, or if a row is
    wrong, lost or doubled; then the logs and data of the nodes stay.

    Takes some minutes more than --minutes; needs 8 GB of memory.
    """
    console, folder = err(), Path(tempfile.mkdtemp(prefix="sbon-chaos-"))
    module: Any = importlib.import_module("sbon_cli.commands.experiments.chaos.run")
    is_right = False
    try:
        result = module.run(folder, 60 * minutes, seed, lambda line: console.print(escape(line)))
        is_right = not any(result["rows"][0][name] for name in BAD)
    finally:
        if is_right:
            shutil.rmtree(folder)
        else:
            console.print(f"logs and data of the nodes are in {escape(str(folder))}")
    if out is not None:
        importlib.import_module("sbon_node.experiments.chaos.picture").draw(result, out)
    (row,) = result["rows"]
    if json_:
        print_json(result)
    else:
        print_table(["", ""], list(row.items()), title="chaos")
    if not is_right:
        sys.exit(EXIT_REFUSED)
