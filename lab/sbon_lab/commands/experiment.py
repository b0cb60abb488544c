"""``sbon experiment``: results of the algorithms on measured and simulated networks, reproducible by seed."""

import importlib
from functools import partial
from pathlib import Path
from typing import Any

import click

from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.options.types import Choice, Number
from sbon_cli.terminal.interrupts import leave_on_signals
from sbon_cli.terminal.output import err, headings, json_option, print_json, print_table, reports_errors, say
from sbon_lab.commands import adaptation, growth, live, placement
from sbon_lab.commands.bench import show_result
from sbon_lab.commands.options import (
    TOPOLOGIES,
    KnownName,
    Seeds,
    out_option,
    placement_options,
    repeated,
    rtt_files_option,
    seed_option,
)
from sbon_lab.commands.overlay import overlay
from sbon_lab.commands.placement import run_experiment
from sbon_lab.commands.reuse import reuse
from sbon_lab.commands.worlds import run_worlds, worlds_options
from sbon_node.base.logging import output
from sbon_protocol.api.adaptation import FULL, LOCAL, OFF
from sbon_protocol.api.strategies import AUTO, STRATEGY_NAMES

# -- ``sbon experiment ants``: placement by ants beside exact, centralized and random placement -----------------------


@click.command()
@placement_options(100, "1-3")
@repeated(
    "--part",
    "parts",
    KnownName("sbon_lab.experiments.ants.figures:PARTS"),
    "2a, 2b, 3a, 3b, 4, table1, reuse or queue; repeated, all by default.",
    metavar="NAME",
)
@reports_errors
def ants(out: Path | None, json_: bool, parts: tuple[str, ...], **options: Any) -> None:
    """ANTS's Figures 2, 3 and 4, Table 1 and reuse: latency by ants, beside the exact optimum and others; the queueing model."""
    module: Any = importlib.import_module("sbon_lab.experiments.ants.figures")
    options["parts"] = parts or module.PARTS
    run_experiment("ants.figures", out, json_, options)


# ---------------------------------------------------------------------------------------------------------------------

# -- ``sbon experiment estimates``: estimated against measured rows of the suite's operators --------------------------


@click.command()
@click.option("--query", "-q", "queries", multiple=True, metavar="NAME", help="A query of the suite, repeated; all by default.")
@click.option(
    "--sample-rows",
    type=click.IntRange(0, 1000),
    default=1000,
    show_default=True,
    help="Rows of each source that its node keeps for estimates.",
)
@click.option("--operators", is_flag=True, help="Print each operator instead of each kind.")
@seed_option("the simulation")
@json_option
@reports_errors
def estimates(queries: tuple[str, ...], sample_rows: int, operators: bool, seed: int, json_: bool) -> None:
    """How far the planner's estimates of the suite's operators are from the measured rows.

    Whole daemons in virtual time read files at full speed, without declared rates. A ratio is the greater of the estimated and
    the measured rows over the less.
    """
    output.silence()
    suite: Any = importlib.import_module("sbon_lab.suite.cases")
    module: Any = importlib.import_module("sbon_lab.suite.estimates")
    cases = suite.chosen(queries, "--query") if queries else suite.simulated()
    with err().status("running") as status:
        result = module.experiment(cases, sample_rows=sample_rows, seed=seed, operators=operators, notify=status.update)
    show_result(result, json_)


# ---------------------------------------------------------------------------------------------------------------------

# -- ``sbon experiment strategies-live``: all strategies side by side, with each kind of adaptation, in virtual time --


@click.command("strategies-live")
@worlds_options(minutes=5.0)
@repeated("--strategy", "strategies", Choice([AUTO, *STRATEGY_NAMES]), "A strategy, repeated; all by default.", metavar="NAME")
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


# ---------------------------------------------------------------------------------------------------------------------

# -- ``sbon experiment ants-live``: ants as datagrams between whole daemons in virtual time ---------------------------


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
    module: Any = importlib.import_module("sbon_lab.experiments.live.ants")
    if figures:
        with err().status("starting") as status:
            drawn = partial(module.networks, data, topology, nodes or 10)
            moving: Any = importlib.import_module("sbon_lab.experiments.live.ant_figures")
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


# ---------------------------------------------------------------------------------------------------------------------


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
    experiment: Any = importlib.import_module("sbon_lab.experiments.coordinates.experiment")
    read: Any = importlib.import_module("sbon_lab.experiments.coordinates.rtt_matrix")
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
    type=KnownName("sbon_lab.experiments.live.membership:SCENARIOS"),
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
    module: Any = importlib.import_module("sbon_lab.experiments.live.membership")
    settings: Any = importlib.import_module("sbon_node.overlay.membership.settings")
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
    placement.load,
    placement.sand,
    live.live,
    adaptation.adaptation,
    adaptation.sbon_live,
    strategies_live,
    ants,
    placement.opb_table1,
    growth.nes,
    growth.scale,
    reuse,
):
    experiment.add_command(command)
