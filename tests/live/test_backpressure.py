"""A consumer that is absent, slow or far away holds back the sources, costs bounded memory, and misses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any, Literal

import duckdb
import pytest

from sbon.client import Client
from sbon.local.cluster import LocalCluster
from sbon.local.node import PORT
from sbon.model import Column, Rows, SourceDeclaration, StreamDeclaration
from sbon_cli.commands.queries.follow import Follower
from sbon_node.net.settings import NetSettings
from sbon_node.streams.settings import StreamSettings
from tests.live.family import Memory
from tests.live.relay import Relay
from tests.live.world import submit, wait_for

pytestmark = pytest.mark.live
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("live consumers that take little")

KIB, MIB = 1024, 1024 * 1024
CREDIT, QUOTA, SPAN, HEAP_MB = 5 * MIB, 256 * KIB, MIB, 480
LITTLE_ROOM = {
    "streams.inbox_credit_bytes": CREDIT,
    "streams.outbox_quota_bytes": QUOTA,
    "streams.batch_span_bytes": SPAN,
    "engine.heap_mb": HEAP_MB,
}
ROOM = CREDIT + QUOTA + SPAN + StreamSettings().read_bytes + NetSettings().write_buffer_bytes
"""Bound on one node's memory for a query with one link in and one out."""
FACTOR = 4
"""Allowance for the same rows in other forms (Arrow, Python, JSON), and for memory that the allocator keeps: about half of what a
node takes that keeps all rows in one form."""
JVM_BESIDE_HEAP = 256 * MIB
"""Classes, compiled code, threads and buffers."""

ROWS = 64 * KIB
"""Rows of a kilobyte that hardly compresses: many times the buffers' bounds together."""
COLUMNS = (Column("ts", "timestamp"), Column("n", "bigint"), Column("text", "string"))


def written(path: Path, rows: int) -> Path:
    text = "array_to_string([md5(concat(i, '-', k)) FOR k IN range(32)], '')"
    columns = f"TIMESTAMP '2020-01-01' + to_seconds(i) AS ts, i AS n, {text} AS text"
    duckdb.sql(f"COPY (SELECT {columns} FROM range({rows}) AS t(i) ORDER BY i) TO '{path}' (HEADER, DELIMITER ',')")
    return path


class Wide:
    """A source's node ``src``, where the operator is as well, and the consumer's node ``dst``, with little room anywhere.

    ``dst`` has no engine, since queries are submitted at ``src``.
    """

    def __init__(self, cluster: LocalCluster, relay: Relay, file: Path) -> None:
        self.cluster, self.relay, self.file = cluster, relay, file

    @property
    def client(self) -> Client:
        """The client of the consumer's node."""
        return self.cluster["dst"].client

    def start(self, name: str, file: Path) -> str:
        """A query over a new stream of that name that reads the file."""
        self.client.create_stream(StreamDeclaration(name=name, schema=COLUMNS, event_time="ts"))
        source = SourceDeclaration(
            stream=name, name="src", node="src", connector="file", options={"path": str(file)}, rows_s=1000
        )
        self.client.attach_source(source)
        sql = f"SELECT n, text FROM {name} WHERE n >= 0"
        return submit(self.cluster["src"], sql=sql, consumer="dst", strategy="producer").id

    def held_back(self, name: str, query: str) -> bool:
        """As ``sbon stream show`` and ``sbon query show`` tell it, and its usage counts it."""
        sources, operators = self.client.stream(name).sources, self.client.query(query).operators
        waits = all(one.held_back and one.reason.startswith("held back") for one in operators)
        now = self.client.query_usage(query).now
        counted = now is not None and now.held_back == len(operators)
        return all(source.state.startswith("paused") for source in sources) and waits and counted


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wide]:
    """Has run one query to its end, so that nodes have loaded the modules of every query."""
    folder = tmp_path_factory.mktemp("wide")
    file, first = written(folder / "wide.csv", ROWS), written(folder / "first.csv", ROWS // 16)
    relay = Relay(["src", "dst"], PORT)
    cluster = LocalCluster(
        ["src", "dst"],
        overrides=LITTLE_ROOM,
        per_node={name: {"node.advertise": host} for name, host in relay.announced.items()},
    )
    with relay.running({node.name: node.host for node in cluster.nodes}), cluster:
        wide = Wide(cluster, relay, file)
        Follower(wide.client, wide.start("first", first), lambda frame: None).run()
        yield wide


@pytest.mark.parametrize("consumer", ["absent", *(pytest.param(name, marks=ONLY_IN_TEST_ALL) for name in ("slow", "far"))])
def test_a_consumer_that_takes_little(wide: Wide, consumer: Literal["absent", "slow", "far"]) -> None:
    """The consumer reads one frame and leaves, reads one each second, or has a very slow network.

    It does so until the source is held back.
    """
    memory = Memory(wide.cluster.nodes)
    query = wide.start(consumer, wide.file)
    rows: list[tuple[Any, ...]] = []
    hurry = Event()

    def write(frame: Rows) -> None:
        rows.extend(frame.rows)
        if consumer == "slow":
            hurry.wait(1.0)

    follower = Follower(wide.client, query, write)
    with memory.watched(), ThreadPoolExecutor(1) as reader, ExitStack() as hindrance:
        hindrance.callback(hurry.set)
        if consumer == "absent":
            events = wide.client.rows(query)
            first = next(event for event in events if isinstance(event, Rows) and event.rows)
            del events
        else:
            if consumer == "far":
                hindrance.enter_context(wide.relay.limit(["src"], ["dst"], 0, 128 * KIB))
            following = reader.submit(follower.run)
        wait_for(lambda: wide.held_back(consumer, query), "the source is held back")
        hindrance.close()
        if consumer == "absent":
            following = reader.submit(follower.run)
        assert following.result().state == "finished"
        if consumer == "absent":
            assert set(first.rows) <= set(rows)

    answer = duckdb.sql(f"SELECT n, text FROM read_csv('{wide.file}') ORDER BY n").fetchall()
    assert sorted(rows) == answer
    for kind in ("daemon", "host", "worker"):
        assert max(memory.growth(kind).values()) < FACTOR * ROOM, (kind, memory.growth(kind))
    assert all(memory.peak[node.name, "jvm"] < HEAP_MB * MIB + JVM_BESIDE_HEAP for node in wide.cluster.nodes), memory.peak
