"""``sbon experiment nes`` and ``sbon experiment scale``: placements of growing queries on growing networks."""

import importlib
from pathlib import Path
from typing import Any

import click

from sbon_cli.options.types import Choice, Number
from sbon_cli.terminal.output import reports_errors
from sbon_lab.commands.options import placement_options, repeated
from sbon_lab.commands.placement import run_experiment
from sbon_protocol.api.strategies import STRATEGY_NAMES


@click.command()
@placement_options(10, "1-3")
@repeated("--sources", "sources", click.IntRange(1, 256), "Sources of a query, repeated; 2 to 32 by default.")
@repeated("--iterations", "iterations", click.IntRange(1, 1_000_000), "Iterations of IFCOP, repeated; 1 to 1,000 by default.")
@click.option(
    "--load",
    type=Number(0, 1),
    default=0.8,
    show_default=True,
    help="Largest share of its cores that a node has given away.",
)
@reports_errors
def nes(out: Path | None, json_: bool, sources: tuple[int, ...], iterations: tuple[int, ...], **options: Any) -> None:
    """NES's Bottom-Up, Top-Down and IFCOP on a hierarchy with little capacity, and local search from these."""
    module: Any = importlib.import_module("sbon_lab.experiments.nes.figures")
    options |= {"sources": sources or module.SOURCES, "iterations": iterations or module.ITERATIONS}
    run_experiment("nes.figures", out, json_, options)


@click.command()
@placement_options(5, "1")
@repeated("--operators", "operators", click.IntRange(1, 256), "Operators of a query, repeated; 1 to 50 by default.")
@repeated(
    "--strategy",
    "strategies",
    Choice(STRATEGY_NAMES),
    "A strategy, repeated; hybrid and relaxation by default.",
    metavar="NAME",
)
@click.option(
    "--sequence",
    type=click.IntRange(0, 100_000),
    default=1000,
    show_default=True,
    help="Number of queries in sequence while nodes fill up; 0 for none.",
)
@click.option("--sequence-only", is_flag=True, help="Run only the sequence.")
@reports_errors
def scale(
    out: Path | None,
    json_: bool,
    operators: tuple[int, ...],
    strategies: tuple[str, ...],
    sequence_only: bool,
    **options: Any,
) -> None:
    """Time, memory and messages of a placement, by nodes and operators; and many queries one after another.

    On networks of 100 to 10,000 nodes, by default. Takes minutes, mostly for the coordinates of 10,000 nodes.
    """
    module: Any = importlib.import_module("sbon_lab.experiments.nes.scale")
    options["operators"] = () if sequence_only else operators or module.OPERATORS
    options["strategies"] = strategies or module.STRATEGIES
    run_experiment("nes.scale", out, json_, options)
