"""``sbon experiment sbon-table1``, ``penalty``, ``sand`` and ``opb-table1``: strategies compared with the best there is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from sbon_cli.options.types import Folder, KnownName, Seeds, names_option
from sbon_cli.terminal.output import err, headings, json_option, print_json, print_table, reports_errors, say

TOPOLOGIES = "ts100, ts208, ts300, ts1000, ts1064, ts1550, ts3000, ts10000, edge-fog-cloud, geometric"
"""Names in sbon_node.experiments.harness.topologies, which help does not import."""


def placement_options(queries: int, seeds: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the options that placement experiments share; ``queries`` and ``seeds`` are defaults."""
    options = (
        click.option(
            "--data",
            multiple=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE.npz",
            help="Round-trip times: an array rtt_ms, [n, n] or [t, n, n], milliseconds, NaN where missing; repeated.",
        ),
        click.option(
            "--topology",
            multiple=True,
            metavar="NAME",
            help=f"{TOPOLOGIES}; repeated.",
        ),
        click.option("--queries", type=click.IntRange(1, 100_000), default=queries, show_default=True, help="Of each seed."),
        click.option(
            "--seeds", type=Seeds(), default=seeds, show_default=True, help="Of network, coordinates and queries: 1,2,5 or 1-10."
        ),
        click.option("--out", type=Folder(), metavar="DIR", help="Write pictures and the JSON there."),
        click.option(
            "--dump",
            type=Folder(),
            metavar="DIR",
            help="Write every instance and placement there, as lines of JSON, for other programs to check.",
        ),
        json_option,
    )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command(name="sbon-table1")
@placement_options(100, "1-5")
@reports_errors
def sbon_table1(out: Path | None, json_: bool, **options: Any) -> None:
    """SBON's Table 1 and Figures 8 and 9: penalties in usage and delay of six strategies and hybrid, beside the paper's."""
    run_experiment("sbon.table1", "draw_table1", out, json_, options)


@click.command()
@placement_options(8, "1,2")
@click.option(
    "--operators",
    multiple=True,
    type=click.Choice(["1", "3", "7", "15", "31"]),
    help="Of a query, repeated; 1, 3, 7 and 15 by default.",
)
@names_option(
    "--variant",
    "variants",
    KnownName("sbon_node.experiments.sbon.penalty:VARIANTS"),
    "Such as full or noise10, repeated; all by default.",
)
@reports_errors
def penalty(out: Path | None, json_: bool, operators: tuple[str, ...], variants: tuple[str, ...], **options: Any) -> None:
    """How much more than the exact optimum placements cost: by strategy, size of the query, network, and hardship."""
    module: Any = importlib.import_module("sbon_node.experiments.sbon.penalty")
    options["operators"] = tuple(int(size) for size in operators) or module.OPERATORS
    options["variants"] = variants or module.VARIANTS
    run_experiment("sbon.penalty", "draw_penalty", out, json_, options)


@click.command()
@placement_options(20, "1-5")
@click.option("--figure", "figures", multiple=True, type=click.IntRange(6, 12), help="Of the paper, repeated; all by default.")
@reports_errors
def sand(out: Path | None, json_: bool, figures: tuple[int, ...], **options: Any) -> None:
    """SAND's Figures 6 to 12: bandwidth and delay beside sending all rows to the consumer, under bounds on delay."""
    if figures:
        options["figures"] = figures
    run_experiment("sand.figures", "draw_sand", out, json_, options, pictures="sand.pictures")


@click.command(name="opb-table1")
@placement_options(4, "1-5")
@names_option(
    "--part",
    "parts",
    KnownName("sbon_node.experiments.opb.table1:PARTS"),
    "table1, delay, throughput or usage, repeated; all by default.",
)
@reports_errors
def opb_table1(out: Path | None, json_: bool, parts: tuple[str, ...], **options: Any) -> None:
    """OPB's Table I and Figures 3 to 5: usage, delay, success and discoveries under bounds, beside the paper's."""
    module: Any = importlib.import_module("sbon_node.experiments.opb.table1")
    options["parts"] = parts or module.PARTS
    run_experiment("opb.table1", "draw_opb", out, json_, options, pictures="opb.pictures")


def tell_timeouts(data: Sequence[Path]) -> None:
    """Report timeouts on stderr, for each file of round-trip times that has some."""
    read: Any = importlib.import_module("sbon_node.experiments.coordinates.rtt_matrix")
    for path in data:
        if told := read.timeouts_text(read.timeouts_in(path)):
            err().print(f"{path}: {told}", markup=False)


def run_experiment(
    module: str,
    drawing: str,
    out: Path | None,
    json_: bool,
    options: dict[str, Any],
    pictures: str = "harness.placement_pictures",
) -> None:
    """Runs it on the networks that ``options`` name, draws by ``drawing`` of the module ``pictures``, and prints the table."""
    experiment: Any = importlib.import_module(f"sbon_node.experiments.{module}")
    tell_timeouts(options["data"])
    with err().status("placing") as status:
        topologies = options.pop("topology")
        result, trials = experiment.run(options.pop("data"), topologies, told=status.update, **options)
        if out is not None:
            status.update("drawing")
            getattr(importlib.import_module(f"sbon_node.experiments.{pictures}"), drawing)(result, trials, out)
    if json_:
        print_json(result)
        return
    columns = list(result["rows"][0])
    print_table(
        headings(columns), [["" if row[c] is None else row[c] for c in columns] for row in result["rows"]], title=result["name"]
    )
    if out is not None:
        say(f"pictures: {out}")
