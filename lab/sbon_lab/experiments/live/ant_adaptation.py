"""Running queries of whole daemons whose operators ants move, in virtual time: the world of ANTS's Figure 3 and Table 1.

Each query is SQL with three operators in a row, over a source that users post rows to. A row of an operator takes its
host some work, so the load of a node is the sum of rate x work over the operators that it runs. Cross traffic is a query at each
node, which stays, and whose work changes. Latencies are true ones: links by the network, queues by the model, of all operators
that run.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec
import numpy as np

from sbon_lab.experiments.adaptation.posts import keep_posting
from sbon_lab.experiments.adaptation.world import SCHEMA, Flow
from sbon_lab.experiments.coordinates.embedding import refitted
from sbon_lab.experiments.harness.experiment import Notify
from sbon_lab.experiments.harness.network import Floats, Network
from sbon_lab.experiments.harness.network_model import name_of, number_of
from sbon_lab.experiments.live.ants import DIMENSIONS, Truth
from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.engine.engine_process import EngineTimes
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.outcome import Ended, run_cluster
from sbon_node.config.config import Config
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.papers.ants.algorithm.chain import Chain, Task
from sbon_node.papers.ants.settings import AntSettings
from sbon_node.placement.model.queueing import Flow as Served
from sbon_node.placement.model.queueing import Server, Service
from sbon_protocol.api.adaptation import ANTS, MOVES, OFF, Adapt
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.queries import Accepted, QueryInfo, SinkSpec, Submission
from sbon_protocol.api.states import query_states
from sbon_protocol.errors import SbonError

UPDATE_S, REST_S, HALF_LIFE_S = 20.0, 20.0, 10.0
"""Pause between rounds of ants, rest after a move, and the time in which measures and loads fade by half;
seconds."""
SETTLE_S, WEIGH_S, POST_S = 30.0, 1.0, 5.0
"""Time in which nodes meet and their cross traffic starts, and pauses between settings of loads and between posts; seconds."""
TASKS, WORK_MS, ROWS_S = 3, (10.0, 40.0), (4.0, 10.0)
"""Operators of a query, work of a row in each, and rows a second; a quarter of the paper's rates with four times the work."""
SHARE, CROSS_ROWS_S = 0.9, 5.0
"""Share of rows that the first operator lets through, and rows a second of the query that is a node's cross traffic."""
ROW_BYTES = 1000.0
CROSSING = "c"
"""Beginning of the name of a node's cross traffic."""


class Chained(NamedTuple):
    """A query of ``TASKS`` operators in a row from the source of ``flow`` to a consumer; its name has no dash."""

    name: str
    consumer: str
    flow: Flow
    work_ms: tuple[float, ...]

    @property
    def sql(self) -> str:
        """A filter, the number of rows by id and second, and its maximum by id and second: all ids differ, so few rows go."""
        counted = (
            f"SELECT window, id, count(*) AS n FROM {self.flow.source.stream} WHERE v < share GROUP BY window(ts, '1 second'), id"
        )
        return f"SELECT id, max(n) AS n FROM ({counted}) AS one GROUP BY window(window_time(one.window), '1 second'), id"

    def rates_s(self) -> list[float]:
        """Return the rows a second that each operator reads."""
        return [self.flow.rows_s, *[self.flow.rows_s * SHARE] * (TASKS - 1)]

    def chain(self) -> Chain:
        batches = (SHARE, *[1.0] * (TASKS - 1))
        tasks = tuple(
            Task(operator=str(number), service=Service(mean_ms=ms), batch=batch)
            for number, (ms, batch) in enumerate(zip(self.work_ms, batches, strict=True))
        )
        return Chain(id=self.name, source=self.flow.source.node, destination=self.consumer, tasks=tasks, rate_s=self.flow.rows_s)

    def rate_for(self, load: float) -> float:
        """Return the rows a second with which all its operators together make that load."""
        now = sum(rate * ms for rate, ms in zip(self.rates_s(), self.work_ms, strict=True)) / 1000.0
        return self.flow.rows_s * load / now


class Seen(NamedTuple):
    """A look at a time: latencies of the running queries in milliseconds, and the least possible ones of each moment."""

    at_s: float
    latency_ms: dict[str, float]
    exact_ms: dict[str, float]
    hosts: dict[str, list[str]]


class Watched(NamedTuple):
    """Findings of a run: its looks, how often ants have placed a query again, and how many operators have moved."""

    looks: list[Seen]
    updates: int
    moves: int

    def mean_ms(self) -> float:
        return fmean(value for look in self.looks for value in look.latency_ms.values())

    def loss_ms(self) -> float:
        return fmean(value - look.exact_ms[name] for look in self.looks for name, value in look.latency_ms.items())


