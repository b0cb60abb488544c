"""``sbon experiment strategies-live``: all strategies side by side, with each kind of adaptation, in virtual time."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click

from sbon_cli.commands.experiments.adaptation import world_options
from sbon_cli.commands.experiments.bench import show_result
from sbon_cli.commands.experiments.options import repeated
from sbon_cli.options.types import Seeds
from sbon_cli.terminal.output import err, json_option, reports_errors
from sbon_node.logging import output
from sbon_node.model.adaptation import FULL, LOCAL, OFF
from sbon_node.model.strategies import AUTO, STRATEGY_NAMES


@click.command("strategies-live")
@world_options(minutes=5.0)
@repeated(
    "--strategy", "strategies", click.Choice([AUTO, *STRATEGY_NAMES]), "A strategy, repeated; all by default.", metavar="NAME"
)
@repeated(
    "--adapt",
    "adaptations",
    click.Choice([OFF, LOCAL, FULL]),
    "An adaptation of running queries, repeated; all by default. Full is by ants for the strategy ants.",
    metavar="KIND",
)
@click.option("--seeds", type=Seeds(), default="1", show_default=True, help="Seeds of nodes, queries and network: 1,2,5 or 1-10.")
@json_option
@reports_errors
def strategies_live(
    data: Path,
    nodes: int,
    queries: int,
    minutes: float,
    period_s: float,
    strategies: tuple[str, ...],
    adaptations: tuple[Any, ...],
    seeds: list[int],
    json_: bool,
) -> None:
    """All strategies that daemons can run side by side, over the same weather and changes, in virtual time.

    Usage and delay over time, beside the best placement of each moment; moves; messages; bounds broken, and queries refused. Half
    of the queries have a bound on their delay. A strategy with an adaptation takes about a minute of CPU time with the defaults.
    """
    output.silence()
    module: Any = importlib.import_module("sbon_node.experiments.adaptation.strategies_live")
    with err().status("starting") as status:
        result = module.experiment(
            data,
            strategies=strategies or module.STRATEGIES,
            adaptations=adaptations or module.ADAPTATIONS,
            nodes=nodes,
            queries=queries,
            minutes=minutes,
            period_s=period_s,
            seeds=seeds,
            notify=status.update,
        )
    show_result(result, json_)
