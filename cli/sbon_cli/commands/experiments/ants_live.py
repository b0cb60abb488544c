"""``sbon experiment ants-live``: ants as datagrams between whole daemons in virtual time."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import Any

import click

from sbon_cli.commands.experiments.bench import show_result
from sbon_cli.commands.experiments.options import TOPOLOGIES, repeated, rtt_files_option
from sbon_cli.options.types import Number, Seeds
from sbon_cli.terminal.output import err, json_option, reports_errors
from sbon_node.logging import output


@click.command(name="ants-live")
@rtt_files_option()
@click.option("--topology", multiple=True, metavar="NAME", help=f"{TOPOLOGIES}; repeated.")
@click.option("--nodes", type=click.IntRange(4, 2000), help="Nodes drawn from each network; all by default.")
@click.option("--queries", type=click.IntRange(1, 10_000), help="Number for each seed: 20 by default, 8 at first in figure 3b.")
@click.option("--seeds", type=Seeds(), default="1", show_default=True, help="Seeds of nodes, queries and ants: 1,2,5 or 1-10.")
@repeated("--loss", "losses", Number(0, 0.5), "Share of datagrams that are lost; repeated, 0 by default.")
@click.option("--stay/--alone", default=False, show_default=True, help="Whether queries stay where they are placed.")
@click.option("--compare/--no-compare", default=True, show_default=True, help="Whether ants in one node place them as well.")
@click.option(
    "--figure",
    "figures",
    type=click.Choice(("3a", "3b", "table1")),
    multiple=True,
    help="Measure a figure of the paper with running queries that move, on 10 nodes by default; repeated.",
)
@click.option("--seconds", type=Number(60, 3600), default=300.0, show_default=True, help="Virtual time of a run of a figure.")
@repeated(
    "--beta", "betas", Number(1, 100), "Factor of table1 by which a placement must be faster; repeated, the paper's by default."
)
@json_option
@reports_errors
def ants_live(
    data: tuple[Path, ...],
    topology: tuple[str, ...],
    nodes: int | None,
    queries: int | None,
    seeds: tuple[int, ...],
    losses: tuple[float, ...],
    stay: bool,
    compare: bool,
    figures: tuple[str, ...],
    seconds: float,
    betas: tuple[float, ...],
    json_: bool,
) -> None:
    """Ants that walk between whole daemons in virtual time: latency beside the exact optimum, messages and bytes of a query.

    The same queries are placed by ants in one node, which knows the same and asks other nodes by calls. With --figure, queries
    run and ants move their operators.
    """
    output.silence()
    module: Any = importlib.import_module("sbon_node.experiments.live.ants")
    if figures:
        with err().status("starting") as status:
            drawn = partial(module.networks, data, topology, nodes or 10)
            moving: Any = importlib.import_module("sbon_node.experiments.live.ant_figures")
            size = moving.Size(seconds, queries or 8, betas or moving.BETAS)
            result = moving.measured(figures, drawn, seeds, size, status.update)
        show_result(result, json_)
        return
    rows = []
    with err().status("starting") as status:
        for seed in seeds:
            for network in module.networks(data, topology, nodes, seed):
                for loss in losses or (0.0,):
                    about = f"{network.name}, seed {seed}, loss {loss:g}"
                    trial = module.Trial(network, seed, queries or 20, loss, stay, compare)
                    rows.append(module.measured(trial, lambda text, about=about: status.update(f"{about}: {text}")))
    show_result({"name": "ants-live", "rows": rows}, json_)
