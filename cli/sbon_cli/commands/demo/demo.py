"""``sbon demo``: three queries over real streams in six cities, with their network usage and a check of every row."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
from rich.console import Console

from sbon import SbonError, states
from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.wide_area import cities
from sbon.model import Accepted, QueryInfo, QueryUsage, Rows, SourceDeclaration, StreamDeclaration, Submission
from sbon_cli.commands.demo.queries import QUERIES, DemoQuery
from sbon_cli.commands.demo.show import Show
from sbon_cli.commands.queries.follow import Follower
from sbon_cli.commands.queries.query_flags import strategy_option
from sbon_cli.options.types import Number
from sbon_cli.terminal.output import EXIT_REFUSED, json_option, print_json, reports_errors, rows_text
from sbon_node import extras
from sbon_node.experiments.suite import nycflights
from sbon_node.experiments.suite.nycflights import AIRPORTS, FLIGHTS, WEATHER, flight_rows, weather_rows, write_airports

SOURCES = {"EWR": "new-york", "JFK": "london", "LGA": "sao-paulo"}
CONSUMER = "singapore"
DAYS = 365
PIPE_WIDTH = 120
"""Columns of the output where it is no terminal: no address is long enough to break a line of a table."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Result(NamedTuple):
    """Result of a query: its rows, the number of wrong or missing rows, and its network usage."""

    query: DemoQuery
    rows: int
    wrong: int
    query_usage: QueryUsage

    def figures(self, strategy: str) -> dict[str, Any]:
        query_usage = self.query_usage
        ratio = query_usage.byte_ms / query_usage.baseline_byte_ms if query_usage.baseline_byte_ms else 0.0
        return {
            "query": self.query.name,
            "strategy": strategy,
            "rows": self.rows,
            "wrong": self.wrong,
            "byte_ms": query_usage.byte_ms,
            "baseline_byte_ms": query_usage.baseline_byte_ms,
            "ratio": ratio,
        }


class Input(NamedTuple):
    """The rows of a stream, a file for each airport."""

    declaration: StreamDeclaration
    files: Mapping[str, Path]
    rows: Mapping[str, int]


