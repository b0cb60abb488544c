"""``sbon bench path``: whole queries on a local cluster of two nodes, against bare Spark over the same files."""

import importlib
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import msgspec

from sbon import SbonError, states
from sbon.client import Client
from sbon.local.cluster import LocalCluster
from sbon.model import QueryInfo, SinkSpec, Submission
from sbon.states import LIVE
from sbon_cli.terminal.output import json_option, reports_errors
from sbon_lab.commands.arriving import Row, arriving, show_rows
from sbon_lab.commands.bench_files import streams_over_files
from sbon_lab.commands.options import repeated, seed_option
from sbon_protocol.api import queries

CASES = ("filter", "aggregate", "aggregate-many-keys", "join")
FORMATS = ("csv", "parquet")
ROWS, QUICK_ROWS = 5_000_000, 500_000
QUICK_CASES, QUICK_FORMATS = ("filter", "aggregate"), ("csv",)
WARM_UP_ROWS = 100_000
ASKS_EVERY_S = 0.05
PATIENCE_S = 900.0
"""Longest time in seconds for a query to finish."""
RESULTS = Path("docs/results")
"""Stored results, in a checkout: ``path.json``, and ``path-quick.json`` for quick runs, whose start-up weighs more."""


@click.command()
@click.option("--rows", type=click.IntRange(10_000, 1_000_000_000), help=f"Input rows of both nodes; {ROWS:,} by default.")
@repeated("--case", "cases", click.Choice(CASES), "A query, repeated; all by default.", metavar="NAME")
@repeated("--format", "formats", click.Choice(FORMATS), "A format of the files, repeated; both by default.", metavar="NAME")
@click.option(
    "--quick", is_flag=True, help=f"{QUICK_ROWS:,} rows of CSV, a filter and an aggregate: a minute. Prints stored ratios beside."
)
@seed_option("the rows")
@json_option
@reports_errors
def path(rows: int | None, cases: tuple[str, ...], formats: tuple[str, ...], quick: bool, seed: int, json_: bool) -> None:
    """Whole queries against bare Spark: files at two nodes, through sources, links and Spark, to a file.

    Bare Spark reads the same files in one job on the same cores, in turn with ours, and both outputs are compared. Each side
    first runs the same query over a few rows. CPU is by kind of process: daemons, engine hosts, JVMs, Python for Spark.

    Takes some ten minutes; run it on a machine that does nothing else.
    """
    cases = cases or (QUICK_CASES if quick else CASES)
    formats = formats or (QUICK_FORMATS if quick else FORMATS)
    count = rows or (QUICK_ROWS if quick else ROWS)

    def show(found: list[Row]) -> None:
        figures: Any = importlib.import_module("sbon_lab.bench.path.figures")
        stored = RESULTS / ("path-quick.json" if quick else "path.json")
        show_rows("path", found if json_ else figures.beside(found, stored), json_=json_)

    with tempfile.TemporaryDirectory(prefix="sbon-path-") as folder, arriving("starting", show) as so_far:
        so_far.take(run(Path(folder), cases, formats, count, seed=seed, notify=so_far.notify))
    show(so_far.rows)


def run(
    folder: Path, cases: Sequence[str], formats: Sequence[str], rows: int, *, seed: int, notify: Callable[[str], None]
) -> Generator[Row, None, None]:
    """Yield a row for each case and format. Raise :class:`SbonError` of a query that does not finish."""
    written: Any = importlib.import_module("sbon_lab.bench.path.bare")
    spark: Any = importlib.import_module("sbon_lab.bench.path.bare")
    with ExitStack() as stack:
        bare = stack.enter_context(spark.BareSpark(folder / "bare"))
        cluster = stack.enter_context(LocalCluster(written.NODES))
        for kind in formats:
            notify(f"writing {kind}")
            warm, inputs = (written.Inputs(folder / f"{kind}-{name}", kind) for name in ("warm", "whole"))
            warm.write(min(rows, WARM_UP_ROWS), seed)
            inputs.write(rows, seed)
            for name in cases:
                measurement = Measurement(folder, cluster, bare, name, kind)
                notify(f"{name}, {kind}: a few rows first")
                measurement.row("warm", warm, min(rows, WARM_UP_ROWS))
                notify(f"{name}, {kind}")
                yield measurement.row("whole", inputs, rows)


class Measurement:
    """A case over a format on both sides."""

    def __init__(self, folder: Path, cluster: LocalCluster, bare: Any, case: str, kind: str) -> None:
        self._folder, self._cluster, self._bare, self._kind = folder, cluster, bare, kind
        self._case: Any = importlib.import_module("sbon_lab.bench.path.cases").CASES[case]
        self._figures: Any = importlib.import_module("sbon_lab.bench.path.figures")
        self._costs: Any = importlib.import_module("sbon_lab.bench.path.costs")

    def row(self, name: str, inputs: Any, rows: int) -> dict[str, Any]:
        run_name = f"{self._case.name}-{self._kind}-{name}".replace("-", "_")
        ours_to, bare_to = (self._folder / f"{run_name}-{side}.parquet" for side in ("ours", "bare"))
        ours, info = self._ours(run_name, inputs, ours_to)
        with self._costs.Costs([self._bare.pid], [self._folder / "bare"]) as costs:
            began_s = time.monotonic()
            end = self._bare.run(self._case, self._kind, inputs, bare_to)
            bare = self._figures.Run(time.monotonic() - began_s, costs)
        done = msgspec.convert(info, queries.QueryInfo, from_attributes=True)
        row: dict[str, Any] = self._figures.row_of(self._case, self._kind, rows, ours, done, bare, end)
        rows_out, wrong = self._figures.wrong_rows(ours_to, bare_to)
        return row | {"rows_out": rows_out, "wrong": wrong}

    def _ours(self, run_name: str, inputs: Any, target: Path) -> tuple[Any, QueryInfo]:
        """Run the query over streams of its own."""
        nodes, client = self._cluster.nodes, self._cluster.nodes[0].client
        streams = [stream.name for stream in self._case.streams]
        with streams_over_files(self._cluster, inputs, run_name, streams) as names:
            sink = SinkSpec(kind="file", options={"path": str(target), "format": "parquet"})
            submission = Submission(sql=self._case.sql.format(**names), consumer=nodes[0].name, sink=sink)
            with self._costs.Costs([node.pid for node in nodes], [node.data_dir for node in nodes]) as costs:
                began_s = time.monotonic()
                info = finished(client, client.submitted(submission))
                seconds = time.monotonic() - began_s
        return self._figures.Run(seconds, costs), info


def finished(client: Client, info: QueryInfo) -> QueryInfo:
    """Return the query once it has finished. Raise :class:`SbonError` if it ends otherwise, or not in time."""
    deadline = time.monotonic() + PATIENCE_S
    while info.state in LIVE:
        time.sleep(ASKS_EVERY_S)
        if time.monotonic() > deadline:
            client.stop_query(info.id)
            raise SbonError("timeout", f"{info.id} has not finished after {PATIENCE_S:g} s")
        info = client.query(info.id)
    if info.state != states.FINISHED:
        raise SbonError("query-over", f"{info.id} {info.state}: {info.reason}")
    return info
