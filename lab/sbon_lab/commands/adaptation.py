"""``sbon experiment adaptation``: operators that move by themselves, in virtual time."""

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click

from sbon.local.wide_area import load_wide_area
from sbon_cli.terminal.output import err, json_option, reports_errors
from sbon_lab.commands.bench import show_result
from sbon_lab.commands.live_pairs import Plan, run_pairs
from sbon_lab.commands.options import out_option, seed_option
from sbon_lab.commands.worlds import run_worlds, world_options, worlds_options
from sbon_node.base.logging import output


@click.command()
@worlds_options(minutes=10.0)
@click.option(
    "--changes/--no-changes", default=True, show_default=True, help="Change latencies, rates, selectivities and load on the way."
)
@click.option("--traffic", is_flag=True, help="Run each world again without adaptation, to see the optimizers' traffic.")
@json_option
@reports_errors
def adaptation(json_: bool, **options: Any) -> None:
    """Local optimizers of whole daemons in virtual time, beside placements that never move and an oracle that moves for free.

    Usage is in bytes in transit, by the latencies and measured rates of each moment. Takes minutes for 20 nodes.
    """
    run_worlds("figures", options, json_)


@click.command("sbon-live")
@click.option(
    "--figure",
    "figures",
    type=click.Choice(["10", "11", "12"]),
    required=True,
    multiple=True,
    help="The figure of the paper; with --live it may be repeated.",
)
@world_options(minutes=10.0)
@click.option("--live", is_flag=True, help="Run real nodes with Spark in an emulated area, and not in virtual time.")
@click.option(
    "--adapt",
    type=click.Choice(["local", "full", "ants"]),
    default="local",
    show_default=True,
    help="With --live: adaptation of the queries that migrate; ants also place them.",
)
@click.option("--hosts", type=click.IntRange(2, 60), default=3, show_default=True, help="With --live: nodes that host operators.")
@click.option("--changes", type=click.IntRange(1, 8), default=1, show_default=True, help="With --live: nodes that change.")
@click.option(
    "--change",
    type=click.Choice(["latency", "load"]),
    default="latency",
    show_default=True,
    help="With --live: nodes become slow to reach, or busy.",
)
@seed_option("nodes, queries and network")
@out_option
@json_option
@reports_errors
def sbon_live(
    figures: tuple[str, ...],
    data: Path,
    nodes: int,
    queries: int,
    minutes: float,
    period_s: float,
    live: bool,
    adapt: str,
    hosts: int,
    changes: int,
    change: Literal["latency", "load"],
    seed: int,
    out: Path | None,
    json_: bool,
) -> None:
    """SBON's Figures 10 to 12: usage of queries that migrate, beside the same ones that do not.

    In virtual time Figures 10 and 11 show a single query after a change of latency, Figure 12 all queries.

    With --live each query runs twice on real nodes, and nodes that host operators become slow or busy. A line for each pair and
    change: usage of the migrating query / that of its twin before and from two periods after it, and rows that differ from
    DuckDB's.
    The figures themselves are written to --out. Each of the hosts needs a gigabyte for Spark.
    """
    output.silence()
    if live:
        plan = Plan(adapt, 60 * minutes, period_s, even_times(60 * minutes, changes), seed, change, ahead_s=60 + 60.0 * queries)
        show_result(_live([int(figure) for figure in figures], data, nodes, hosts, queries, plan, out), json_)
        return
    if len(figures) > 1:
        raise click.UsageError("--figure: one in virtual time; several are made of one run with --live")
    module: Any = importlib.import_module("sbon_lab.experiments.adaptation.paper_figures")
    with err().status("starting") as status:
        result = module.figure(
            int(figures[0]),
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


def even_times(seconds: float, count: int) -> tuple[float, ...]:
    """Return even times for changes; the first part is without one, and the last part as long as the others."""
    return tuple(seconds * number / (count + 1) for number in range(1, count + 1))


def _live(
    numbers: Sequence[int], data: Path, nodes: int, hosts: int, queries: int, plan: Plan, out: Path | None
) -> dict[str, Any]:
    module: Any = importlib.import_module("sbon_lab.experiments.live.pairs")
    figures: Any = importlib.import_module("sbon_lab.experiments.live.pair_figures")
    pictures: Any = importlib.import_module("sbon_lab.experiments.harness.pictures")
    if hosts <= len(plan.changes_s):
        raise click.UsageError(f"--hosts: {len(plan.changes_s) + 1} are needed for so many changes")
    if nodes < (needed := module.LEAST_ENDS + hosts):
        raise click.UsageError(f"--nodes: {needed} are needed with so many hosts")
    world = module.draw_pairs(module.Area(*load_wide_area(data)), nodes=nodes, hosts=hosts, pairs=queries, seed=plan.seed)
    with err().status("starting") as status, tempfile.TemporaryDirectory(prefix="sbon-pairs-") as folder:
        run = run_pairs(world, plan, Path(folder), status.update)
    for number in numbers if out is not None else ():
        rows, picture = figures.figure(number, run)
        pictures.draw([picture], {"name": f"sbon-figure{number}-live", "rows": rows}, {}, out)
    return {"name": f"queries with --adapt {plan.adapt} on real nodes", "rows": figures.by_pair(run, plan.period_s)}
