"""``sbon experiment strategies-live``: all strategies side by side, with each kind of adaptation, in virtual time."""

from __future__ import annotations

from typing import Any

import click

from sbon_cli.commands.experiments.options import repeated
from sbon_cli.commands.experiments.worlds import run_worlds, worlds_options
from sbon_cli.terminal.output import json_option, reports_errors
from sbon_node.model.adaptation import FULL, LOCAL, OFF
from sbon_node.model.strategies import AUTO, STRATEGY_NAMES


@click.command("strategies-live")
@worlds_options(minutes=5.0)
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
@json_option
@reports_errors
def strategies_live(strategies: tuple[str, ...], adaptations: tuple[str, ...], json_: bool, **options: Any) -> None:
    """All strategies that daemons can run side by side, over the same weather and changes, in virtual time.

    Usage and delay over time, beside the best placement of each moment; moves; messages; bounds broken, and queries refused. Half
    of the queries have a bound on their delay. A strategy with an adaptation takes about a minute of CPU time with the defaults.
    """
    chosen = {"strategies": strategies, "adaptations": adaptations}
    run_worlds("strategies_live", options | {name: names for name, names in chosen.items() if names}, json_)
