"""Queries over whole daemons, from the declaration of streams to an end without leaks."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from sbon_lab.simulation.checks import CheckFailedError
from sbon_lab.simulation.cluster import NodeDiedError, SimulatedCluster
from sbon_lab.simulation.engine.evaluate import output_schema
from sbon_lab.simulation.faults.plan import Fault, Stage, random_plan
from sbon_lab.simulation.leak_check import settled
from sbon_lab.simulation.node import SimulatedNode
from sbon_node.model.records import QueryRecord
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.ownership.consensus import states
from sbon_node.ownership.queries import joined
from sbon_node.ownership.store.acceptor_store import DocumentStore
from sbon_node.ownership.store.query_keys import QUERY
from sbon_node.planning.sql.planner import plan_query
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.plan import Decompose, Plan
from sbon_protocol.api.queries import Accepted, Progress, QueryInfo, SinkSpec, Submission
from sbon_protocol.api.states import query_states

Rows = list[tuple[object, ...]]


@dataclass(frozen=True)
class RunQuery:
    """A query by its name, with its placement goal."""

    name: str
    sql: str
    strategy: str = "relaxation"
    decompose: Decompose = "auto"


@dataclass(frozen=True)
class QueryRun:
    """``queries`` over ``streams``, submitted at once at ``submitter`` (default: the consumer) and taken at ``consumer``.

    ``faults`` strike once all queries run. ``random_faults`` more are drawn from the cluster's seed, for the hosts of the
    operators. Before the first submission, the nodes have ``settle_s`` seconds for their coordinates to settle; with
    ``coordinates`` they begin as if they had been together at these for long.
    """

    queries: tuple[RunQuery, ...]
    streams: tuple[StreamDeclaration, ...]
    sources: tuple[SourceDeclaration, ...]
    consumer: str
    submitter: str = ""
    faults: tuple[Fault, ...] = ()
    random_faults: int = 0
    settle_s: float = 0.0
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)

    async def plan(self, query: RunQuery) -> Plan:
        """Return the plan of the node that takes the submission."""
        entries = {
            stream.name: CatalogEntry(declaration=stream, sources=tuple(s for s in self.sources if s.stream == stream.name))
            for stream in self.streams
        }
        return await plan_query(query.sql, entries, query.name, _analyse, decompose=query.decompose)

    async def run(self, cluster: SimulatedCluster, output: Path) -> dict[str, Rows]:
        """Return the rows that each sink has written, in the folder ``output``."""
        if self.coordinates:
            await cluster.warm_start(self.coordinates)
        else:
            cluster.start()
            await cluster.together()
        await cluster.sleep(self.settle_s)
        submitter = self.submitter or self.consumer
        await cluster.answer(submitter, self._declare(cluster, submitter))
        await asyncio.gather(
            *(cluster.answer(submitter, self._submit(cluster, submitter, query, output)) for query in self.queries)
        )
        cluster.fault_injector.arm((*self.faults, *self._random_faults(cluster)))
        for query in self.queries:
            while (info := await _description(cluster, submitter, query.name)).state != query_states.FINISHED:
                if info.state in (query_states.FAILED, query_states.STOPPED):
                    raise CheckFailedError(f"{query.name} is {info.state}: {info.reason}")
                await cluster.sleep(0.25)
        await settled(cluster)
        return {query.name: delivered(output, query.name) for query in self.queries}

    async def _declare(self, cluster: SimulatedCluster, submitter: str) -> None:
        daemon = cluster.nodes[submitter].daemon
        for stream in self.streams:
            await daemon.queries.declarations.create_stream(stream)
        for source in self.sources:
            await daemon.hosting.sources.attach(source)

    async def _submit(self, cluster: SimulatedCluster, submitter: str, query: RunQuery, output: Path) -> None:
        sink = SinkSpec(kind="file", options={"path": str(_folder(output, query.name)), "format": "parquet", "part_s": 0.5})
        submission = Submission(
            sql=query.sql,
            name=query.name,
            strategy=query.strategy,
            decompose=query.decompose,
            consumer=self.consumer,
            sink=sink,
        )
        daemon = cluster.nodes[submitter].daemon
        async for event in daemon.submitting.submitter.submit(submission):
            cluster.note("accepted" if isinstance(event, Accepted) else f"{event.step}: {event.message}")
            if isinstance(event, Progress) and event.step == "placing":
                expect(cluster, record_of(cluster, query.name))

    def _random_faults(self, cluster: SimulatedCluster) -> tuple[Fault, ...]:
        if not self.random_faults:
            return ()
        hosts = tuple(name for name, node in cluster.nodes.items() if node.operators())
        stage = Stage(
            tuple(dict.fromkeys(source.node for source in self.sources)),
            hosts,
            (self.consumer,),
            fsync=cluster.config.streams.fsync,
        )
        return random_plan(cluster.seed, stage, most=self.random_faults)


def expect(cluster: SimulatedCluster, record: QueryRecord | None) -> None:
    """Let the checker expect the operators and the sink of a query that is being placed."""
    assert record is not None
    inputs = {operator.id: [spec.stream for spec in operator.inputs] for operator in record.plan.operators}
    cluster.watch.expect(record.id, inputs, record.plan.outputs)


def record_of(cluster: SimulatedCluster, query: str) -> QueryRecord | None:
    """Return the newest record of that name, as the acceptors that are up have it."""
    return max(
        (r for r in records_of(cluster) if r.name == query and not r.withdrawn), key=lambda r: r.submitted_ms, default=None
    )


async def recorded(
    cluster: SimulatedCluster, submitter: SimulatedNode, find: Callable[[], QueryRecord | None]
) -> QueryRecord | None:
    """Return the record that ``find`` returns, once the submitter is up.

    None, or one that is being placed, only while all nodes are up: one that is down may keep it, or its next state.
    """
    while True:
        await cluster.until(lambda: submitter.ready)
        record = find()
        if (record is not None and record.state != query_states.PLACING) or all(node.ready for node in cluster.nodes.values()):
            return record
        await cluster.sleep(0.25)


def records_of(cluster: SimulatedCluster) -> list[QueryRecord]:
    """Return all records, each in the newest state that an acceptor which is up has accepted."""
    newest: dict[str, tuple[states.Accepted, DocumentStore]] = {}
    for node in cluster.nodes.values():
        for key, accepted in node.daemon.ownership.acceptors.accepted() if node.ready else ():
            if key.startswith(QUERY) and (key not in newest or newest[key][0].ballot < accepted.ballot):
                newest[key] = accepted, node.daemon.ownership.acceptors.documents
    return [joined(accepted.state, partial(_document, at)) for accepted, at in newest.values()]


def _document(documents: DocumentStore, digest: str) -> bytes:
    content = documents.get(digest)
    assert content is not None, f"an acceptor has accepted a record without its document {digest}"
    return content


async def _analyse(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
    return output_schema(fragment, inputs)


async def _description(cluster: SimulatedCluster, submitter: str, query: str) -> QueryInfo:
    """Return the submitter's report on the query, as soon as it can answer."""
    while True:
        await cluster.until(lambda: cluster.nodes[submitter].ready)
        try:
            return await cluster.answer(submitter, cluster.nodes[submitter].daemon.queries.lookup.query(query))
        except NodeDiedError:
            await cluster.sleep(0.1)


def delivered(output: Path, query: str) -> Rows:
    """Return the rows that the query's sink has written so far."""
    tables = [pq.read_table(file) for file in sorted(_folder(output, query).glob("*.parquet"))]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def _folder(output: Path, query: str) -> Path:
    return output / f"rows of {query}"
