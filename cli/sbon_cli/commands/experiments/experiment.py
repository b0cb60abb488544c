"""``sbon experiment``: results of the algorithms on measured and simulated networks, reproducible by seed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click

from sbon_cli.commands.experiments import adaptation, ants, growth, live, placement
from sbon_cli.commands.experiments.ants_live import ants_live
from sbon_cli.commands.experiments.bench import show_result
from sbon_cli.commands.experiments.estimates import estimates
from sbon_cli.commands.experiments.options import out_option, repeated, rtt_files_option, seed_option
from sbon_cli.commands.experiments.overlay import overlay
from sbon_cli.commands.experiments.reuse import reuse
from sbon_cli.commands.experiments.strategies_live import strategies_live
from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.options.types import KnownName, Number
from sbon_cli.terminal.interrupts import leave_on_signals
from sbon_cli.terminal.output import err, headings, json_option, print_json, print_table, reports_errors, say
from sbon_node.logging import output


@click.group(cls=SuggestingGroup)
def experiment() -> None:
    """Repeats an experiment; prints a table, or JSON with units in the column names."""
    leave_on_signals()


@experiment.command()
@rtt_files_option("NaN (or above 60 s)")
@click.option(
    "--made", multiple=True, metavar="KIND:NODES", help="Generated times, such as access:200 or inflated:200; repeated."
)
@click.option(
    "--noise",
    type=Number(0, 1),
    default=0.0,
    show_default=True,
    help="Standard deviation of symmetric noise on each sample, as a share of its time.",
)
@click.option("--queueing/--no-queueing", default=True, show_default=True, help="Let some samples take longer, up to five times.")
@click.option("--algorithm", multiple=True, metavar="NAME", help="An algorithm, such as refit, vivaldi, serf or floor; repeated.")
@seed_option("neighbours, samples, liars, and the nodes that join")
@click.option(
    "--probes", type=click.IntRange(24, 100_000), default=720, show_default=True, help="Probes of each node until it has settled."
)
@out_option
@json_option
@reports_errors
def coordinates(
    data: tuple[Path, ...],
    made: tuple[str, ...],
    noise: float,
    queueing: bool,
    algorithm: tuple[str, ...],
    seed: int,
    probes: int,
    out: Path | None,
    json_: bool,
) -> None:
    """How well coordinates predict round-trip times: the daemon's own, beside Serf's and the best possible.

    Relative errors of all pairs and of those never measured, how much coordinates move, how soon they settle, how well a node
    that joins fares, how many of the ten nearest are found, and what liars can do. Minutes for some hundred nodes.
    """
    if not data and not made:
        raise click.UsageError("Nothing to run on: give --data or --made.")
    experiment: Any = importlib.import_module("sbon_node.experiments.coordinates.experiment")
    read: Any = importlib.import_module("sbon_node.experiments.coordinates.rtt_matrix")
    weather = read.Weather(noise, queueing)
    with err().status("reading") as status:
        placement.tell_timeouts(data)
        matrices = [read.read_matrix(path, weather) for path in data] + [read.made_matrix(text, seed, weather) for text in made]
        result, trials = experiment.run(matrices, algorithm, seed=seed, probes=probes, notify=status.update)
        if out is not None:
            status.update("drawing")
            experiment.EXPERIMENT.draw(result, trials, out)
    if json_:
        print_json(result)
        return
    columns = list(result["rows"][0])
    print_table(headings(columns), [[_cell(row[c]) for c in columns] for row in result["rows"]], title=result["name"])
    if out is not None:
        say(f"pictures: {out}")


def _cell(value: object) -> object:
    return f"{value:.3f}" if isinstance(value, float) else value


@experiment.command()
@repeated("--nodes", "nodes", click.IntRange(4, 4000), "Number of nodes, repeated; 100 and 1,000 by default.")
@click.option(
    "--scenario",
    "-s",
    "scenarios",
    multiple=True,
    type=KnownName("sbon_node.experiments.live.membership:SCENARIOS"),
    metavar="NAME",
    help="A scenario, repeated; all by default.",
)
@click.option(
    "--minutes",
    type=Number(0.1, 600),
    default=60.0,
    show_default=True,
    help="How long weather and partition last, and, if it is less, oneway, loss and churn: 10, 5 and 3 minutes.",
)
@click.option(
    "--preset", type=click.Choice(["wan", "lan"]), default="wan", show_default=True, help="Preset of the membership settings."
)
@seed_option("the network, and of every node")
@json_option
@reports_errors
def membership(nodes: tuple[int, ...], scenarios: tuple[str, ...], minutes: float, preset: str, seed: int, json_: bool) -> None:
    """Failure detection and gossip of the daemon's own code: times, false deaths, healing, bytes.

    Scenarios that wait for an event, such as crash, join, restart or a healed partition, take as long as needed. Speed is
    printed on stderr.
    """
    output.silence()
    module: Any = importlib.import_module("sbon_node.experiments.live.membership")
    settings: Any = importlib.import_module("sbon_node.membership.settings")
    result = module.experiment(
        nodes or (100, 1000),
        seed=seed,
        scenarios=scenarios or tuple(module.SCENARIOS),
        minutes=minutes,
        settings=settings.preset(preset),
        notify=err().print,
    )
    show_result(result, json_)


experiment.add_command(overlay)
experiment.add_command(ants_live)
experiment.add_command(estimates)


for command in (
    placement.sbon_table1,
    placement.penalty,
    placement.sand,
    live.live,
    adaptation.adaptation,
    adaptation.sbon_live,
    strategies_live,
    ants.ants,
    placement.opb_table1,
    growth.nes,
    growth.scale,
    reuse,
):
    experiment.add_command(command)