Change = Callable[["Live"], None]


class Plan(NamedTuple):
    """A run: queries by the second in which they arrive, and changes by second; looks every ``every_s``."""

    network: Network
    seed: int
    seconds: float
    every_s: float
    arrivals: dict[float, Sequence[Chained]]
    changes: dict[float, Change]
    adapts: bool = True
    beta: float = 1.1
    cross: bool = True


class Live:
    """The daemons with their loads. ``cross`` is the load of each node by its cross traffic."""

    _cluster: SimulatedCluster

    def __init__(self, plan: Plan, notify: Notify) -> None:
        self._plan, self._notify = plan, notify
        self._names = [name_of(node) for node in range(plan.network.nodes)]
        self.cross: Floats = np.zeros(len(self._names))
        self.running: dict[str, Chained] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._updates: dict[tuple[str, int], None] = {}
        self._moves = 0
        self._looks: list[Seen] = []

    def work_s(self, operator: str) -> float:
        """Return the work of a row of an operator of a daemon."""
        name, number = operator.partition("-")[0], _number(operator)
        if name in self.running:
            return self.running[name].work_ms[number] / 1000.0
        return float(self.cross[number_of(name.removeprefix(CROSSING))]) / CROSS_ROWS_S if name.startswith(CROSSING) else 0.0

    async def run(self, cluster: SimulatedCluster) -> Watched:
        plan, self._cluster = self._plan, cluster
        try:
            if plan.cross:
                for name in self._names:
                    await self._begin(_crossing(name), OFF, "producer", f"SELECT id FROM cross{name} WHERE v < share")
            self._tasks.append(asyncio.create_task(self._weigh()))
            await cluster.sleep(SETTLE_S)
            return await self._watch()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    async def _watch(self) -> Watched:
        plan, cluster = self._plan, self._cluster
        began_s, seconds = (
            cluster.loop.time(),
            sorted({*plan.arrivals, *plan.changes, *np.arange(0, plan.seconds + 1, plan.every_s).tolist()}),
        )
        for second in seconds:
            await cluster.sleep(max(0.0, began_s + second - cluster.loop.time()))
            self._notify(f"second {second:.0f} of {plan.seconds:.0f}")
            if second in plan.changes:
                plan.changes[second](self)
            for query in plan.arrivals.get(second, ()):
                await self._begin(query, ANTS if plan.adapts else OFF, "ants", query.sql)
                self.running[query.name] = query
            if second % plan.every_s == 0:
                await self._look(second)
            for task in self._tasks:
                if task.done():
                    task.result()
        return Watched(self._looks, len(self._updates), self._moves)

    async def _begin(self, query: Chained, adapt: Adapt, strategy: str, sql: str) -> None:
        """Declare the stream and the source, submit the query, and post rows from now on."""
        cluster, at, source = self._cluster, query.consumer, query.flow.source
        daemon = cluster.nodes[at].daemon
        await cluster.answer(
            at, daemon.queries.declarations.create_stream(StreamDeclaration(name=source.stream, schema=SCHEMA, event_time="ts"))
        )
        await cluster.answer(at, daemon.hosting.sources.attach(source))
        rng = np.random.default_rng((self._plan.seed, 47, len(self._tasks)))
        self._tasks.append(asyncio.create_task(keep_posting(cluster, query.flow, POST_S, rng)))

        async def submit() -> None:
            sink = SinkSpec(kind="blackhole")
            submission = Submission(
                sql=sql, name=query.name, strategy=strategy, decompose="never", adapt=adapt, sink=sink, reuse="never"
            )
            accepted = [event async for event in daemon.submitting.submitter.submit(submission) if isinstance(event, Accepted)]
            if len(accepted) != 1:
                raise SbonError("simulation-failed", f"{query.name} was not accepted", where=at)

        await cluster.answer(at, submit())

    async def _weigh(self) -> None:
        """Let each machine have the load of what its daemon runs, for ever. It is an average, as that of real machines."""
        share = 0.5 ** (WEIGH_S / HALF_LIFE_S)
        while True:
            for name, cross in zip(self._names, self.cross, strict=True):
                node, load = self._cluster.nodes[name], float(cross)
                for operator in node.daemon.hosting.operators.hosted():
                    query = self.running.get(operator.partition("-")[0])
                    if query is not None:
                        load += query.rates_s()[_number(operator)] * self.work_s(operator)
                node.load_per_core = share * node.load_per_core + (1 - share) * load
            await self._cluster.sleep(WEIGH_S)

    async def _look(self, second: float) -> None:
        hosts: dict[str, list[str]] = {}
        for name, query in self.running.items():
            at = query.consumer
            info: QueryInfo = await self._cluster.answer(at, self._cluster.nodes[at].daemon.queries.lookup.query(name))
            if info.state != query_states.RUNNING:
                raise SbonError("simulation-failed", f"{name} is {info.state}: {info.reason}")
            hosts[name] = [one.node for one in sorted(info.operators, key=lambda one: _number(one.id))]
            decided = (one for operator in info.operators for one in operator.decisions if one.verdict == MOVES)
            self._updates |= {(name, one.at_ms): None for one in decided}
        if self._looks:
            before = self._looks[-1].hosts
            self._moves += sum(a != b for name, now in hosts.items() for a, b in zip(before.get(name, now), now, strict=True))
        latencies, exact = {}, {}
        for name, query in self.running.items():
            truth = self._truth({other: at for other, at in hosts.items() if other != name})
            latencies[name], exact[name] = truth.latency_ms(query.chain(), hosts[name]), truth.exact_ms(query.chain())
        self._looks.append(Seen(second, latencies, exact, hosts))

    def _truth(self, others: dict[str, list[str]]) -> Truth:
        """Return the servers with the cross traffic and with other queries on their hosts."""
        truth = Truth(self._plan.network)
        for name, load in zip(self._names, self.cross, strict=True):
            served = Served(rate_s=CROSS_ROWS_S, service=Service(mean_ms=1000.0 * float(load) / CROSS_ROWS_S))
            truth.cells[name].serve(Server(flows=(served,) if load else ()))
        for other, hosts in others.items():
            truth.latency_ms(self.running[other].chain(), hosts, stay=True)
        return truth