@click.command()
@strategy_option
@click.option("--seconds", type=Number(1, 3600), default=20.0, show_default=True, help="Duration of the replay.")
@click.option(
    "--days", type=click.IntRange(1, DAYS), default=DAYS, show_default=True, help="Days of the year to replay, from the first."
)
@json_option
@reports_errors
def demo(strategy: str, seconds: float, days: int, json_: bool) -> None:
    """Six nodes in six cities, flights and weather of 2013 at three of them, three queries from a fourth.

    A filter, a window over all airports, and a join. For each query it shows the plan, the reason for each placement, the rows as
    they arrive, and the network usage: bytes x latency, against sending all rows to the consumer. It checks every row against
    DuckDB and stops everything it started. If the results go to stdout as JSON, everything else goes to stderr.
    """
    nycflights.archive()
    extras.duckdb()
    for signum in ENDING:
        signal.signal(signum, _interrupt)
    console = Console(stderr=json_, highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    show = Show(console, CONSUMER)
    with LocalCluster(list(cities().names), latency="cities", overrides=SHORT_LIVED) as cluster:
        try:
            results = run(cluster, show, strategy, seconds, days)
        finally:
            _deaf()
            show.stopping(len(cluster.nodes))
    if json_:
        print_json({"name": "demo", "rows": [result.figures(strategy) for result in results]})
    sys.exit(EXIT_REFUSED if any(result.wrong for result in results) else 0)


def run(cluster: LocalCluster, show: Show, strategy: str, seconds: float, days: int) -> list[Result]:
    """Run the queries in sequence over the same sources: later queries use what the first has waited for."""
    show.members(cluster, {node: airport for airport, node in SOURCES.items()})
    inputs = write_inputs(cluster.folder / "input", days)
    declare(cluster, inputs, seconds, days)
    results = []
    for number, query in enumerate(QUERIES, start=1):
        show.query(query, number, len(QUERIES))
        info = submit(cluster, show, query, strategy)
        show.plan(info)
        rows = follow(cluster, show, info)
        query_usage = cluster[CONSUMER].client.query_usage(info.id)
        show.query_usage(query_usage)
        wrong = compare(rows, query, inputs)
        show.verdict(len(rows), wrong)
        results.append(Result(query, len(rows), wrong, query_usage))
    show.summary([(result.query, result.rows, result.wrong, result.query_usage) for result in results])
    return results


def _interrupt(signum: int, frame: object) -> None:
    """Handle the first interrupt: from here on the demo stops what it started."""
    _deaf()
    raise KeyboardInterrupt


def _deaf() -> None:
    """Ignore signals by a function: with ``SIG_IGN``, Python reports a pending signal on stderr."""
    for signum in ENDING:
        signal.signal(signum, lambda signum, frame: None)


def write_inputs(folder: Path, days: int) -> list[Input]:
    last = (datetime(2013, 1, 1) + timedelta(days=days)).isoformat(sep=" ") if days < DAYS else "2014"
    inputs_written = ((FLIGHTS, flight_rows(last=last)), (WEATHER, weather_rows(last=last)))
    inputs = []
    for written, rows in inputs_written:
        declaration = msgspec.convert(written, StreamDeclaration, from_attributes=True)
        counts = {airport: len(of) for airport, of in rows.items()}
        inputs.append(Input(declaration, write_airports(folder, written, rows), counts))
    return inputs


def declare(cluster: LocalCluster, inputs: list[Input], seconds: float, days: int) -> None:
    """Declare each stream once, and attach each airport's source at its node."""
    client = cluster.nodes[0].client
    for stream_input in inputs:
        client.create_stream(stream_input.declaration)
        for source in sources_of(stream_input, seconds, days):
            client.attach_source(source)


def sources_of(stream_input: Input, seconds: float, days: int) -> list[SourceDeclaration]:
    return [
        SourceDeclaration(
            stream=stream_input.declaration.name,
            name=airport.lower(),
            node=SOURCES[airport],
            connector="file",
            options={"path": str(stream_input.files[airport]), "replay": days * 86_400 / seconds},
            rows_s=stream_input.rows[airport] / seconds,
            row_bytes=64,
        )
        for airport in AIRPORTS
    ]


def submit(cluster: LocalCluster, show: Show, query: DemoQuery, strategy: str) -> QueryInfo:
    started = time.monotonic()
    with show.waiting("submitting") as waiting:
        for event in cluster[CONSUMER].client.submit(Submission(sql=query.sql, name=query.name, strategy=strategy)):
            passed_s = time.monotonic() - started
            if isinstance(event, Accepted):
                show.line(f"accepted after {passed_s:.0f} s")
                return event.query
            waiting(event.message)
            show.step(passed_s, event)
    raise SbonError("node-unreachable", f"{CONSUMER} ended the connection before the query was accepted")


def follow(cluster: LocalCluster, show: Show, info: QueryInfo) -> list[tuple[Any, ...]]:
    """Return all rows, to the end of the days."""
    rows: list[tuple[Any, ...]] = []
    with show.waiting("waiting for rows") as waiting:

        def take(frame: Rows) -> None:
            rows.extend(frame.rows)
            show.rows(frame)
            if frame.rows:
                waiting(
                    f"{rows_text(len(rows))}, {str(frame.rows[-1][0])[:10]}, {frame.delay_ms / 1000:.1f} s from source to here"
                )

        end = Follower(cluster[CONSUMER].client, info.id, take).run()
    if end.state != states.FINISHED:
        raise SbonError("query-over", f"{info.id} {end.state} after {rows_text(len(rows))}: {end.reason}")
    return rows


def compare(rows: list[tuple[Any, ...]], query: DemoQuery, inputs: list[Input]) -> int:
    """Count rows that differ from DuckDB's answer on the same files, each as often as it occurs."""
    database = extras.duckdb().connect()
    for stream_input in inputs:
        types = {c.name: _DUCKDB_TYPES[c.type] for c in stream_input.declaration.schema}
        read = database.read_csv([str(f) for f in stream_input.files.values()], dtype=types, header=True)
        database.register(stream_input.declaration.name, read)
    answer = database.sql(query.duckdb)
    times = {position for position, type_ in enumerate(answer.types) if str(type_) == "TIMESTAMP"}
    expected = Counter(map(_plain, answer.fetchall()))
    counts = Counter(_plain([_utc(v) if p in times else v for p, v in enumerate(row)]) for row in rows)
    return (expected - counts).total() + (counts - expected).total()


_DUCKDB_TYPES = {"string": "VARCHAR", "int": "INTEGER", "double": "DOUBLE", "timestamp": "TIMESTAMP"}


def _plain(row: Any) -> tuple[Any, ...]:
    """Round means, which may differ in their last digit by the order of summation."""
    return tuple(float(f"{value:.12g}") if isinstance(value, float) else value for value in row)


def _utc(instant: str) -> datetime:
    """Return the time as DuckDB gives it."""
    return datetime.fromisoformat(instant).astimezone(UTC).replace(tzinfo=None)
