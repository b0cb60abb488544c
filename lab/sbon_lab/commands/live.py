"""``sbon experiment live``: measured costs of each strategy's placements on a local cluster."""

import importlib
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import click
import msgspec

from sbon import SbonError, states
from sbon.client import Client
from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.wide_area import WideArea, load_wide_area
from sbon.model import QueryInfo, SinkSpec, Submission
from sbon.states import LIVE
from sbon_cli.options.types import Choice
from sbon_cli.terminal.output import err, json_option, print_json, print_table, reports_errors, say
from sbon_lab.commands.options import area_file_option, repeated, suite_queries_option
from sbon_protocol.api import queries
from sbon_protocol.api.strategies import STRATEGY_NAMES

AT_A_TIME = 3
ASKS_EVERY_S = 0.5
PATIENCE_S = 300.0
"""Longest time in seconds for a query to finish."""
SETTLE_S = 90.0
"""Seconds in which coordinates settle."""
FRESH_S = 10.0
"""For how long the nodes believe a measured pair, and the pause between two placements: longer than one takes."""
EVERY = "all"
"""Value in place of the names of queries."""
SETTINGS = {**SHORT_LIVED, "engine.max_operators": 30, "directory.fresh_s": FRESH_S}
IN_EXPERIMENTS_ALONE = ("ip-multicast",)
"""Strategies that need routes, which no daemon knows."""


@click.command(name="live")
@area_file_option
@click.option("--nodes", type=click.IntRange(4, 60), default=12, show_default=True)
@repeated(
    "--strategy",
    "strategies",
    Choice(STRATEGY_NAMES),
    "A strategy, repeated; all but ip-multicast by default.",
    metavar="NAME",
)
@suite_queries_option("--query", "queries", "all for every query, six by default")
@json_option
@reports_errors
def live(data: Path, nodes: int, strategies: tuple[str, ...], queries: tuple[str, ...], json_: bool) -> None:
    """Measured costs of each strategy's placements on real nodes in an emulated area: bytes x latency.

    The prediction and the exact optimum stand beside these. Rows are compared with DuckDB's. Three of the nodes have sources,
    another is the consumer. One node places the queries, one at a time, and forgets its measurements before the next, so that
    strategies share none.

    A line for each strategy: of_optimum is over the queries that ran under all; --json has a line for each query as well. Takes
    about four minutes and fifteen seconds for each query and strategy.
    """
    experiment: Any = importlib.import_module("sbon_lab.experiments.live.placements")
    suite: Any = importlib.import_module("sbon_lab.suite.cases")
    cases = suite.cases() if EVERY in queries else suite.chosen(queries or experiment.QUERIES, where="--query")
    chosen = strategies or tuple(name for name in STRATEGY_NAMES if name not in IN_EXPERIMENTS_ALONE)
    area = load_wide_area(data).chosen(nodes, "--data")
    with err().status("starting") as status, tempfile.TemporaryDirectory(prefix="sbon-live-") as folder:
        rows = _run(experiment, area, cases, chosen, Path(folder), status.update)
    lines = experiment.summary(rows)
    if json_:
        print_json({"name": "live", "rows": lines, "queries": rows})
        return
    print_table(list(lines[0]), [list(line.values()) for line in lines], title="live")
    for row in rows:
        if row["failed"]:
            say(f"{row['strategy']}, {row['query']}: {row['failed']}")


def _run(
    experiment: Any, area: WideArea, cases: Sequence[Any], strategies: Sequence[str], folder: Path, notify: Any
) -> list[dict[str, Any]]:
    written: Any = importlib.import_module("sbon_lab.suite.streams")
    answers: Any = importlib.import_module("sbon_lab.suite.reference")
    streams = written.write_streams(folder / "input")
    reference = answers.Reference(streams)
    expected = {case.name: reference.answer(case) for case in cases}
    born = dict(zip(written.SITES, area.names[:: len(area.names) // 4], strict=False))
    with LocalCluster(area.names, area, overrides=SETTINGS) as cluster:
        client = cluster.nodes[0].client
        for stream in streams.values():
            client.create_stream(stream.declaration)
            for source in stream.sources(born):
                client.attach_source(source)
        notify("coordinates settle")
        time.sleep(SETTLE_S)
        runs = [(case, strategy) for case in cases for strategy in strategies]
        row_of, rows = partial(_row, experiment, cluster, area, folder, Turns()), []
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for (case, strategy), row in zip(runs, pool.map(row_of, runs), strict=True):
                notify(f"{case.name} by {strategy}")
                path = folder / f"{case.name}-{strategy}.parquet"
                most = len(expected[case.name]) + 1
                wrong = 0 if row["failed"] else len(answers.differences(answers.stored(path), expected[case.name], most=most))
                rows.append(row | {"wrong": wrong})
    return rows


class Turns:
    """Lock for one placement at a time, each ``FRESH_S`` after the last, so that strategies share no measurements."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep, self._turn = sleep, Lock()

    def submitted(self, client: Client, submission: Submission) -> QueryInfo:
        with self._turn:
            self._sleep(FRESH_S)
            return client.submitted(submission)


def _row(
    experiment: Any, cluster: LocalCluster, area: WideArea, folder: Path, turns: Turns, turn: tuple[Any, str]
) -> dict[str, Any]:
    case, strategy = turn
    row: dict[str, Any] = {"query": case.name, "strategy": strategy, "failed": ""}
    path = folder / f"{case.name}-{strategy}.parquet"
    client = cluster.nodes[0].client
    sink = SinkSpec(kind="file", options={"path": str(path), "format": "parquet"})
    try:
        submission = Submission(sql=case.sql, strategy=strategy, consumer=area.names[-1], sink=sink, reuse="never")
        info = turns.submitted(client, submission)
        info = _finished(client, info)
    except SbonError as error:
        return row | {"failed": str(error)}
    row |= experiment.judged(msgspec.convert(info, queries.QueryInfo, from_attributes=True), experiment.Area(*area))
    return row


def _finished(client: Client, info: QueryInfo) -> QueryInfo:
    deadline = time.monotonic() + PATIENCE_S
    while info.state in LIVE:
        time.sleep(ASKS_EVERY_S)
        if time.monotonic() > deadline:
            client.stop_query(info.id)
            raise SbonError("timeout", f"{info.id} has not finished after {PATIENCE_S:g} s")
        with suppress(SbonError):  # an answer that was late is asked for again
            info = client.query(info.id)
    if info.state != states.FINISHED:
        raise SbonError("query-over", f"{info.id} {info.state}: {info.reason}")
    return info
