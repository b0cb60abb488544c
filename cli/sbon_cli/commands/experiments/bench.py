"""``sbon bench``: measurements of this machine."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import Any

import click
from rich.markup import escape

from sbon.local.wide_area import cities
from sbon_cli.commands.experiments.arriving import Row, arriving, show_rows
from sbon_cli.commands.experiments.bench_chaos import chaos
from sbon_cli.commands.experiments.bench_durability import durability
from sbon_cli.commands.experiments.bench_memory import memory
from sbon_cli.commands.experiments.bench_migration import migration
from sbon_cli.commands.experiments.bench_path import path
from sbon_cli.commands.experiments.bench_query import query
from sbon_cli.commands.experiments.bench_recovery import recovery
from sbon_cli.commands.experiments.bench_schedules import schedules
from sbon_cli.commands.experiments.options import seed_option, suite_queries_option
from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.terminal.interrupts import leave_on_signals
from sbon_cli.terminal.output import EXIT_REFUSED, json_option, print_json, print_table, reports_errors, say
from sbon_node.model.strategies import AUTO, DEFAULT_STRATEGY, STRATEGY_NAMES


@click.group(cls=SuggestingGroup)
def bench() -> None:
    """Measures; prints a table, or JSON with units in the column names.

    Each row is a line on stderr as soon as it is there; a run that is interrupted prints those that it has.
    """
    leave_on_signals()


bench.add_command(chaos)
bench.add_command(memory)
bench.add_command(migration)
bench.add_command(path)
bench.add_command(query)
bench.add_command(durability)
bench.add_command(recovery)
bench.add_command(schedules)


@bench.command()
@click.option("--quick", is_flag=True, help="Few rows and a single turn: shows that it works, measures little.")
@seed_option("the rows, and of their arrival times")
@json_option
@reports_errors
def engine(quick: bool, seed: int, json_: bool) -> None:
    """The Spark engine with the overlay against bare Spark: start, latency, throughput, idle cost, memory.

    Takes about six minutes; run it on a machine that does nothing else.
    """
    run: Any = importlib.import_module("sbon_node.experiments.bench.engine").run
    show = partial(show_rows, "engine", json_=json_)
    with arriving("the classes' archive", show) as so_far:
        result = run(quick=quick, seed=seed, notify=so_far.notify, found=so_far.found)
    show(result["rows"])


@bench.command()
@click.option(
    "--queries", type=click.IntRange(4, 1_000_000), default=500, show_default=True, help="Number of queries, one after another."
)
@seed_option("the rows")
@json_option
@reports_errors
def endurance(queries: int, seed: int, json_: bool) -> None:
    """Short queries one after another on one engine: whether its threads, descriptors, heap and time a query grow.

    Compares the first hundred queries with the last, and ends with code 1 if any of these grew by more than 5 %. Takes about a
    second a query; run it on a machine that does nothing else.
    """
    run: Any = importlib.import_module("sbon_node.experiments.bench.endurance").run
    show = partial(show_rows, "endurance", json_=json_)
    with arriving("the classes' archive", show) as so_far:
        result = run(queries, seed=seed, notify=so_far.notify, found=so_far.found)
    show(result["rows"])
    if not all(row["within"] for row in result["rows"]):
        sys.exit(EXIT_REFUSED)


@bench.command()
@click.option("--operators", type=click.IntRange(1, 100), default=10, show_default=True, help="Number of operators.")
@click.option("--turns", type=click.IntRange(1, 1000), default=3, show_default=True, help="Number of kills, one after another.")
@seed_option("the rows")
@json_option
@reports_errors
def restarts(operators: int, turns: int, seed: int, json_: bool) -> None:
    """Filters with rows on one engine whose JVM is killed: seconds until the first, the median and the last run again.

    Takes a minute or two; run it on a machine that does nothing else.
    """
    run: Any = importlib.import_module("sbon_node.experiments.bench.restarts").run
    show = partial(show_rows, "restarts", json_=json_)
    with arriving("the classes' archive", show) as so_far:
        result = run(operators, turns=turns, seed=seed, notify=so_far.notify, found=so_far.found)
    show(result["rows"])


@bench.command()
@suite_queries_option("--queries", "names", "all by default")
@click.option("--turns", type=click.IntRange(1, 1000), default=3, show_default=True, help="Number of turns; the medians count.")
@json_option
@reports_errors
def planning(names: tuple[str, ...], turns: int, json_: bool) -> None:
    """Planning of each query of the suite, step by step, beside sqlglot's optimiser and Spark's: milliseconds.

    Takes some minutes; run it on a machine that does nothing else.
    """
    run: Any = importlib.import_module("sbon_node.experiments.bench.planning").run
    show = partial(show_rows, "planning", json_=json_)
    with arriving("planning", show) as so_far:
        result = run(names, turns=turns, found=so_far.found)
    show(result["rows"])


@bench.command()
@click.option("--queries", type=click.IntRange(1, 200), default=100, show_default=True, help="Number of queries of each kind.")
@seed_option("the simulated network and engine")
@json_option
@reports_errors
def control(queries: int, seed: int, json_: bool) -> None:
    """Cost of registers on three nodes: the time of a submission, and the traffic at rest.

    Whole nodes in six cities, in virtual time; another load of this machine changes nothing. Ends with code 1 if the cost is
    beyond its aim. Takes some minutes.
    """
    figures: Any = importlib.import_module("sbon_node.experiments.bench.control")
    show = partial(show_rows, "control", json_=json_)
    with arriving("the cluster", show) as so_far:
        result = figures.run(figures.Area(*cities()), queries=queries, seed=seed, notify=so_far.notify, found=so_far.found)
    show(result["rows"])
    if not all(row["within"] for row in result["rows"]):
        sys.exit(EXIT_REFUSED)


@bench.command()
@click.option("--frames", type=click.IntRange(1, 100_000), default=400, show_default=True, help="Number of frames of 64 KiB.")
@seed_option("the frames")
@json_option
@reports_errors
def readers(frames: int, seed: int, json_: bool) -> None:
    """Bytes over the network for 1, 2, 4 and 8 readers of one stream at a node, alone and with a shared connection.

    Real connections on this machine; another load of it changes little. Ends with code 1 if a reader got a wrong frame. Takes
    some seconds.
    """
    run: Any = importlib.import_module("sbon_node.experiments.bench.readers").run
    show = partial(show_rows, "readers", json_=json_)
    with arriving("the nodes", show) as so_far:
        result = run(frames, seed=seed, notify=so_far.notify, found=so_far.found)
    show(result["rows"])
    if any(row["wrong_frames"] for row in result["rows"]):
        sys.exit(EXIT_REFUSED)


@bench.command("usage")
@suite_queries_option("--queries", "names", "all by default but those that only Spark computes")
@click.option(
    "--strategy",
    type=click.Choice([AUTO, *STRATEGY_NAMES]),
    default=DEFAULT_STRATEGY,
    show_default=True,
    metavar="NAME",
    help="Strategy that places them.",
)
@seed_option("the simulated network and engine")
@json_option
@reports_errors
def query_usage(names: tuple[str, ...], strategy: str, seed: int, json_: bool) -> None:
    """Network usage of each query of the suite, against sending all rows to the consumer.

    Whole nodes in six cities, in virtual time; each result is compared with DuckDB's. Some seconds a query.
    """
    figures: Any = importlib.import_module("sbon_node.experiments.bench.usage")

    def show(rows: list[Row]) -> None:
        if json_:
            print_json({"name": "usage", "rows": rows})
            return
        columns = ["query", "operators", "rows", "wrong", "baseline_byte_ms", "usage", "divided"]
        print_table(columns, [[*(row[c] for c in columns[:5]), *_shares(row)] for row in rows], title="network usage")
        for row in rows:
            if row["failed"]:
                say(f"{row['query']}: {escape(row['failed'])}")
        say(figures.summary(rows))

    with arriving("writing the streams", show) as so_far:
        area, progress = figures.Area(*cities()), {"notify": so_far.notify, "found": so_far.found}
        result = figures.run(area, names, seed=seed, strategy=strategy, **progress)
    show(result["rows"])


def _shares(row: dict[str, Any]) -> tuple[str | None, ...]:
    return tuple(None if row[c] is None else f"{row[c]:.1%}" for c in ("ratio", "decomposed_ratio"))


def show_result(result: dict[str, Any], json_: bool) -> None:
    """``{"name": ..., "rows": [flat objects]}`` as JSON or as a table."""
    if json_:
        print_json(result)
        return
    show_rows(result["name"], result["rows"], json_=False)
