"""``sbon demo``: real streams, six cities, one query; what it cost the network; and a check of every row."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import duckdb
from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from sbon_cli.cities import cities
from sbon_cli.flights import AIRPORTS, FLIGHTS, write_airports
from sbon_cli.follow import Follower
from sbon_cli.local_cluster import LocalCluster
from sbon_cli.output import EXIT_REFUSED, as_json, bytes_text, json_option, print_json, reports_errors
from sbon_cli.settings_flags import strategy_option
from sbon_node.control.report import Accepted, Bill, QueryInfo, Rows, Submission
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
SHOWN_ROWS = 12


@click.command()
@strategy_option
@click.option("--seconds", type=click.FloatRange(1, 3600), default=40.0, show_default=True, help="How long the year takes.")
@json_option
@reports_errors
def demo(strategy: str, seconds: float, json_: bool) -> None:
    """Six nodes in six cities, the flights of 2013 at three of them, a query from a fourth.

    Shows the plan, why each operator went where it is, rows as they arrive, and the bill: bytes x latency against shipping every
    stream whole. Checks every row against DuckDB. Everything it starts, it stops.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    json_ = as_json(json_) and json_
    console = Console(stderr=json_, highlight=False)
    with LocalCluster(list(cities().names), latency="cities") as cluster:
        show = Show(console, cluster)
        show.members()
        files = write_airports(cluster.folder / "input")
        declare(cluster, files, YEAR_S / seconds)
        show.line(f"stream [bold]flights[/]: {', '.join(f'{a} at {n}' for a, n in SOURCES.items())}")
        info = submit(cluster, show, strategy)
        show.plan(info)
        rows, info = follow(cluster, show, info)
        bill = cluster[CONSUMER].client.bill(info.id)
        show.bill(bill)
        wrong = compare(rows, files)
        show.verdict(len(rows), wrong)
    if json_:
        print_json({"name": "demo", "rows": [{"strategy": strategy, "rows": len(rows), "wrong": wrong, **_figures(bill)}]})
    sys.exit(EXIT_REFUSED if wrong else 0)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


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
    with show.console.status("submitting", spinner="dots") as status:
        for event in cluster[CONSUMER].client.submit(Submission(sql=SQL, name="late", strategy=strategy)):
            if isinstance(event, Accepted):
                show.line(f"accepted after {time.monotonic() - started:.0f} s")
                return event.query
            status.update(f"{time.monotonic() - started:4.0f} s  {event.message}")
            show.line(f"[dim]{time.monotonic() - started:6.1f} s  {event.step}: {event.message}[/]")
    raise RuntimeError("a submission ends with its acceptance or an error")


def follow(cluster: LocalCluster, show: Show, info: QueryInfo) -> tuple[list[tuple[Any, ...]], QueryInfo]:
    """All rows, to the end of the year; shows the first of them, then a count."""
    client = cluster[CONSUMER].client
    rows: list[tuple[Any, ...]] = []
    with show.console.status("waiting for rows", spinner="dots") as status:

        def take(frame: Rows) -> None:
            for row in frame.rows[: max(0, SHOWN_ROWS - len(rows))]:
                show.row(frame, row)
            rows.extend(frame.rows)
            if frame.rows:
                status.update(f"{len(rows):,} rows, {str(frame.rows[-1][0])[:10]}, {frame.delay_ms} ms from source to here")

        Follower(client, info.id, take).run()
    return rows, client.query(info.id)


def compare(rows: list[tuple[Any, ...]], files: dict[str, Path]) -> int:
    """How many rows differ from DuckDB's answer on the same files, each row counted as often as it occurs."""
    types = {c.name: {"string": "VARCHAR", "int": "INTEGER", "timestamp": "TIMESTAMP"}[c.type] for c in FLIGHTS.schema}
    database = duckdb.connect()
    flights = database.read_csv([str(f) for f in files.values()], dtype=types, header=True)
    database.register("flights", flights)
    expected = Counter((_instant(r[0]), *r[1:]) for r in database.sql(SQL).fetchall())
    found = Counter((_instant(r[0]), *r[1:]) for r in rows)
    return (expected - found).total() + (found - expected).total()


def _instant(value: object) -> str:
    return str(value).replace("T", " ").removesuffix("Z").partition(".")[0].partition("+")[0]


def _figures(bill: Bill) -> dict[str, float]:
    return {
        "byte_ms": bill.byte_ms,
        "whole_byte_ms": bill.whole_byte_ms,
        "ratio": bill.byte_ms / bill.whole_byte_ms if bill.whole_byte_ms else 0.0,
    }


class Show:
    """What a newcomer sees."""

    def __init__(self, console: Console, cluster: LocalCluster) -> None:
        self.console, self._cluster = console, cluster
        self._headed = False

    def line(self, text: str) -> None:
        self.console.print(text)

    def members(self) -> None:
        own = self._cluster[CONSUMER].client.status()
        self.line(f"[bold]{own.members} nodes[/] of cluster {own.cluster} on loopback, in an emulated wide area:")
        table = Table("node", "address", f"round trip to {CONSUMER}", box=None, pad_edge=False, header_style="bold")
        area = cities()
        for node in self._cluster.nodes:
            rtt_ms = area.rtt_ms[area.names.index(node.name)][area.names.index(CONSUMER)]
            table.add_row(node.name, node.address, f"{rtt_ms:.0f} ms")
        self.console.print(table)

    def plan(self, info: QueryInfo) -> None:
        assert info.plan is not None
        assert info.placement is not None
        self.line(f"\n[bold]{info.sql}[/]\n")
        tree = Tree(f"[bold]{CONSUMER}[/]  sink: follow")
        placed = {a.operator: a for a in info.placement.assignments}
        for operator in info.plan.operators:
            assignment = placed[operator.id]
            branch = tree.add(f"[bold]{assignment.node}[/]  {operator.id}: {assignment.reason}")
            branch.add(f"[dim]{operator.fragment}[/]")
            for source in info.plan.sources:
                if source.source.id in operator.inputs:
                    rate = f"{source.rate.rows_s:,.0f} rows/s estimated"
                    branch.add(f"[bold]{source.source.node}[/]  {source.source.id}, {rate}")
        self.console.print(tree)

    def row(self, frame: Rows, row: tuple[Any, ...]) -> None:
        if not self._headed:
            self._headed = True
            self.line("\n[bold]" + "  ".join(frame.columns) + "[/]")
        self.line("  ".join(str(value) for value in row))

    def bill(self, bill: Bill) -> None:
        self.line("\n[bold]The bill[/]: bytes x one-way latency on each link")
        table = Table("stream", "from", "to", "bytes", "ms", "byte-seconds", box=None, pad_edge=False, header_style="bold")
        for line in bill.links:
            table.add_row(
                line.stream,
                line.source_node,
                line.target_node,
                bytes_text(line.bytes),
                f"{line.latency_ms:.0f}",
                f"{line.byte_ms / 1000:,.0f}",
            )
        self.console.print(table)
        total, whole = bill.byte_ms / 1000, bill.whole_byte_ms / 1000
        share = f", {total / whole:.1%} of it" if whole else ""
        self.line(f"total {total:,.0f} byte-seconds; every stream shipped whole to {CONSUMER}: {whole:,.0f}{share}")

    def verdict(self, rows: int, wrong: int) -> None:
        if wrong:
            self.line(f"\n[bold red]{wrong:,} rows differ[/] from DuckDB's answer on the same input ({rows:,} rows here)")
        else:
            self.line(f"\n[bold green]{rows:,} rows, each equal[/] to DuckDB's answer on the same input")
