"""One run of the reuse experiment: whole daemons in virtual time, and queries that arrive one after another.

Each reads its streams from their first rows on, whenever it arrives, so that all runs of a world must deliver the same rows.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from sbon_lab.experiments.coordinates.embedding import refitted
from sbon_lab.experiments.harness.network import plain
from sbon_lab.experiments.reuse.links import owners
from sbon_lab.experiments.reuse.world import Query, World, sources_of
from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.leak_check import settled
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.outcome import Ended, run_cluster
from sbon_lab.suite.reference import Row, stored
from sbon_lab.suite.streams import SuiteStream
from sbon_node.config.config import Config
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.overlay.space.settings import SpaceSettings
from sbon_protocol.api.queries import Accepted, QueryInfo, SinkSpec, Submission
from sbon_protocol.api.sharing import Reuse
from sbon_protocol.api.states import query_states
from sbon_protocol.errors import SbonError

LINGER_S = 5.0
"""Seconds for which a producer collects the rows of a frame: fewer of them make the run quicker."""
PATIENCE_S = 300.0
"""Longest time in seconds from the last row until a query has finished."""
PART_S = 600.0
"""Seconds of rows in a file of results."""
DATA = "data"
"""Kind of the frames that carry rows."""


class Observed(NamedTuple):
    """Findings of a run.

    ``accepted`` are the queries as they were accepted, by name, ``ended`` the same ones at their end, ``refused`` the reasons of
    the others. ``stopped`` is the query that was stopped, or empty. ``rows`` are those that the sinks have delivered, by query.
    ``data_bytes`` are those of all frames with rows that nodes sent, ``control_bytes`` of everything else.
    """

    accepted: dict[str, QueryInfo]
    ended: dict[str, QueryInfo]
    refused: dict[str, str]
    stopped: str
    rows: dict[str, list[Row]]
    data_bytes: int
    control_bytes: int
    cpu_s: float


def observe(
    world: World,
    streams: Mapping[str, SuiteStream],
    *,
    reuse: Reuse,
    stop_s: float | None = None,
    seed: int,
    notify: Callable[[str], None] = lambda text: None,
) -> Observed:
    """Run the world until all queries have ended. At ``stop_s`` stop a query: one whose operators others read, if there is one.

    Raises :class:`SbonError` ``simulation-failed``, also if a query fails, or if anything of a query is left at the end.
    """
    positions = refitted(plain("drawn", world.latency_ms), SpaceSettings().dimensions, seed)
    coordinates = {
        name: Coordinate(vector=tuple(row[:-1].tolist()), height=max(0.0, float(row[-1])), error=0.1)
        for name, row in zip(world.names, positions, strict=True)
    }
    observed = list[Observed]()
    number = {name: position for position, name in enumerate(world.names)}

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        def one_way_s(source: str, target: str) -> float:
            return float(world.latency_ms[number[source], number[target]]) / 1000.0

        quality = NetworkQuality(spike=0.0)
        return SimulatedCluster(loop, seed, world.names, root, config=_config(), latency=one_way_s, quality=quality)

    async def play(cluster: SimulatedCluster, root: Path) -> Ended:
        await cluster.warm_start(coordinates)
        observed.append(await _Run(cluster, world, reuse, root, seed, notify).run(streams, stop_s))
        return Ended(0, "watched")

    outcome = run_cluster(build, play, seed=seed, max_time_s=world.seconds + 3600, replay=f"sbon experiment reuse --seed {seed}")
    if outcome.failure:
        raise SbonError("simulation-failed", outcome.failure)
    return observed[0]._replace(cpu_s=outcome.afterwards.cpu_s)


def _config() -> Config:
    connectors = ConnectorSettings(linger_s=LINGER_S)
    return msgspec.structs.replace(CONFIG, connectors=connectors, space=SpaceSettings(algorithm="vivaldi", probe_interval_s=60.0))


class _Run:
    def __init__(
        self, cluster: SimulatedCluster, world: World, reuse: Reuse, root: Path, seed: int, notify: Callable[[str], None]
    ) -> None:
        self._cluster, self._world, self._reuse, self._root, self._notify = cluster, world, reuse, root, notify
        self._seed = seed
        self._accepted: dict[str, QueryInfo] = {}
        self._refused: dict[str, str] = {}
        self._stopped = ""

    async def run(self, streams: Mapping[str, SuiteStream], stop_s: float | None) -> Observed:
        await self._declare(streams)
        before = self._sent()
        acting = [asyncio.create_task(self._begin(query)) for query in self._world.queries]
        if stop_s is not None:
            acting.append(asyncio.create_task(self._stop(stop_s)))
        try:
            await asyncio.gather(*acting)
        finally:
            for task in acting:
                task.cancel()
            await asyncio.wait(acting)
        ended = {query.name: await self._end(query) for query in self._world.queries if query.name in self._accepted}
        data, control = (now - then for now, then in zip(self._sent(), before, strict=True))
        await settled(self._cluster)
        rows = {name: stored(self._path(name)) for name in ended}
        return Observed(self._accepted, ended, self._refused, self._stopped, rows, data, control, 0.0)

    async def _declare(self, streams: Mapping[str, SuiteStream]) -> None:
        at = self._world.names[0]
        daemon = self._cluster.nodes[at].daemon
        for stream in streams.values():
            await self._cluster.answer(at, daemon.queries.declarations.create_stream(stream.declaration))
        for source in sources_of(self._world, streams):
            await self._cluster.answer(at, daemon.hosting.sources.attach(source))

    async def _begin(self, query: Query) -> None:
        """Submit a query at its consumer once it arrives."""
        cluster, daemon = self._cluster, self._cluster.nodes[query.consumer].daemon
        await cluster.sleep(query.at_s)

        async def submit() -> QueryInfo:
            options = {"path": str(self._path(query.name)), "format": "parquet", "part_s": PART_S}
            submission = Submission(
                sql=query.template.sql, name=query.name, reuse=self._reuse, sink=SinkSpec(kind="file", options=options)
            )
            async for event in daemon.submitting.submitter.submit(submission):
                if isinstance(event, Accepted):
                    return event.query
            raise SbonError("simulation-failed", "a submission has ended without an answer", where=query.name)

        try:
            info = await cluster.answer(query.consumer, submit())
        except SbonError as error:
            self._refused[query.name] = f"{error.code}: {error.message}"
            return
        self._accepted[query.name] = info
        self._notify(f"{len(self._accepted)} of {len(self._world.queries)} queries run")

    async def _stop(self, after_s: float) -> None:
        cluster = self._cluster
        await cluster.sleep(after_s)
        chosen = owners(self._accepted) or sorted(self._accepted)
        self._stopped = chosen[int(np.random.default_rng((self._seed, 67)).integers(len(chosen)))]
        at = self._world.names[0]
        await cluster.answer(at, cluster.nodes[at].daemon.queries.lookup.stop(self._stopped))

    async def _end(self, query: Query) -> QueryInfo:
        """Wait for the end of a query, and return it; raise :class:`SbonError` ``simulation-failed`` for any other end."""
        cluster, daemon = self._cluster, self._cluster.nodes[query.consumer].daemon
        expected = query_states.STOPPED if query.name == self._stopped else query_states.FINISHED
        while True:
            info: QueryInfo = await cluster.answer(query.consumer, daemon.queries.lookup.query(query.name))
            if info.state == expected:
                return info
            late = cluster.loop.time() > cluster.met.virtual_s + self._world.seconds + PATIENCE_S
            if info.state not in query_states.LIVE or late:
                raise SbonError("simulation-failed", f"{query.name} is {info.state}: {info.reason}")
            self._notify(f"{query.name} is {info.state} at {cluster.loop.time():.0f} s")
            await cluster.sleep(2.0)

    def _sent(self) -> tuple[int, int]:
        """Return the bytes of rows that all nodes have sent so far, and of all else."""
        data = control = 0
        for node in self._cluster.nodes.values():
            for (_, direction, kind), flow in node.daemon.context.counters.traffic.snapshot().items():
                if direction == "sent":
                    data, control = (data + flow.bytes, control) if kind == DATA else (data, control + flow.bytes)
        return data, control

    def _path(self, query: str) -> Path:
        return self._root / f"rows of {query}"
