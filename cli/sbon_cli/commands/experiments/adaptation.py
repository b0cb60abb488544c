"""``sbon experiment adaptation``: operators that move by themselves, in virtual time."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sbon_cli.commands.experiments.bench import show_result
from sbon_cli.commands.experiments.options import out_option, seed_option
from sbon_cli.options.types import Number, Seeds
from sbon_cli.terminal.output import err, json_option, reports_errors
from sbon_node.logging import output

_OPTIONS = (
    click.option(
        "--data",
        required=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE.npz",
        help="Round-trip times: an array rtt_ms, [n, n] or [t, n, n], milliseconds; its rounds are the weather.",
    ),
    click.option("--nodes", type=click.IntRange(5, 1000), default=20, show_default=True, help="Nodes drawn from it."),
    click.option("--queries", type=click.IntRange(1, 1000), default=4, show_default=True, help="Queries that run all the time."),
    click.option("--period", "period_s", type=Number(5, 3600), default=20.0, show_default=True, help="Of decisions; seconds."),
)


def world_options(minutes: float = 10.0) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the options of a drawn world, which runs for so many minutes by default."""
    duration = click.option("--minutes", type=Number(2, 600), default=minutes, show_default=True, help="How long they run.")

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed((*_OPTIONS, duration)):
            command = option(command)
        return command

    return decorate


@click.command()
@world_options()
@click.option("--seeds", type=Seeds(), default="1", show_default=True, help="Seeds of nodes, queries and network: 1,2,5 or 1-10.")
@click.option(
    "--changes/--no-changes", default=True, show_default=True, help="Change latencies, rates, selectivities and load on the way."
)
@click.option("--traffic", is_flag=True, help="Run each world again without adaptation, to see the optimizers' traffic.")
@json_option
@reports_errors
def adaptation(
    data: Path,
    nodes: int,
    queries: int,
    minutes: float,
    period_s: float,
    seeds: list[int],
    changes: bool,
    traffic: bool,
    json_: bool,
) -> None:
    """Local optimizers of whole daemons in virtual time, beside placements that never move and an oracle that moves for free.

    Usage is in bytes in transit, by the latencies and measured rates of each moment. Takes minutes for 20 nodes.
    """
    output.silence()
    module: Any = importlib.import_module("sbon_node.experiments.adaptation.figures")
    with err().status("starting") as status:
        result = module.experiment(
            data,
            nodes=nodes,
            queries=queries,
            minutes=minutes,
            period_s=period_s,
            seeds=seeds,
            changes=changes,
            traffic=traffic,
            notify=status.update,
        )
    show_result(result, json_)


@click.command("sbon-live")
@click.option("--figure", type=click.Choice(["10", "11", "12"]), required=True, help="The figure of the paper.")
@world_options()
@seed_option("nodes, queries and network")
@out_option
@json_option
@reports_errors
def sbon_live(
    figure: str,
    data: Path,
    nodes: int,
    queries: int,
    minutes: float,
    period_s: float,
    seed: int,
    out: Path | None,
    json_: bool,
) -> None:
    """SBON's Figures 10 to 12 in virtual time: usage of queries that migrate, beside the same ones that do not.

    Figures 10 and 11 show a single query after a change of latency, Figure 12 all queries.
    """
    output.silence()
    module: Any = importlib.import_module("sbon_node.experiments.adaptation.paper_figures")
    with err().status("starting") as status:
        result = module.figure(
            int(figure),
            data,
            nodes=nodes,
            queries=queries,
            minutes=minutes,
            period_s=period_s,
            seed=seed,
            out=out,
            notify=status.update,
        )
    show_result(result, json_)
