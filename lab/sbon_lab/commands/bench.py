"""``sbon bench``: measurements of this machine."""

import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from sbon.local.wide_area import cities
from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.options.types import Choice, Number
from sbon_cli.terminal.interrupts import leave_on_signals
from sbon_cli.terminal.output import EXIT_REFUSED, err, json_option, print_json, print_table, reports_errors, say
from sbon_lab.commands.arriving import Row, arriving, show_rows
from sbon_lab.commands.bench_memory import memory
from sbon_lab.commands.bench_migration import KINDS, migration
from sbon_lab.commands.bench_path import path
from sbon_lab.commands.bench_query import query
from sbon_lab.commands.options import out_option, repeated, seed_option, suite_queries_option
from sbon_protocol.api.durability import HOT, REPLICATED, Durability
from sbon_protocol.api.strategies import AUTO, DEFAULT_STRATEGY, STRATEGY_NAMES

# -- ``sbon bench recovery``: hosts of replicated operators that are lost with their disks ----------------------------


@click.command("recovery")
@repeated("--kind", "kinds", click.Choice(KINDS), "A kind of query, repeated; all by default.", metavar="NAME")
@click.option("--losses", type=click.IntRange(1, 1000), default=5, show_default=True, help="Hosts lost by each query.")
@click.option(
    "--durability", type=click.Choice((REPLICATED, HOT)), default=REPLICATED, show_default=True, help="That of the queries."
)
@json_option
@reports_errors
def recovery(kinds: tuple[str, ...], losses: int, durability: Durability, json_: bool) -> None:
    """Hosts that are lost with their disks: the time until rows come again, of which detection is a part.

    Queries over growing files run on a local cluster of four nodes with this durability. All processes of the host of
    each query's last operator are killed, and its data directory is deleted, again and again. All rows are compared with
    DuckDB's. Ends with code 1 if any is wrong.

    Takes some minutes a query; run it on a machine that does nothing else.
    """
    show = partial(show_rows, "recovery", json_=json_)
    with tempfile.TemporaryDirectory(prefix="sbon-recovery-") as folder, arriving("starting", show) as so_far:
        module: Any = importlib.import_module("sbon_lab.migration.losses")
        rows = module.run(Path(folder), kinds or KINDS, losses, so_far.notify, so_far.found, durability)
    show(rows)
    if any(row["wrong"] or row["repeated_frames"] for row in rows):
        sys.exit(EXIT_REFUSED)


# ---------------------------------------------------------------------------------------------------------------------

# -- ``sbon bench schedules``: random schedules of faults, in virtual time --------------------------------------------

SUMMED = ("first", "seeds", "failed", "stuck", "checks", "events", "seconds", "cpu_s", "processes")


@click.command("schedules")
@click.option("--first", type=click.IntRange(0, 10**12), default=0, show_default=True, help="Seed of the first schedule.")
@click.option("--count", type=click.IntRange(1, 10**7), default=1000, show_default=True, help="Number of schedules.")
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=lambda: os.cpu_count() or 1,
    show_default="one a core",
    help="Number of processes.",
)
@click.option("--seconds", type=click.FloatRange(0.1, 1e6), help="Begin no schedule after so many seconds.")
@json_option
@reports_errors
def schedules(first: int, count: int, processes: int, seconds: float | None, json_: bool) -> None:
    """Random schedules of faults against whole daemons in virtual time, with every check on.

    Each schedule runs queries and draws faults from its seed. A failing one is shrunk to the fewest faults that still
    fail; both are shown as commands that run them again. Exits 1 if any schedule failed, or left a query without an end.
    """
    bench: Any = importlib.import_module("sbon_lab.bench.schedules")
    show = partial(_show, json_=json_)
    with arriving("schedules", show) as so_far:
        result = bench.run(first, count, processes=processes, limit_s=seconds, notify=so_far.notify, found=so_far.rows.append)
    show(result["rows"])
    if any(row["failed"] or row["stuck"] for row in result["rows"]):
        sys.exit(EXIT_REFUSED)


def _show(rows: Sequence[Row], *, json_: bool) -> None:
    for failed in rows[0]["failures"]:
        stuck = "stuck" if failed["stuck"] else "failed"
        err().print(escape(f"seed {failed['seed']} {stuck}: {failed['reason']}"))
        err().print(escape(f"  replay: {failed['replay']}\n  shrunk: {failed['shrunk']}"), soft_wrap=True)
    if json_:
        print_json({"name": "schedules", "rows": rows})
        return
    print_table(SUMMED, [[row[column] for column in SUMMED] for row in rows], title="schedules")
    print_table(("fault", "times"), list(rows[0]["struck"].items()), title="faults that struck")


# ---------------------------------------------------------------------------------------------------------------------

# -- ``sbon bench durability``: the cost of replicated operators beside local ones ------------------------------------

