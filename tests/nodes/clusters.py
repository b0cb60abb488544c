"""Whole nodes in virtual time: a cluster for tests, and a query to run on it."""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.faults.disk import watched_disks
from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_lab.simulation.network.paths import Latency, NetworkQuality
from sbon_lab.simulation.query_run import record_of
from sbon_node.config.config import Config
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.model.records import OperatorRegister
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.overlay.space.settings import SpaceSettings
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.api.queries import Accepted, QueryInfo, SinkSpec, Submission
from sbon_protocol.calls import DestroyComponents
from sbon_protocol.errors import SbonError

NUMBERS = StreamDeclaration(
    name="numbers", schema=(Column("id", "bigint"), Column("v", "double"), Column("ts", "timestamp")), event_time="ts"
)
UNHURRIED = msgspec.structs.replace(CONFIG, connectors=ConnectorSettings(linger_s=0.2), space=SpaceSettings(algorithm="vivaldi"))
"""Rows share frames, four times as many as by default: fewer batches run, and more tests in the same time. Vivaldi takes a
tenth of the time of refit, and most of the tests here ask for no distances."""
SQL = "SELECT id, v FROM numbers WHERE v >= 0"


def in_cluster(
    tmp_path: Path,
    names: str,
    test: Callable[[SimulatedCluster], Awaitable[None]],
    *,
    seed: int = 1,
    config: Config = UNHURRIED,
    configs: Mapping[str, Config] | None = None,
    late: str = "",
    latency: Latency | None = None,
    quality: NetworkQuality | None = None,
    **control: Any,
) -> None:
    """Run ``test`` on nodes named by the letters of ``names`` that know each other; it boots those in ``late`` itself."""

    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        common = msgspec.structs.replace(config, control=msgspec.structs.replace(config.control, **control))
        cluster = SimulatedCluster(
            loop, seed, (*names, *late), tmp_path / "nodes", config=common, configs=configs, latency=latency, quality=quality
        )
        with watched_disks(cluster.disks):
            cluster.start(names)
            await cluster.together()
            await test(cluster)
            cluster.verify()

    run(main, seed=seed, max_time_s=7200.0)


in_hurried_cluster = partial(in_cluster, config=CONFIG)
"""For queries that share operators of others where that costs little less: more frames cost more."""
_UID = re.compile(r"\b([a-z0-9]+)-[a-hjkmnp-z2-9]{6}\b")


def plain(text: str) -> str:
    """Return a text with names in place of the queries' uids, which differ from run to run."""
    return _UID.sub(r"\1", text)


def uid_of(cluster: SimulatedCluster, name: str = "q") -> str:
    """Return the uid of the newest query of that name."""
    record = record_of(cluster, name)
    assert record is not None
    return record.id


def refuse_ends(cluster: SimulatedCluster, node: str) -> Any:
    """Let a host refuse to end components; return the handler that ends them."""
    server: Any = cluster.at(node).daemon.context.server

    async def refuse(*_: object) -> None:
        raise SbonError("internal", "the order does not arrive")

    serve = server._handlers["destroy-components"]
    server.handle(DestroyComponents, refuse)
    return serve


async def ask(cluster: SimulatedCluster, name: str, work: Any) -> Any:
    """The answer of a node's own face, asked in its process."""
    return await cluster.answer(name, work)


def source_at(node: str, rows: int = 100, rate: float = 50.0) -> SourceDeclaration:
    return SourceDeclaration(
        stream="numbers", name=f"at-{node}", node=node, connector="generator", options={"rows": rows, "rate": rate}
    )


async def declare(cluster: SimulatedCluster, at: str, *sources: SourceDeclaration) -> None:
    daemon = cluster.at(at).daemon
    await ask(cluster, at, daemon.queries.declarations.create_stream(NUMBERS))
    for source in sources:
        await ask(cluster, at, daemon.hosting.sources.attach(source))


async def submit(
    cluster: SimulatedCluster, at: str, path: Path | None, name: str = "q", sql: str = SQL, **fields: Any
) -> QueryInfo:
    """The query as accepted; its results go to a file at ``path``, or to who follows it. Runs in the node's process."""
    sink = SinkSpec() if path is None else SinkSpec(kind="file", options={"path": str(path)})
    async for event in cluster.at(at).daemon.submitting.submitter.submit(
        Submission(**{"sql": sql, "name": name, "sink": sink, **fields})
    ):
        if isinstance(event, Accepted):
            return event.query
    raise AssertionError("the submission ended without an answer")


async def submitted(cluster: SimulatedCluster, at: str, path: Path | None, **fields: Any) -> QueryInfo:
    info: QueryInfo = await ask(cluster, at, submit(cluster, at, path, **fields))
    return info


async def owner_of(cluster: SimulatedCluster, at: str, component: str) -> tuple[str, int]:
    """Host and epoch of an operator or sink, as its register has them."""
    registers = cluster.at(at).daemon.ownership.operators
    register: OperatorRegister = await ask(cluster, at, registers.read(component.rpartition(".")[0], component))
    return register.host, register.epoch


async def state_of(cluster: SimulatedCluster, at: str, query: str = "q") -> QueryInfo:
    info: QueryInfo = await ask(cluster, at, cluster.at(at).daemon.queries.lookup.query(query))
    return info


def in_warm_cluster(
    tmp_path: Path,
    coordinates: Mapping[str, Coordinate],
    test: Callable[[SimulatedCluster], Awaitable[None]],
    *,
    config: Config = CONFIG,
    latency: Latency,
    quality: NetworkQuality | None = None,
    seed: int = 1,
) -> None:
    """Run ``test`` on nodes that are as after a long time together at these coordinates."""

    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        cluster = SimulatedCluster(
            loop, seed, tuple(coordinates), tmp_path / "nodes", config=config, latency=latency, quality=quality
        )
        with watched_disks(cluster.disks):
            await cluster.warm_start(coordinates)
            await test(cluster)
            cluster.verify()

    run(main, seed=seed, max_time_s=7200.0)
