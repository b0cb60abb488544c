"""``sbon demo``: three queries over real streams in six cities, with their network usage and a check of every row."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.tree import Tree

from sbon import SbonError, model, states
from sbon.local.cluster import AS_ROOT, SHORT_LIVED, LocalCluster
from sbon.local.wide_area import cities
from sbon.model import Accepted, QueryInfo, QueryUsage, Rows, SourceDeclaration, StreamDeclaration, Submission
from sbon_cli.commands.demo import nycflights
from sbon_cli.commands.demo.nycflights import AIRPORTS, FLIGHTS, WEATHER, flight_rows, weather_rows, write_airports
from sbon_cli.commands.queries.follow import Follower
from sbon_cli.commands.queries.query_flags import strategy_option
from sbon_cli.commands.queries.rows import LineWriter
from sbon_cli.options.types import Number
from sbon_cli.terminal.output import EXIT_REFUSED, bytes_text, json_option, print_json, reports_errors, rows_text
from sbon_node.base import extras
from sbon_protocol.api.catalogue import is_source

SOURCES = {"EWR": "new-york", "JFK": "london", "LGA": "sao-paulo"}
CONSUMER = "singapore"
DAYS = 365
PIPE_WIDTH = 120
"""Columns of the output where it is no terminal: no address is long enough to break a line of a table."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """A query in Spark's SQL, and in DuckDB's where that differs; ``title`` is shown above it."""

    name: str
    title: str
    sql: str
    reference: str = ""

    @property
    def duckdb(self) -> str:
        return self.reference or self.sql


QUERIES_FILE = Path(__file__).with_name("queries.toml")
QUERIES = msgspec.toml.decode(QUERIES_FILE.read_bytes(), type=dict[str, tuple[DemoQuery, ...]])["queries"]


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
    if os.geteuid() == 0:
        show.line(f"[yellow]{AS_ROOT}[/], until the demo ends")
    with LocalCluster(list(cities().names), latency="cities", overrides=SHORT_LIVED) as cluster:
        try:
            results = run(cluster, show, strategy, seconds, days)
        finally:
            _deaf()
            show.line(f"[dim]stopping the {len(cluster.nodes)} nodes[/]")
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
    show.summary(results)
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
                day = str(frame.rows[-1][0])[:10]
                waiting(f"{rows_text(len(rows))}, {day}, {frame.delay_ms / 1000:.1f} s from source to here")

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


# -- Output of the demo for new users ---------------------------------------------------------------------------------

SHOWN_ROWS = 4
"""Number of rows shown for each branch."""


class Show:
    """Prints on ``console`` the demo whose rows arrive at ``consumer``."""

    def __init__(self, console: Console, consumer: str) -> None:
        self._console, self._consumer = console, consumer
        self._write = LineWriter(console)
        self._shown: Counter[str] = Counter()

    def line(self, text: str = "") -> None:
        self._console.print(text)

    def members(self, cluster: LocalCluster, airports: Mapping[str, str]) -> None:
        """Show the nodes; ``airports`` are those with flights from a node, by its name."""
        own = cluster[self._consumer].client.status()
        self.line(f"[bold]{own.members} nodes[/] on loopback, as far apart as their cities:\n")
        table = _table("node", "address", _right(f"to {self._consumer} and back"), "part")
        area = cities()
        for node in cluster.nodes:
            rtt_ms = area.rtt_ms[area.names.index(node.name)][area.names.index(self._consumer)]
            note = "asks for rows" if node.name == self._consumer else ""
            if node.name in airports:
                note = f"flights, weather of {airports[node.name]}"
            table.add_row(node.name, node.address, f"{rtt_ms:.0f} ms", note)
        self._console.print(table)
        self.line()

    @contextmanager
    def waiting(self, text: str) -> Iterator[Callable[[str], None]]:
        """A spinner on a terminal, with the time since it began and a text that the caller may change."""
        columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", table_column=Column(no_wrap=True)))
        with Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal) as progress:
            task = progress.add_task(text, total=None)
            yield lambda changed: progress.update(task, description=escape(changed))

    def step(self, passed_s: float, step: model.Progress) -> None:
        text = f"[dim]{passed_s:6.1f} s[/]  {escape(step.message)}"
        terminal = self._console.is_terminal
        self._console.print(text, no_wrap=True, overflow="ellipsis" if terminal else "ignore", crop=terminal)

    def query(self, query: DemoQuery, number: int, of: int) -> None:
        self._write, self._shown = LineWriter(self._console), Counter()
        self._console.rule(f"[bold]{number} of {of}", align="left")
        self.line(f"\n[bold]{escape(query.title)}[/]\n\n{escape(query.sql)}\n")

    def plan(self, info: QueryInfo) -> None:
        """Show each operator's node and the reason, from the consumer up to the sources."""
        assert info.plan is not None
        self.line("\n[bold]The plan[/], rows flow from the leaves to the root\n")
        tree = Tree(f"[bold]{self._consumer}[/]  the consumer")
        for stream in info.plan.outputs:
            self._grow(tree, stream, info)
        self._console.print(tree)
        of_fragment: dict[str, list[str]] = {}
        for operator in info.plan.operators:
            of_fragment.setdefault(operator.fragment, []).append(_short(operator.id))
        for fragment, operators in of_fragment.items():
            self.line(f"\n[dim]{', '.join(operators)}: {escape(fragment)}[/]")

    def _grow(self, above: Tree, stream: str, info: QueryInfo) -> None:
        """Add the source or operator of a stream, with its inputs."""
        assert info.plan is not None
        assert info.placement is not None
        for source in (placed_source for placed_source in info.plan.sources if placed_source.source.id == stream):
            rate = f"{source.rate.rows_s:,.0f} rows/s expected"
            above.add(f"[bold]{source.source.node}[/]  {source.source.stream} of {source.source.name.upper()}, {rate}")
        for operator in (placed_operator for placed_operator in info.plan.operators if placed_operator.id == stream):
            assignment = next(candidate for candidate in info.placement.assignments if candidate.operator == operator.id)
            branch = above.add(f"[bold]{assignment.node}[/]  {_short(operator.id)}: {escape(assignment.reason)}")
            for input_spec in operator.inputs:
                self._grow(branch, input_spec.stream, info)

    def rows(self, frame: Rows) -> None:
        """Show the first rows of each branch."""
        first = frame.rows[: max(0, SHOWN_ROWS - self._shown[frame.stream])]
        if first and not self._shown:
            self.line(f"\n[bold]The rows[/], the first {SHOWN_ROWS} of each branch\n")
        if first:
            self._shown[frame.stream] += len(first)
            self._write(replace(frame, rows=first))

    def query_usage(self, query_usage: QueryUsage) -> None:
        self.line("\n[bold]Network usage[/]: bytes x one-way latency on each link between nodes\n")
        table = _table("stream", "from", "to", _right("bytes"), _right("ms"), _right("byte-seconds"))
        local_links = [line for line in query_usage.links if line.source_node == line.target_node]
        for line in (link for link in query_usage.links if link not in local_links):
            latency = "?" if line.latency_ms is None else f"{line.latency_ms:.1f}"
            carried = bytes_text(line.bytes), latency, _byte_seconds(line.byte_ms)
            table.add_row(_short(line.stream), line.source_node, line.target_node, *carried)
        if local_links:
            local_bytes = bytes_text(sum(line.bytes for line in local_links))
            table.add_row(f"{len(local_links)} within a node", "", "", local_bytes, "", "0")
        table.add_section()
        table.add_row("[bold]in all[/]", "", "", "", "", f"[bold]{_byte_seconds(query_usage.byte_ms)}[/]")
        shipped = bytes_text(sum(line.bytes for line in query_usage.baseline))
        table.add_row("all rows to the consumer", "", self._consumer, shipped, "", _byte_seconds(query_usage.baseline_byte_ms))
        self._console.print(table)
        if query_usage.baseline_byte_ms:
            share = query_usage.byte_ms / query_usage.baseline_byte_ms
            self.line(f"\nthat is [bold]{share:.1%}[/] of sending all rows to {self._consumer}")

    def verdict(self, rows: int, wrong: int) -> None:
        if wrong:
            self.line(f"\n[bold red]{wrong:,} wrong rows[/] beside DuckDB's answer on the same input ({rows:,} rows here)\n")
        else:
            self.line(f"\n[bold green]{rows:,} rows, 0 wrong[/]: each equal to DuckDB's answer on the same input\n")

    def summary(self, results: Sequence[Result]) -> None:
        self._console.rule("[bold]In all", align="left")
        self.line()
        table = _table("query", *map(_right, ("rows", "wrong", "byte-seconds", "all rows sent", "share")))
        for query, rows, wrong, query_usage in results:
            share = f"{query_usage.byte_ms / query_usage.baseline_byte_ms:.1%}" if query_usage.baseline_byte_ms else ""
            usage, baseline = _byte_seconds(query_usage.byte_ms), _byte_seconds(query_usage.baseline_byte_ms)
            table.add_row(query.name, f"{rows:,}", str(wrong), usage, baseline, share)
        self._console.print(table)
        self.line()


def _short(stream: str) -> str:
    """Return an operator without its query's name, or a source's stream and name."""
    if is_source(stream):
        name, _, source = stream.partition("/")[2].partition("/")
        return f"{name.partition('@')[0]} {source.upper()}"
    return stream.rpartition(".")[2]


def _table(*columns: str | Column) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def _right(header: str) -> Column:
    return Column(header, justify="right")


def _byte_seconds(byte_ms: float | None) -> str:
    return "?" if byte_ms is None else f"{byte_ms / 1000:,.0f}"
