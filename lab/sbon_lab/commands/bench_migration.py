"""``sbon bench migration``: operators that move between nodes of a local cluster while rows arrive."""

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from sbon_cli.terminal.output import EXIT_REFUSED, json_option, reports_errors
from sbon_lab.commands.arriving import Row, arriving, show_rows
from sbon_lab.commands.options import repeated, seed_option

KINDS = ("filter", "tumbling", "session", "inner-join", "left-join", "chain")
PROVIDERS = ("hdfs", "rocksdb")
KILLED_KINDS = ("left-join", "tumbling", "filter")
SHOWN = (
    "kind",
    "provider",
    "state_mb",
    "moves",
    "usual_gap_p50_s",
    "pause_p50_s",
    "pause_p95_s",
    "bare_stop_start_p50_s",
    "level_p50_s",
    "copied_mb",
    "probe_p99_ms",
    "usual_probe_p99_ms",
    "wrong",
)


@click.command("migration")
@repeated("--kind", "kinds", click.Choice(KINDS), "A kind of query, repeated; all by default.", metavar="NAME")
@repeated(
    "--provider",
    "providers",
    click.Choice(PROVIDERS),
    "Where state is kept, repeated; by default as a node chooses.",
    metavar="NAME",
)
@click.option(
    "--state-mb",
    "states_mb",
    type=click.IntRange(0, 10_000),
    multiple=True,
    default=(0, 1, 200, 2000),
    show_default=True,
    help="Megabytes of state at the beginning, repeated; above 0 only for kinds that keep the texts of rows.",
)
@click.option(
    "--moves", type=click.IntRange(1, 1000), default=30, show_default=True, help="Moves of each query; 5 with gigabytes of state."
)
@click.option("--kills", type=click.IntRange(1, 1000), help="Kill processes amid so many moves instead, and compare the rows.")
@seed_option("the kills")
@json_option
@reports_errors
def migration(
    kinds: tuple[str, ...],
    providers: tuple[str, ...],
    states_mb: tuple[int, ...],
    moves: int,
    kills: int | None,
    seed: int,
    json_: bool,
) -> None:
    """Operators that move between nodes: the pause, the delay of rows, and the cost, beside stopping, copying and starting.

    Queries over growing files run on a local cluster of three nodes, and the last operator of each moves to and fro. A pause is
    the gap in the rows at the consumer beyond the usual gap. All rows are compared with DuckDB's. Ends with code 1 if any is
    wrong.

    Takes some minutes a query; run it on a machine that does nothing else.
    """

    def show(rows: list[Row]) -> None:
        columns = [name for name in rows[0] if kills is not None or name in SHOWN]
        show_rows("migration", rows, json_=json_, columns=columns)

    with (
        tempfile.TemporaryDirectory(prefix="sbon-migration-") as folder,
        arriving("starting", show, key=("kind", "provider", "state_mb") if kills is None else ()) as so_far,
    ):
        if kills is not None:
            module: Any = importlib.import_module("sbon_lab.migration.kills")
            rows = module.run(Path(folder), kinds or KILLED_KINDS, kills, seed, so_far.notify, so_far.found)
        else:
            module = importlib.import_module("sbon_lab.migration.run")
            rows = module.run(Path(folder), kinds or KINDS, providers, states_mb, moves, so_far.notify, so_far.found)
    show(rows)
    if any(row["wrong"] for row in rows):
        sys.exit(EXIT_REFUSED)
