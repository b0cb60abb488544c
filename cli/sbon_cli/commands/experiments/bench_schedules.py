"""``sbon bench schedules``: random schedules of faults, in virtual time."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import click
from rich.markup import escape

from sbon_cli.commands.experiments.arriving import Row, arriving
from sbon_cli.terminal.output import EXIT_REFUSED, err, json_option, print_json, print_table, reports_errors

SUMMED = ("first", "seeds", "failed", "stuck", "checks", "events", "seconds", "cpu_s", "processes")


@click.command("schedules")
@click.option("--first", type=click.IntRange(0, 10**12), default=0, show_default=True, help="Seed of the first schedule.")
@click.option("--count", type=click.IntRange(1, 10**7), default=1000, show_default=True, help="Number of schedules.")
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=lambda: os.cpu_count() or 1,
    show_default="one a core",
    help="Number of processes.",
)
@click.option("--seconds", type=click.FloatRange(0.1, 1e6), help="Begin no schedule after so many seconds.")
@json_option
@reports_errors
def schedules(first: int, count: int, processes: int, seconds: float | None, json_: bool) -> None:
    """Random schedules of faults against whole daemons in virtual time, with every check on.

    Each schedule runs queries and draws faults from its seed. A failing one is shrunk to the fewest faults that still
    fail; both are shown as commands that run them again. Exits 1 if any schedule failed, or left a query without an end.
    """
    bench: Any = importlib.import_module("sbon_node.experiments.bench.schedules")
    show = partial(_show, json_=json_)
    with arriving("schedules", show) as so_far:
        result = bench.run(first, count, processes=processes, limit_s=seconds, notify=so_far.notify, found=so_far.rows.append)
    show(result["rows"])
    if any(row["failed"] or row["stuck"] for row in result["rows"]):
        sys.exit(EXIT_REFUSED)


def _show(rows: Sequence[Row], *, json_: bool) -> None:
    for failed in rows[0]["failures"]:
        stuck = "stuck" if failed["stuck"] else "failed"
        err().print(escape(f"seed {failed['seed']} {stuck}: {failed['reason']}"))
        err().print(escape(f"  replay: {failed['replay']}\n  shrunk: {failed['shrunk']}"), soft_wrap=True)
    if json_:
        print_json({"name": "schedules", "rows": rows})
        return
    print_table(SUMMED, [[row[column] for column in SUMMED] for row in rows], title="schedules")
    print_table(("fault", "times"), list(rows[0]["struck"].items()), title="faults that struck")
