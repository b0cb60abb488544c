"""``sbon experiment live``: what each strategy's placements cost on the wire of a local cluster."""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from sbon_cli.cities import WideArea, load_wide_area
from sbon_cli.local_cluster import SHORT_LIVED, LocalCluster
from sbon_cli.output import as_json, err, json_option, print_json, print_table, reports_errors, say
from sbon_node.control.report import QueryInfo, SinkSpec, Submission
from sbon_node.errors import SbonError
from sbon_node.placement.registry import STRATEGIES

AT_A_TIME = 3
ASKS_EVERY_S = 0.5
PATIENCE_S = 300.0
"""How long a query may take to finish."""
SETTLE_S = 90.0
"""In which coordinates find their places."""
EVERY = "all"
"""In place of the names of queries."""
IN_EXPERIMENTS_ALONE = ("ip-multicast",)
"""Needs routes, which no daemon knows."""


@click.command(name="live")
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Round-trip times, as for cluster up --latency: the first nodes of it.",
)
@click.option("--nodes", type=click.IntRange(4, 60), default=12, show_default=True)
@click.option("--strategy", "strategies", multiple=True, metavar="NAME", help="Repeated; all but ip-multicast by default.")
@click.option("--query", "-q", "queries", multiple=True, metavar="NAME", help="Of the suite, repeated, or all; six by default.")
@json_option
@reports_errors
def live(data: Path, nodes: int, strategies: tuple[str, ...], queries: tuple[str, ...], json_: bool) -> None:
    """Queries of the suite on real nodes in an emulated area: bytes counted x latency, beside what was predicted and the exact
    optimum. Rows are compared with DuckDB's. Streams are born at three of the nodes and consumed at another.

    A line for each strategy: of_optimum is over the queries that ran under all; --json has a line for each query as well. Takes
    about four minutes and ten seconds for each query and strategy.
    """
    room: Any = importlib.import_module("sbon_node.experiments.live_placements")
    suite: Any = importlib.import_module("sbon_node.experiments.suite.cases")
    unknown = [name for name in strategies if name not in STRATEGIES]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(STRATEGIES)}", param_hint="--strategy")
    cases = suite.cases() if queries == (EVERY,) else suite.chosen(queries or room.QUERIES)
    wanted = strategies or tuple(name for name in STRATEGIES if name not in IN_EXPERIMENTS_ALONE)
    area = load_wide_area(data).chosen(nodes)
    with err().status("starting") as status, tempfile.TemporaryDirectory(prefix="sbon-live-") as folder:
        rows = _run(room, area, cases, wanted, Path(folder), status.update)
    lines = room.summary(rows)
    if as_json(json_):
        print_json({"name": "live", "rows": lines, "queries": rows})
        return
    print_table(list(lines[0]), [list(line.values()) for line in lines], title="live")
    for row in rows:
        if row["failed"]:
            say(f"{row['strategy']}, {row['query']}: {row['failed']}")


def _run(
    room: Any, area: WideArea, cases: Sequence[Any], strategies: Sequence[str], folder: Path, told: Any
) -> list[dict[str, Any]]:
    written: Any = importlib.import_module("sbon_node.experiments.suite.streams")
    answers: Any = importlib.import_module("sbon_node.experiments.suite.reference")
    streams = written.write_streams(folder / "input")
    reference = answers.Reference(streams)
    expected = {case.name: reference.answer(case) for case in cases}
    born = dict(zip(written.SITES, area.names[:: len(area.names) // 4], strict=False))
    with LocalCluster(area.names, area, overrides={**SHORT_LIVED, "engine.max_operators": 30}) as cluster:
        client = cluster.nodes[0].client
        for stream in streams.values():
            client.create_stream(stream.declaration)
            for source in stream.sources(born):
                client.attach_source(source)
        told("coordinates settle")
        time.sleep(SETTLE_S)
        runs = [(case, strategy) for case in cases for strategy in strategies]
        rows = []
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for (case, strategy), row in zip(runs, pool.map(partial(_row, room, cluster, area, folder), runs), strict=True):
                told(f"{case.name} by {strategy}")
                path = folder / f"{case.name}-{strategy}.parquet"
                most = len(expected[case.name]) + 1
                wrong = 0 if row["failed"] else len(answers.differences(answers.stored(path), expected[case.name], most=most))
                rows.append(row | {"wrong": wrong})
    return rows


def _row(room: Any, cluster: LocalCluster, area: WideArea, folder: Path, asked: tuple[Any, str]) -> dict[str, Any]:
    case, strategy = asked
    row: dict[str, Any] = {"query": case.name, "strategy": strategy, "failed": ""}
    path = folder / f"{case.name}-{strategy}.parquet"
    client = cluster.nodes[0].client
    sink = SinkSpec(kind="file", options={"path": str(path), "format": "parquet"})
    try:
        info = client.submitted(Submission(sql=case.sql, strategy=strategy, consumer=area.names[-1], sink=sink))
        info = _finished(client, info)
    except SbonError as error:
        return row | {"failed": str(error)}
    row |= room.judged(info, room.Area(*area))
    return row


def _finished(client: Any, info: QueryInfo) -> QueryInfo:
    deadline = time.monotonic() + PATIENCE_S
    while info.state in ("placing", "running"):
        time.sleep(ASKS_EVERY_S)
        if time.monotonic() > deadline:
            client.stop_query(info.id)
            raise SbonError("timeout", f"{info.id} has not finished after {PATIENCE_S:g} s")
        with suppress(SbonError):  # an answer that was late is asked for again
            info = client.query(info.id)
    if info.state != "finished":
        raise SbonError("query-over", f"{info.id} {info.state}: {info.reason}")
    return info