DURABILITIES = ("local", "replicated", "hot")


@click.command("durability")
@repeated("--kind", "kinds", click.Choice(KINDS), "A kind of query, repeated; filter and tumbling by default.", metavar="NAME")
@repeated("--durability", "durabilities", click.Choice(DURABILITIES), "A durability, repeated; all by default.", metavar="NAME")
@click.option("--turns", type=click.IntRange(1, 100), default=2, show_default=True, help="Runs of each, by turns.")
@click.option("--seconds", type=click.FloatRange(1, 3600), default=20.0, show_default=True, help="Time in which rows count.")
@click.option("--rows", type=click.IntRange(1000), default=500_000, show_default=True, help="Length of the file.")
@click.option("--rtt-ms", type=click.FloatRange(0, 1000), default=20.0, show_default=True, help="Emulated round-trip time.")
@json_option
@reports_errors
def durability(
    kinds: tuple[str, ...],
    durabilities: tuple[Durability, ...],
    turns: int,
    seconds: float,
    rows: int,
    rtt_ms: float,
    json_: bool,
) -> None:
    """The cost of durability: delay of rows, rows a second, bytes sent and processor time, beside local operators.

    Queries run on a local cluster of four nodes. Delays are those of rows of growing files; rows a second those of a whole
    query over a file that is read as fast as may be. Bytes and processor time are of all nodes, for an input row of the growing
    files. All rows are compared with DuckDB's. Ends with code 1 if any is wrong.

    Takes about two minutes for each kind, durability and turn; run it on a machine that does nothing else.
    """
    show, key = partial(show_rows, "durability", json_=json_), ("kind", "durability")
    with tempfile.TemporaryDirectory(prefix="sbon-durability-") as folder, arriving("starting", show, key) as so_far:
        module: Any = importlib.import_module("sbon_lab.migration.durabilities")
        plan = module.Plan(kinds or ("filter", "tumbling"), durabilities or DURABILITIES, turns, seconds, rows, rtt_ms)
        found = module.run(Path(folder), plan, so_far.notify, so_far.found)
    show(found)
    if any(row["wrong"] for row in found):
        sys.exit(EXIT_REFUSED)


# ---------------------------------------------------------------------------------------------------------------------

# -- ``sbon bench chaos``: six nodes whose processes, disks and links fail under running queries ----------------------

BAD = ("failed", "wrong", "lost", "doubled", "stuck")
"""Counts that must be 0."""


@click.command("chaos")
@click.option("--minutes", type=Number(0.2, 600), default=10.0, show_default=True, help="How long faults strike.")
@seed_option("faults and queries")
@out_option
@json_option
@reports_errors
def chaos(minutes: float, seed: int, out: Path | None, json_: bool) -> None:
    """Faults of every kind under running queries, on six nodes of this machine with the latencies of six cities.

    Processes die or stop, disks are lost or full, links are cut or slow, operators move, nodes leave and join. Every other query
    is replicated; disks are lost only where no query depends on them alone. All rows are compared with DuckDB's. The timeline is
    written to stderr while it runs, and a picture of it to --out. Ends with code 1 if a query fails or is stuck, or if a row is
    wrong, lost or doubled; then the logs and data of the nodes stay.

    Takes some minutes more than --minutes; needs 8 GB of memory.
    """
    console, folder = err(), Path(tempfile.mkdtemp(prefix="sbon-chaos-"))
    module: Any = importlib.import_module("sbon_lab.chaos.run")
    is_right = False
    try:
        result = module.run(folder, 60 * minutes, seed, lambda line: console.print(escape(line)))
        is_right = not any(result["rows"][0][name] for name in BAD)
    finally:
        if is_right:
            shutil.rmtree(folder)
        else:
            console.print(f"logs and data of the nodes are in {escape(str(folder))}")
    if out is not None:
        importlib.import_module("sbon_lab.chaos.picture").draw(result, out)
    (row,) = result["rows"]
    if json_:
        print_json(result)
    else:
        print_table(["", ""], list(row.items()), title="chaos")
    if not is_right:
        sys.exit(EXIT_REFUSED)


# ---------------------------------------------------------------------------------------------------------------------


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
    run: Any = importlib.import_module("sbon_lab.bench.engine").run
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
    run: Any = importlib.import_module("sbon_lab.bench.endurance").run
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
    run: Any = importlib.import_module("sbon_lab.bench.restarts").run
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
    run: Any = importlib.import_module("sbon_lab.bench.planning").run
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
    figures: Any = importlib.import_module("sbon_lab.bench.control")
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
    run: Any = importlib.import_module("sbon_lab.bench.readers").run
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
    type=Choice([AUTO, *STRATEGY_NAMES]),
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
    figures: Any = importlib.import_module("sbon_lab.bench.usage")

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
