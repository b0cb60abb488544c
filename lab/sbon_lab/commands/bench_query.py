"""``sbon bench query``: the time of a small query, split by its steps, on a local cluster of two nodes."""

import importlib
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from sbon import SbonError, states
from sbon.client import Client
from sbon.follower import Follower
from sbon.local.cluster import LocalCluster
from sbon.model import Accepted, Submission
from sbon.synchronous import SynchronousTransport, each
from sbon_cli.terminal.output import json_option, reports_errors
from sbon_lab.commands.arriving import Row, arriving, show_rows
from sbon_lab.commands.bench_files import streams_over_files
from sbon_lab.commands.options import seed_option

ROWS = 20_000
TURNS = 5
STEPS = ("plan", "analyse", "share", "place", "reserve", "start")
_WITHIN = "{0}.symbol = t.symbol AND {0}.ts BETWEEN t.ts - INTERVAL 10 SECONDS AND t.ts"
_JOINS = " ".join(f"JOIN {{news}} AS {name} ON {_WITHIN.format(name)}" for name in ("n", "m", "k"))
CASES = {
    "filter": "SELECT ts, upper(symbol) AS symbol, price * size AS value FROM {trades} WHERE size > 50",
    "aggregate": (
        "SELECT window.start AS minute, symbol, count(*) AS trades, sum(size) AS size"
        " FROM {trades} GROUP BY window(ts, '1 minute'), symbol"
    ),
    "join": f"SELECT t.ts AS ts, t.account AS account, n.headline AS headline FROM {{trades}} AS t"
    f" JOIN {{news}} AS n ON {_WITHIN.format('n')}",
    "three-joins": "SELECT t.ts AS ts, n.headline AS first, m.headline AS second, k.headline AS third FROM {trades} AS t "
    + _JOINS,
}


class Times(NamedTuple):
    """Seconds since the submission, but those of ``steps``, which last so long; ``rows`` is the number of rows.

    ``cpu_s`` are the CPU seconds of all processes of both nodes until the end. They depend less on other work on the machine.
    """

    steps: dict[str, float]
    accepted_s: float
    first_row_s: float
    last_row_s: float
    end_s: float
    rows: int
    cpu_s: float


@click.command("query")
@click.option("--turns", type=click.IntRange(1, 1000), default=TURNS, show_default=True, help="Warm runs of each query.")
@click.option("--case", "cases", type=click.Choice(list(CASES)), multiple=True, help="Only these queries; all by default.")
@seed_option("the rows")
@json_option
@reports_errors
def query(turns: int, cases: tuple[str, ...], seed: int, json_: bool) -> None:
    """The latency of small queries: from the submission to the last row, split by step, cold and warm.

    A filter, an aggregate, a join and three joins over 20,000 rows of CSV at two nodes. The first query finds no engine
    running, and is cold; the first of each other kind is new to its nodes; the medians of the warm ones count.

    Takes some minutes; run it on a machine that does nothing else.
    """
    show = partial(show_rows, "query", json_=json_)
    with tempfile.TemporaryDirectory(prefix="sbon-query-") as folder, arriving("starting", show) as so_far:
        so_far.take(run(Path(folder), cases or tuple(CASES), turns, seed=seed, notify=so_far.notify))
    show(so_far.rows)


def run(
    folder: Path, cases: Sequence[str], turns: int, *, seed: int, notify: Callable[[str], None]
) -> Generator[Row, None, None]:
    """Yield two rows for each case, of its first run and warm. Raise :class:`SbonError` of a query that fails."""
    inputs_module: Any = importlib.import_module("sbon_lab.bench.path.bare")
    inputs = inputs_module.Inputs(folder / "csv", "csv")
    inputs.write(ROWS, seed)
    with LocalCluster(list(inputs_module.NODES)) as cluster:
        for number, case in enumerate(cases):
            sql, kind = CASES[case], "new" if number else "cold"
            notify(f"{case}: the first run")
            yield row_of(case, kind, [_measured(cluster, inputs, f"{case}_first", sql)])
            warm = []
            for turn in range(1, turns + 1):
                notify(f"{case}: run {turn} of {turns}")
                warm.append(_measured(cluster, inputs, f"{case}_{turn}", sql))
            yield row_of(case, "warm", warm)


def _measured(cluster: LocalCluster, inputs: Any, run_name: str, sql: str) -> Times:
    """Run a query over new streams, which its node has not read yet."""
    client = cluster.nodes[0].client
    footprint: Any = importlib.import_module("sbon_lab.bench.footprint")
    pids = [node.pid for node in cluster.nodes]
    with streams_over_files(cluster, inputs, run_name.replace("-", "_"), ("trades", "news")) as names:
        before_cpu_s, began_s = footprint.total_cpu_s(pids), time.monotonic()
        accepted = _accepted(client, Submission(sql=sql.format(**names), consumer=cluster.nodes[0].name, reuse="never"))
        accepted_s = time.monotonic() - began_s
        first_row_s = last_row_s = 0.0
        follower = Follower(SynchronousTransport(client), accepted.query.id)
        for _, written in each(follower.frames()):
            last_row_s = time.monotonic() - began_s
            first_row_s = first_row_s or last_row_s
            written()
        end_s = time.monotonic() - began_s
        cpu_s = footprint.total_cpu_s(pids) - before_cpu_s
    end = follower.end
    assert end is not None
    if end.state != states.FINISHED:
        raise SbonError("query-over", f"{accepted.query.id} {end.state}: {end.reason}")
    return Times(accepted.seconds, accepted_s, first_row_s, last_row_s, end_s, follower.rows, cpu_s)


def _accepted(client: Client, submission: Submission) -> Accepted:
    for event in client.submit(submission):
        if isinstance(event, Accepted):
            return event
    raise SbonError("node-unreachable", f"the node at {client.api} ended the connection")


def row_of(case: str, kind: str, runs: list[Times]) -> dict[str, Any]:
    """Return the medians over runs, rounded to milliseconds."""

    def median(of: Callable[[Times], float]) -> float:
        return round(statistics.median(map(of, runs)), 3)

    return {
        "case": case,
        "kind": kind,
        "runs": len(runs),
        "rows": runs[0].rows,
        **{f"{step}_s": median(lambda times, step=step: times.steps[step]) for step in STEPS},  # type: ignore[misc]
        "accepted_s": median(lambda times: times.accepted_s),
        "first_row_s": median(lambda times: times.first_row_s),
        "last_row_s": median(lambda times: times.last_row_s),
        "end_s": median(lambda times: times.end_s),
        "cpu_s": median(lambda times: times.cpu_s),
    }
