"""The suite over simulated daemons: several queries on one cluster, its faults drawn from a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from sbon_lab.simulation.checks import CheckFailedError
from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.faults.plan import AtTime, Fault
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.outcome import Ended, Outcome, run_cluster
from sbon_lab.simulation.query_run import QueryRun, Rows, RunQuery
from sbon_lab.suite.cases import Case
from sbon_lab.suite.streams import SITES, SuiteStream
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.engine.settings import EngineSettings
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.plan import Decompose, Plan
from sbon_protocol.api.states import query_states

NODES = (*SITES, "hub")
PARTITION_S = 60.0
STRATEGIES = ("relaxation", "producer", "consumer", "random")


def run_cases(
    cases: Sequence[Case],
    streams: Mapping[str, SuiteStream],
    seed: int,
    random_faults: int = 0,
    *,
    per_batch: bool = False,
    partitioned: str = "",
) -> tuple[Outcome, dict[str, Rows]]:
    """How it went, and the rows of each case. Every site reads at its own pace: in 0.4 to 2 s a whole input.

    With ``per_batch``, all aggregates that can are decomposed, and their partial ones keep no state. The node ``partitioned``
    takes the submissions, has no part of the queries, and is cut off once they run; they must end meanwhile.
    """
    rng = random.Random(f"virtual time/{seed}")
    sources = [_source(source, rng, unpaced=per_batch) for stream in streams.values() for source in stream.sources(seconds=1.0)]
    decompose: Decompose = "always" if per_batch else "auto"
    nodes, strategies = ((*NODES, partitioned), ("producer", "consumer")) if partitioned else (NODES, STRATEGIES)
    queries = tuple(RunQuery(case.name.replace("_", "-"), case.sql, rng.choice(strategies), decompose) for case in cases)
    faults = (Fault(AtTime(0.0), "partition", partitioned, down_s=PARTITION_S),) if partitioned else ()
    declared = tuple(stream.declaration for stream in streams.values())
    play = QueryRun(
        queries, declared, tuple(sources), consumer="hub", submitter=partitioned, faults=faults, random_faults=random_faults
    )
    found: dict[str, Rows] = {}
    config = msgspec.structs.replace(
        CONFIG,
        connectors=ConnectorSettings(linger_s=rng.choice((0.1, 0.3)), retry_max_s=2.0),
        engine=EngineSettings(max_operators=100),
        control=msgspec.structs.replace(CONFIG.control, cores=64.0, memory_mb=64_000.0),
        streams=msgspec.structs.replace(CONFIG.streams, batch_span_frames=rng.choice((2, 5, 40))),
    )
    delays = {frozenset((one, other)): rng.uniform(0.001, 0.15) for one in nodes for other in nodes if one < other}

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        quality = NetworkQuality(jitter=0.3)
        return SimulatedCluster(
            loop, seed, nodes, root, config=config, latency=lambda a, b: delays.get(frozenset((a, b)), 0.0), quality=quality
        )

    async def run(cluster: SimulatedCluster, root: Path) -> Ended:
        meanwhile = asyncio.ensure_future(_end_meanwhile(cluster, queries)) if partitioned else None
        rows = await play.run(cluster, root)
        if meanwhile is not None:
            await meanwhile
        found.update({case.name: rows[query.name] for case, query in zip(cases, queries, strict=True)})
        return Ended(0, "finished")

    replay = f"run_cases({[case.name for case in cases]}, streams, {seed}, {random_faults}, {per_batch=}, {partitioned=})"
    return run_cluster(build, run, seed=seed, max_time_s=3600.0, replay=replay), found


async def _end_meanwhile(cluster: SimulatedCluster, queries: Sequence[RunQuery]) -> None:
    """Check that the queries finish, as the hub sees it, before the partition is over."""
    await cluster.until(lambda: bool(cluster.fault_injector.broken))
    for query in queries:
        while (
            await cluster.answer("hub", cluster.at("hub").daemon.queries.lookup.query(query.name))
        ).state != query_states.FINISHED:
            await cluster.sleep(0.5)
    if not cluster.fault_injector.broken:
        raise CheckFailedError("a query waited for the node that took its submission")


def planned(case: Case, streams: Mapping[str, SuiteStream]) -> Plan:
    """The plan of a case whose aggregates are decomposed, with partial ones without state."""
    rng = random.Random(0)
    sources = [_source(source, rng, unpaced=True) for stream in streams.values() for source in stream.sources(seconds=1.0)]
    query = RunQuery("q", case.sql, "producer", "always")
    declared = tuple(stream.declaration for stream in streams.values())
    return asyncio.run(QueryRun((query,), declared, tuple(sources), consumer="hub").plan(query))


def _source(source: SourceDeclaration, rng: random.Random, *, unpaced: bool) -> SourceDeclaration:
    speed = source.options["replay"] / rng.uniform(0.4, 2.0)
    return msgspec.structs.replace(source, options={**source.options, "replay": speed}, unpaced=unpaced)
