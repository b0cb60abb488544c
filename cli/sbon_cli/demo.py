"""``sbon demo``: real streams, six cities, one query; what it cost the network; and a check of every row."""

from __future__ import annotations

import importlib
import signal
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from sbon_cli.cities import cities
from sbon_cli.demo_show import Show
from sbon_cli.follow import Follower
from sbon_cli.local_cluster import LocalCluster
from sbon_cli.output import EXIT_REFUSED, as_json, json_option, print_json, reports_errors
from sbon_cli.settings_flags import strategy_option
from sbon_node.control.report import Accepted, Bill, QueryInfo, Rows, Submission
from sbon_node.errors import SbonError
from sbon_node.experiments import nycflights
from sbon_node.experiments.nycflights import AIRPORTS, FLIGHTS, write_flights
from sbon_node.query.catalog import SourceDeclaration

SOURCES = {"EWR": "new-york", "JFK": "london", "LGA": "sao-paulo"}
CONSUMER = "singapore"
YEAR_S = 365 * 86_400
SQL = """\
SELECT ts, carrier, flight, origin, dest, dep_delay,
       CAST(floor(distance * 60 / air_time) AS INT) AS mph,
       dep_delay - arr_delay AS made_up
FROM flights
WHERE dep_delay >= 180 AND air_time IS NOT NULL AND arr_delay IS NOT NULL"""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@strategy_option
@click.option("--seconds", type=click.FloatRange(1, 3600), default=40.0, show_default=True, help="How long the year takes.")
@json_option
@reports_errors
def demo(strategy: str, seconds: float, json_: bool) -> None:
    """Six nodes in six cities, the flights of 2013 at three of them, a query from a fourth.

    Shows the plan, why each operator went where it is, rows as they arrive, and the bill: bytes x latency against shipping every
    stream whole. Checks every row against DuckDB. Everything it starts, it stops. Where the figures
    go to stdout as JSON, the rest goes to stderr.
    """
    nycflights.archive()
    oracle()
    for signum in ENDING:
        signal.signal(signum, _interrupt)
    json_ = as_json(json_)
    show = Show(Console(stderr=json_, highlight=False), CONSUMER)
    with LocalCluster(list(cities().names), latency="cities") as cluster:
        try:
            rows, wrong, bill = run(cluster, show, strategy, seconds)
        finally:
            _deaf()
            show.stopping(len(cluster.nodes))
    if json_:
        print_json({"name": "demo", "rows": [{"strategy": strategy, "rows": rows, "wrong": wrong, **figures(bill)}]})
    sys.exit(EXIT_REFUSED if wrong else 0)


def run(cluster: LocalCluster, show: Show, strategy: str, seconds: float) -> tuple[int, int, Bill]:
    """How many rows came, how many of them or of those that did not are wrong, and the bill."""
    show.members(cluster, {node: airport for airport, node in SOURCES.items()})
    files = write_flights(cluster.folder / "input")
    declare(cluster, files, YEAR_S / seconds)
    info = submit(cluster, show, strategy)
    show.plan(info)
    rows = follow(cluster, show, info)
    bill = cluster[CONSUMER].client.bill(info.id)
    show.bill(bill)
    wrong = compare(rows, files)
    show.verdict(len(rows), wrong)
    return len(rows), wrong, bill


def _interrupt(signum: int, frame: object) -> None:
    """One is enough: what was started is being stopped from here on."""
    _deaf()
    raise KeyboardInterrupt


def _deaf() -> None:
    """To a function: of a signal that is pending when it becomes ``SIG_IGN``, Python complains on stderr."""
    for signum in ENDING:
        signal.signal(signum, lambda signum, frame: None)


def declare(cluster: LocalCluster, files: dict[str, Path], replay: float) -> None:
    """The stream, once; and each airport's source at the node where it is born."""
    client = cluster.nodes[0].client
    client.create_stream(FLIGHTS)
    for airport in AIRPORTS:
        options = {"path": str(files[airport]), "replay": replay}
        rows_s = sum(1 for _ in files[airport].open("rb")) * replay / YEAR_S
        client.attach_source(
            SourceDeclaration(
                stream="flights",
                name=airport.lower(),
                node=SOURCES[airport],
                connector="file",
                options=options,
                rows_s=rows_s,
                row_bytes=64,
            )
        )


def submit(cluster: LocalCluster, show: Show, strategy: str) -> QueryInfo:
    started = time.monotonic()
    with show.waiting("submitting") as waiting:
        for event in cluster[CONSUMER].client.submit(Submission(sql=SQL, name="late", strategy=strategy)):
            passed_s = time.monotonic() - started
            if isinstance(event, Accepted):
                show.line(f"accepted after {passed_s:.0f} s")
                return event.query
            waiting(event.message)
            show.step(passed_s, event)
    raise SbonError("node-unreachable", f"{CONSUMER} ended the connection before the query was accepted")


def follow(cluster: LocalCluster, show: Show, info: QueryInfo) -> list[tuple[Any, ...]]:
    """All rows, to the end of the year."""
    rows: list[tuple[Any, ...]] = []
    with show.waiting("waiting for rows") as waiting:

        def take(frame: Rows) -> None:
            rows.extend(frame.rows)
            show.rows(frame)
            if frame.rows:
                waiting(f"{len(rows):,} rows, {str(frame.rows[-1][0])[:10]}, {frame.delay_ms / 1000:.1f} s from source to here")

        end = Follower(cluster[CONSUMER].client, info.id, take).run()
    if end.state != "finished":
        raise SbonError("query-over", f"{info.id} {end.state} after {len(rows):,} rows: {end.reason}")
    return rows


def oracle() -> Any:
    """DuckDB; raises ``input-missing`` where it is not installed: only the demo and the tests need it."""
    try:
        return importlib.import_module("duckdb")
    except ImportError as error:
        raise SbonError(
            "input-missing", "the package duckdb, which checks the demo's rows, is not installed", hint=nycflights.INSTALL
        ) from error


def compare(rows: list[tuple[Any, ...]], files: dict[str, Path]) -> int:
    """How many rows differ from DuckDB's answer on the same files, each row counted as often as it occurs."""
    types = {c.name: {"string": "VARCHAR", "int": "INTEGER", "timestamp": "TIMESTAMP"}[c.type] for c in FLIGHTS.schema}
    database = oracle().connect()
    database.register("flights", database.read_csv([str(f) for f in files.values()], dtype=types, header=True))
    expected = Counter(database.sql(SQL).fetchall())
    found = Counter((_utc(row[0]), *row[1:]) for row in rows)
    return (expected - found).total() + (found - expected).total()


def _utc(instant: str) -> datetime:
    """As DuckDB gives it."""
    return datetime.fromisoformat(instant).astimezone(UTC).replace(tzinfo=None)


def figures(bill: Bill) -> dict[str, float]:
    return {
        "byte_ms": bill.byte_ms,
        "whole_byte_ms": bill.whole_byte_ms,
        "ratio": bill.byte_ms / bill.whole_byte_ms if bill.whole_byte_ms else 0.0,
    }
