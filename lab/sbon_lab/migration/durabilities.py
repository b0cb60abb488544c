"""Cost of durability: delay of rows, rows a second, bytes sent and processor time of the same queries."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from prometheus_client.parser import text_string_to_metric_families

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.wide_area import WideArea
from sbon.model import Column, QueryInfo, SinkSpec, SourceDeclaration, StreamDeclaration, Submission
from sbon.states import FINISHED, LIVE
from sbon_lab.bench import footprint
from sbon_lab.experiments.harness.experiment import Found, Notify, Row
from sbon_lab.migration.feed import SCHEMA, Feed
from sbon_lab.migration.kinds import KINDS, Answers
from sbon_lab.migration.losses import away_from_source, is_covered
from sbon_lab.migration.moving_query import MovingQuery
from sbon_protocol.api.durability import LOCAL, Durability
from sbon_protocol.api.states.operator_states import RUNNING

SOURCE, HOST = "near", "left"
NODES = (SOURCE, HOST, "right", "far")
"""The node with the sources, that of the consumer of a file, and others that may host the operator or keep its backup."""
WARM_S = 10.0
"""Time that a query has run before its rows count."""
FRAME_ROWS = 1000
POLL_S = 0.05


class Plan(NamedTuple):
    """Queries of these kinds with these durabilities, ``turns`` times by turns, over a network with one round-trip time.

    Delays are those of ``seconds`` seconds; ``rows`` is the length of the file that is read as fast as may be.
    """

    kinds: Sequence[str]
    durabilities: Sequence[Durability]
    turns: int
    seconds: float
    rows: int
    rtt_ms: float


@dataclass
class Measured:
    """Results of all turns of a kind with one durability."""

    delays_s: list[float] = field(default_factory=list)
    rows_s: list[float] = field(default_factory=list)
    sent_bytes: float = 0.0
    cpu_s: float = 0.0
    rows: int = 0
    """Input rows that ``sent_bytes`` and ``cpu_s`` belong to."""
    wrong: int = 0


def run(folder: Path, plan: Plan, notify: Notify, found: Found) -> list[Row]:
    """Return a row for each kind and durability; ``found`` gets it after each turn, with the turns so far."""
    measured = {(kind, durability): Measured() for kind in plan.kinds for durability in plan.durabilities}
    network = WideArea(NODES, tuple(tuple(0.0 if a == b else plan.rtt_ms for b in NODES) for a in NODES))
    with LocalCluster(NODES, network, folder=folder / "cluster", overrides=SHORT_LIVED) as cluster:
        for kind in plan.kinds:
            notify(f"{kind}: the engines start")
            _throughput(cluster, plan, kind, LOCAL, folder / f"{kind}-first", Measured())
        for turn, (kind, durability) in itertools.product(range(plan.turns), measured):
            notify(f"{kind}, {durability}, turn {turn + 1} of {plan.turns}: delays")
            _delays(cluster, plan, kind, durability, folder / f"{kind}-{durability}-{turn}", measured[kind, durability])
            notify(f"{kind}, {durability}, turn {turn + 1} of {plan.turns}: rows a second")
            _throughput(cluster, plan, kind, durability, folder / f"{kind}-{durability}-{turn}-file", measured[kind, durability])
            found(row_of(plan, kind, durability, measured))
    return [row_of(plan, kind, durability, measured) for kind, durability in measured]


def row_of(plan: Plan, kind: str, durability: Durability, found: Mapping[tuple[str, Durability], Measured]) -> Row:
    """Return the flat row of a kind with one durability, beside its local peer if that was measured."""
    own, local = found[kind, durability], found.get((kind, LOCAL))
    p50_ms, p95_ms = (1000 * float(np.percentile(own.delays_s, share)) for share in (50, 95))
    local_ms = 1000 * float(np.median(local.delays_s)) if local and local.delays_s else None
    local_rows_s = float(np.median(local.rows_s)) if local and local.rows_s else None
    return {
        "kind": kind,
        "durability": durability,
        "rtt_ms": plan.rtt_ms,
        "p50_ms": round(p50_ms, 1),
        "p95_ms": round(p95_ms, 1),
        "beyond_local_ms": None if local_ms is None else round(p50_ms - local_ms, 1),
        "rows_s": round(float(np.median(own.rows_s))),
        "of_local": None if local_rows_s is None else round(float(np.median(own.rows_s)) / local_rows_s, 2),
        "sent_bytes_row": round(own.sent_bytes / own.rows, 1),
        "cpu_us_row": round(1e6 * own.cpu_s / own.rows, 1),
        "rows": len(own.delays_s),
        "wrong": own.wrong,
    }


def _delays(cluster: LocalCluster, plan: Plan, kind: str, durability: Durability, folder: Path, measured: Measured) -> None:
    """Follow a query over growing files whose last operator is away from source and consumer."""
    name, fields = folder.name, {"strategy": "consumer", "durability": durability}
    with MovingQuery(cluster, SOURCE, name, KINDS[kind], Feed(), folder, **fields) as query:
        query.more(3)
        last = query.operators()[-1]
        away_from_source(query, last)
        query.until(lambda: _is_durable(query.info(), durability))
        _rest(query, WARM_S)
        before, since_s = _Spent.now(cluster), time.monotonic()
        _rest(query, plan.seconds)
        after, upto_s = _Spent.now(cluster), time.monotonic()
        answers = query.answers()
        missing, superfluous = query.end(answers)
        measured.wrong += missing + superfluous
        measured.sent_bytes += after.sent_bytes - before.sent_bytes
        measured.cpu_s += after.cpu_s - before.cpu_s
        measured.rows += query.feed.rows * sum(since_s < at_s <= upto_s for at_s in query.written_s)
        at_s = np.repeat([arrival.at_s for arrival in query.arrivals], [len(arrival.rows) for arrival in query.arrivals])
        for arrived_s, due_ms in zip(at_s.tolist(), answers.due_ms(), strict=False):  # Some rows came after the comparison.
            frame = query.feed.frame_with(due_ms)
            if since_s < arrived_s <= upto_s and frame < len(query.written_s):
                measured.delays_s.append(arrived_s - query.written_s[frame])


def _rest(query: MovingQuery, seconds: float) -> None:
    upto_s = time.monotonic() + seconds
    query.until(lambda: time.monotonic() > upto_s)


def _is_durable(info: QueryInfo, durability: Durability) -> bool:
    """Return whether all operators run, and a backup could go on with each that has one."""
    running = bool(info.operators) and all(one.state == RUNNING for one in info.operators)
    return running and (durability == LOCAL or all(is_covered(one) for one in info.operators))


class _Spent(NamedTuple):
    """Bytes that all nodes have sent over connections, and their processor time, engines included."""

    sent_bytes: float
    cpu_s: float

    @classmethod
    def now(cls, cluster: LocalCluster) -> _Spent:
        sent = (sent_bytes(node.client.metrics().decode()) for node in cluster.nodes)
        return cls(sum(sent), footprint.total_cpu_s([node.pid for node in cluster.nodes]))


def sent_bytes(metrics: str) -> float:
    """Return the bytes of frames that a node has sent, by its metrics."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == "sbon_frame_bytes_total" and sample.labels["direction"] == "sent"
    )


