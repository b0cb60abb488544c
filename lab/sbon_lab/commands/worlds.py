"""Options and runs of experiments over drawn worlds: nodes of a matrix, queries, and weather, in virtual time."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from sbon_cli.options.types import Number
from sbon_cli.terminal.output import err
from sbon_lab.commands.bench import show_result
from sbon_lab.commands.options import Seeds
from sbon_node.base.logging import output

Command = Callable[..., Any]


def world_options(minutes: float) -> Callable[[Command], Command]:
    """Return the options of a drawn world, which runs for so many minutes by default."""
    return _all(
        click.option(
            "--data",
            required=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE.npz",
            help="Round-trip times: an array rtt_ms, [n, n] or [t, n, n], milliseconds; its rounds are the weather.",
        ),
        click.option("--nodes", type=click.IntRange(5, 1000), default=20, show_default=True, help="Nodes drawn from it."),
        click.option(
            "--queries", type=click.IntRange(1, 1000), default=4, show_default=True, help="Queries that run all the time."
        ),
        click.option(
            "--period", "period_s", type=Number(5, 3600), default=20.0, show_default=True, help="Of decisions; seconds."
        ),
        click.option("--minutes", type=Number(2, 600), default=minutes, show_default=True, help="How long they run."),
    )


def worlds_options(minutes: float) -> Callable[[Command], Command]:
    """Return the options of several worlds, one for each seed."""
    help_ = "Seeds of nodes, queries and network: 1,2,5 or 1-10."
    return _all(world_options(minutes), click.option("--seeds", type=Seeds(), default="1", show_default=True, help=help_))


def run_worlds(experiment: str, options: Mapping[str, Any], json_: bool) -> None:
    """Run a module of ``sbon_lab.experiments.adaptation`` with the options of its command, and show its result."""
    output.silence()
    module: Any = importlib.import_module(f"sbon_lab.experiments.adaptation.{experiment}")
    with err().status("starting") as status:
        result = module.experiment(**options, notify=status.update)
    show_result(result, json_)


def _all(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