def watched(plan: Plan, notify: Notify) -> Watched:
    """Return the findings of a run. Raises :class:`SbonError` ``simulation-failed``."""
    network, live, found = plan.network, Live(plan, notify), list[Watched]()
    positions = refitted(network, DIMENSIONS, plan.seed).tolist()
    coordinates = {
        name_of(node): Coordinate(vector=tuple(place[:-1]), height=max(0.0, place[-1]), error=0.1)
        for node, place in enumerate(positions)
    }

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        def one_way_s(source: str, target: str) -> float:
            return float(network.latency_ms[number_of(source), number_of(target)]) / 1000

        quality, times = NetworkQuality(spike=0.0), EngineTimes(work_s=live.work_s)
        config, names = _config(plan.beta), tuple(coordinates)
        return SimulatedCluster(loop, plan.seed, names, root, config=config, latency=one_way_s, quality=quality, times=times)

    async def run(cluster: SimulatedCluster, root: Path) -> Ended:
        await cluster.warm_start(coordinates)
        found.append(await live.run(cluster))
        return Ended(0, "watched")

    outcome = run_cluster(build, run, seed=plan.seed, max_time_s=plan.seconds + 3600, replay="sbon experiment ants-live")
    if outcome.failure:
        raise SbonError("simulation-failed", outcome.failure)
    return found[0]


def drawn(number: int, nodes: int, rng: np.random.Generator, share: float = 1.0) -> Chained:
    """Return a query between two nodes, with a share of the usual rows a second."""
    source, consumer = (name_of(node) for node in rng.permutation(nodes)[:2].tolist())
    work_ms = tuple(float(ms) for ms in rng.uniform(*WORK_MS, TASKS))
    return Chained(f"q{number}", consumer, _flow(f"rows{number}", source, share * float(rng.uniform(*ROWS_S))), work_ms)


def _crossing(node: str) -> Chained:
    return Chained(f"{CROSSING}{node}", node, _flow(f"cross{node}", node, CROSS_ROWS_S), ())


def _flow(stream: str, node: str, rows_s: float) -> Flow:
    options = {"timestamp_format": "epoch_ms"}
    source = SourceDeclaration(
        stream=stream, name="posted", node=node, connector="http", options=options, rows_s=rows_s, row_bytes=ROW_BYTES
    )
    return Flow(source, rows_s, SHARE)


def _number(operator: str) -> int:
    """Return the place of an operator in its query: they are ``b0``, ``o1``, ``o2``."""
    return int(operator.rpartition(".")[2][1:])


def _config(beta: float) -> Config:
    ants = AntSettings(update_s=UPDATE_S, rest_s=REST_S, beta=beta, tell_s=UPDATE_S / 4)
    control = msgspec.structs.replace(CONFIG.control, cores=8.0, memory_mb=1e6)
    streams = msgspec.structs.replace(CONFIG.streams, measures_half_life_s=HALF_LIFE_S)
    engine = msgspec.structs.replace(CONFIG.engine, max_operators=1000)
    return msgspec.structs.replace(CONFIG, ants=ants, control=control, streams=streams, engine=engine)