def _throughput(cluster: LocalCluster, plan: Plan, kind: str, durability: Durability, folder: Path, measured: Measured) -> None:
    """Read a file as fast as may be; the operators are at the consumer, which is away from the sources."""
    folder.mkdir()
    client, streams, paths = cluster[SOURCE].client, list[str](), list[str]()
    for view in range(KINDS[kind].inputs):
        path, stream = folder / f"in{view}.csv", f"{folder.name.replace('-', '_')}_in{view}"
        _write(path, plan.rows, view)
        schema = tuple(Column(column.name, column.type) for column in SCHEMA)
        client.create_stream(StreamDeclaration(name=stream, schema=schema, event_time="ts"))
        source = SourceDeclaration(stream=stream, name=SOURCE, node=SOURCE, connector="file", options={"path": str(path)})
        client.attach_source(source)
        streams.append(stream)
        paths.append(str(path))
    rows = folder / "rows.parquet"
    begun_s = time.monotonic()
    client.submitted(
        Submission(
            sql=KINDS[kind].of_streams(*streams),
            name=folder.name,
            consumer=HOST,
            strategy="consumer",
            decompose="never",
            durability=durability,
            reuse="never",
            sink=SinkSpec(kind="file", options={"path": str(rows)}),
        )
    )
    while (info := client.query(folder.name)).state in LIVE:
        time.sleep(POLL_S)
    measured.rows_s.append(plan.rows / (time.monotonic() - begun_s))
    if info.state != FINISHED:
        raise AssertionError(f"{folder.name} {info.state}: {info.reason}")
    measured.wrong += sum(Answers(KINDS[kind], paths).wrong(pq.read_table(rows)))


def _write(path: Path, rows: int, view: int) -> None:
    feed = Feed(rows=FRAME_ROWS)
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(column.name for column in SCHEMA) + "\n")
        for number in range(-(-rows // FRAME_ROWS)):
            file.writelines(row.csv() for row in feed.frame(number, view))
