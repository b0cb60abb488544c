"""``sbon experiment sbon-table1``, ``penalty``, ``sand`` and ``opb-table1``: strategies compared with the optimum."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sbon_cli.terminal.output import err, headings, print_json, print_table, reports_errors, say
from sbon_lab.commands.options import KnownName, placement_options, repeated


@click.command(name="sbon-table1")
@placement_options(100, "1-5")
@reports_errors
def sbon_table1(out: Path | None, json_: bool, **options: Any) -> None:
    """SBON's Table 1 and Figures 8 and 9: penalties in usage and delay of six strategies and hybrid, beside the paper's."""
    run_experiment("sbon.table1", out, json_, options)


@click.command()
@placement_options(8, "1,2")
@repeated(
    "--operators",
    "operators",
    click.Choice(["1", "3", "7", "15", "31"]),
    "Operators of a query, repeated; 1, 3, 7 and 15 by default.",
    metavar=None,
)
@repeated(
    "--variant",
    "variants",
    KnownName("sbon_lab.experiments.sbon.penalty:VARIANTS"),
    "Such as full or noise10, repeated; all by default.",
    metavar="NAME",
)
@reports_errors
def penalty(out: Path | None, json_: bool, operators: tuple[str, ...], variants: tuple[str, ...], **options: Any) -> None:
    """Cost of placements over the exact optimum, by strategy, size of the query, network and variant."""
    module: Any = importlib.import_module("sbon_lab.experiments.sbon.penalty")
    options["operators"] = tuple(int(size) for size in operators) or module.OPERATORS
    options["variants"] = variants or module.VARIANTS
    run_experiment("sbon.penalty", out, json_, options)


@click.command()
@placement_options(200, "1-5")
@reports_errors
def load(out: Path | None, json_: bool, **options: Any) -> None:
    """Latency of batches and usage where a fifth of the nodes is busy, with and without load in the cost of a placement."""
    run_experiment("sbon.load", out, json_, options)


@click.command()
@placement_options(20, "1-5")
@repeated("--figure", "figures", click.IntRange(6, 12), "A figure of the paper, repeated; all by default.", metavar=None)
@reports_errors
def sand(out: Path | None, json_: bool, figures: tuple[int, ...], **options: Any) -> None:
    """SAND's Figures 6 to 12: bandwidth and delay beside sending all rows to the consumer, under bounds on delay."""
    if figures:
        options["figures"] = figures
    run_experiment("sand.figures", out, json_, options)


@click.command(name="opb-table1")
@placement_options(4, "1-5")
@repeated(
    "--part",
    "parts",
    KnownName("sbon_lab.experiments.opb.table1:PARTS"),
    "table1, delay, throughput or usage, repeated; all by default.",
    metavar="NAME",
)
@reports_errors
def opb_table1(out: Path | None, json_: bool, parts: tuple[str, ...], **options: Any) -> None:
    """OPB's Table I and Figures 3 to 5: usage, delay, success and discoveries under bounds, beside the paper's."""
    module: Any = importlib.import_module("sbon_lab.experiments.opb.table1")
    options["parts"] = parts or module.PARTS
    run_experiment("opb.table1", out, json_, options)


def tell_timeouts(data: Sequence[Path]) -> None:
    """Report timeouts on stderr, for each file of round-trip times that has some."""
    read: Any = importlib.import_module("sbon_lab.experiments.coordinates.rtt_matrix")
    for path in data:
        if message := read.timeouts_text(read.timeouts_in(path)):
            err().print(f"{path}: {message}", markup=False)


def run_experiment(module: str, out: Path | None, json_: bool, options: dict[str, Any]) -> None:
    """Run the module's experiment on the networks that ``options`` name, write its pictures to ``out``, and print the table."""
    experiment: Any = importlib.import_module(f"sbon_lab.experiments.{module}").EXPERIMENT
    tell_timeouts(options["data"])
    with err().status("placing") as status:
        topologies = options.pop("topology")
        result, trials = experiment.run(options.pop("data"), topologies, notify=status.update, **options)
        if out is not None:
            status.update("drawing")
            experiment.draw(result, trials, out)
    if json_:
        print_json(result)
        return
    columns = list(result["rows"][0])
    print_table(
        headings(columns), [["" if row[c] is None else row[c] for c in columns] for row in result["rows"]], title=result["name"]
    )
    if out is not None:
        say(f"pictures: {out}")
