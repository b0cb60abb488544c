"""``sbon bench memory``: memory of a node by process, without an engine, with one, and with operators."""

import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import click

from sbon import endpoints
from sbon.local.cluster import LocalCluster
from sbon.model import QuerySpec, SinkSpec, SourceDeclaration, Submission
from sbon_cli.client import Client
from sbon_cli.terminal.output import json_option, reports_errors
from sbon_lab.commands.arriving import Row, arriving, show_rows
from sbon_protocol.api.nodes import ProcessKind, Resources

SETTLE_S = 10.0
ROWS_S = 200.0
SCHEMA = "ts timestamp, symbol string, size bigint, price double"
AGGREGATE = "SELECT window.start AS second, symbol, sum(size) AS size FROM trades GROUP BY window(ts, '1 second'), symbol"
QUERIES = (
    AGGREGATE,
    "SELECT ts, upper(symbol) AS symbol, price * size AS value FROM trades WHERE size > 5",
    "SELECT window.start AS begins, symbol, max(price) AS price FROM trades GROUP BY window(ts, '10 seconds'), symbol",
    "SELECT ts, symbol, size + 1 AS size FROM trades WHERE price > 7",
)
"""Queries that run beside each other; each is one operator on a single node."""
COLUMNS: dict[str, tuple[ProcessKind, ...]] = {
    "daemon_mb": ("daemon",),
    "planner_mb": ("planner",),
    "engine_mb": ("engine",),
    "jvm_mb": ("jvm",),
    "python_mb": ("zygote", "python"),
}
"""Columns of proportional memory, and the processes that each adds up."""


@click.command("memory")
@click.option(
    "--settle",
    "settle_s",
    type=click.FloatRange(1, 600),
    default=SETTLE_S,
    show_default=True,
    help="Seconds before each look at the processes.",
)
@json_option
@reports_errors
def memory(settle_s: float, json_: bool) -> None:
    """Memory of one node by process: at rest, with an engine, with one operator and with four.

    The operators read 200 rows a second. Proportional memory counts a page that n processes share as an n-th: other nodes on
    the same machine make it less. Takes about a minute.
    """
    show = partial(show_rows, "memory", json_=json_)
    with arriving("starting", show) as so_far:
        so_far.take(run(settle_s, so_far.notify))
    show(so_far.rows)


def run(settle_s: float, notify: Callable[[str], None]) -> Generator[Row, None, None]:
    """Yield a row for each state of the node."""
    with LocalCluster(1) as cluster:
        node = cluster.nodes[0]
        client = Client(node.client.api)

        def look(state: str, operators: int) -> dict[str, Any]:
            notify(f"{state}: {settle_s:g} s until the processes have settled")
            time.sleep(settle_s)
            return row_of(state, operators, client.resources())

        yield look("at rest", 0)
        client.create_stream(endpoints.declared("trades", SCHEMA, "ts", 0, ""))
        options = {"columns": {"size": {"kind": "uniform", "min": 0, "max": 9}}, "rate": ROWS_S}
        client.attach_source(
            SourceDeclaration(stream="trades", name="made", node=node.name, connector="generator", options=options)
        )
        client.explain(QuerySpec(sql=AGGREGATE, consumer=node.name))
        yield look("engine", 0)
        for number, sql in enumerate(QUERIES, 1):
            client.submitted(Submission(sql=sql, consumer=node.name, sink=SinkSpec(kind="blackhole"), reuse="never"))
            if number in (1, len(QUERIES)):
                yield look("one operator" if number == 1 else f"{number} operators", number)


def row_of(state: str, operators: int, resources: Resources) -> dict[str, Any]:
    """Return the memory in megabytes by kind of process; resident where the system reports no proportional memory."""

    def mb(kinds: tuple[ProcessKind, ...]) -> float:
        sizes = [process.proportional_bytes or process.resident_bytes for process in resources.processes if process.kind in kinds]
        return round(sum(sizes) / 2**20, 1)

    return {
        "state": state,
        "operators": operators,
        "all_mb": mb(tuple(kind for kinds in COLUMNS.values() for kind in kinds)),
        **{column: mb(kinds) for column, kinds in COLUMNS.items()},
        "processes": len(resources.processes),
        "threads": sum(process.threads for process in resources.processes),
    }
