"""A query over whole daemons, from the declaration of its streams until it has finished and left nothing behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from sbon_node.control.report import Accepted, QueryInfo, SinkSpec, Submission
from sbon_node.engine.interface import Schema
from sbon_node.query.catalog import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_node.query.plan import Plan
from sbon_node.query.planner import Decompose, plan_query
from sbon_node.simulation.checks import CheckFailedError
from sbon_node.simulation.cluster import NodeDiedError, SimulatedCluster
from sbon_node.simulation.evaluate import output_schema
from sbon_node.simulation.faults import Fault, Stage, random_plan
from sbon_node.simulation.left import settled

QUERY = "query"


@dataclass(frozen=True)
class QueryPlay:
    """``sql`` over ``streams``, submitted at ``holder`` (by default the consumer). ``faults`` strike once the query runs;
    ``random_faults`` more are drawn from the cluster's seed, for where its operators turn out to be. Before it is submitted,
    the nodes have ``settle_s`` seconds to find their coordinates."""

    sql: str
    streams: tuple[StreamDeclaration, ...]
    sources: tuple[SourceDeclaration, ...]
    consumer: str
    holder: str = ""
    strategy: str = "relaxation"
    faults: tuple[Fault, ...] = ()
    random_faults: int = 0
    settle_s: float = 0.0
    decompose: Decompose = "auto"

    async def plan(self) -> Plan:
        """As the node plans it that takes the submission."""
        entries = {
            one.name: CatalogEntry(declaration=one, sources=tuple(s for s in self.sources if s.stream == one.name))
            for one in self.streams
        }
        return await plan_query(self.sql, entries, QUERY, _analyse, decompose=self.decompose)

    async def run(self, cluster: SimulatedCluster, output: Path) -> list[tuple[object, ...]]:
        """The rows its sink has written, in the folder ``output``."""
        plan = await self.plan()
        inputs = {operator.id: [one.stream for one in operator.inputs] for operator in plan.operators}
        cluster.watch.expect(QUERY, inputs, plan.outputs)
        cluster.start()
        await cluster.together()
        await cluster.sleep(self.settle_s)
        holder = self.holder or self.consumer
        await cluster.answer(holder, self._submit(cluster, holder, output))
        cluster.strikes.arm((*self.faults, *self._random_faults(cluster)))
        while (told := await _told(cluster, holder)).state != "finished":
            if told.state in ("failed", "stopped"):
                raise CheckFailedError(f"the query is {told.state}: {told.reason}")
            await cluster.sleep(0.25)
        await settled(cluster)
        return _delivered(output)

    async def _submit(self, cluster: SimulatedCluster, holder: str, output: Path) -> None:
        daemon = cluster.nodes[holder].daemon
        for stream in self.streams:
            await daemon.create_stream(stream)
        for source in self.sources:
            await daemon.attach_source(source)
        sink = SinkSpec(kind="file", options={"path": str(output), "format": "parquet", "part_s": 0.5})
        submission = Submission(
            sql=self.sql, name=QUERY, strategy=self.strategy, decompose=self.decompose, consumer=self.consumer, sink=sink
        )
        async for event in daemon.submit(submission):
            cluster.note("accepted" if isinstance(event, Accepted) else f"{event.step}: {event.message}")

    def _random_faults(self, cluster: SimulatedCluster) -> tuple[Fault, ...]:
        if not self.random_faults:
            return ()
        hosts = tuple(name for name, node in cluster.nodes.items() if node.operators())
        stage = Stage(tuple(dict.fromkeys(source.node for source in self.sources)), hosts, (self.consumer,))
        return random_plan(cluster.seed, stage, most=self.random_faults)


async def _analyse(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
    return output_schema(fragment, inputs)


async def _told(cluster: SimulatedCluster, holder: str) -> QueryInfo:
    """What the record's holder tells of the query, as soon as it can."""
    while True:
        await cluster.until(lambda: cluster.nodes[holder].ready)
        try:
            return await cluster.answer(holder, cluster.nodes[holder].daemon.query(QUERY))
        except NodeDiedError:
            await cluster.sleep(0.1)


def _delivered(output: Path) -> list[tuple[object, ...]]:
    tables = [pq.read_table(file) for file in sorted(output.glob("*.parquet"))]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]
