"""One run: whole daemons in virtual time, their queries, the changes, and looks at where the operators are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np

from sbon_lab.experiments.adaptation.posts import keep_posting
from sbon_lab.experiments.adaptation.world import BUSY_LOAD, SLOWER_MS, Change, DrawnQuery, World, straight_ms
from sbon_lab.experiments.coordinates.embedding import refitted
from sbon_lab.experiments.harness.network import plain
from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.outcome import Ended, run_cluster
from sbon_node.adaptation.settings import preset
from sbon_node.config.config import Config
from sbon_node.overlay.directory.settings import DirectorySettings
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.overlay.space.settings import SpaceSettings
from sbon_node.placement.model.from_plan import measured_plan, problem_of
from sbon_node.placement.model.instance import Instance
from sbon_node.placement.model.objective import longest_delay_ms, network_usage
from sbon_node.placement.solvers.exact import solve
from sbon_protocol.api.adaptation import Adapt, MoveDecision
from sbon_protocol.api.queries import Accepted, QueryInfo, SinkSpec, Submission
from sbon_protocol.api.states import query_states
from sbon_protocol.api.strategies import DEFAULT_STRATEGY
from sbon_protocol.errors import SbonError

POSTS = 5
"""Posts to each source in a period. More of them make the run slower, and the measured rates hardly any better."""
CONTROL = ("request", "response")
"""Kinds of frames that carry calls and their answers."""


class Look(NamedTuple):
    """A query at a time since it began: usage as placed at first, as it is, and with the best placement; in bytes in transit.

    All three are by the latencies and measured rates of that time. The best placement has no operator on a busy node.
    """

    at_s: float
    query: str
    never: float
    adapting: float
    oracle: float
    delay_ms: float = 0.0
    """One-way latency of its longest path from a source to the consumer, as it is."""
    late: bool = False
    """Whether that breaks its bound, though rows sent straight to the consumer would keep it."""


class Sent(NamedTuple):
    """Bytes that all nodes have sent: datagrams, and calls with their answers; ``messages`` counts them all."""

    datagrams: int
    calls: int
    messages: int = 0

    @property
    def bytes(self) -> int:
        return self.datagrams + self.calls

    def since(self, before: Sent) -> Sent:
        return Sent(*(now - then for now, then in zip(self, before, strict=True)))

    def plus(self, more: Sent) -> Sent:
        return Sent(*(one + other for one, other in zip(self, more, strict=True)))


class Observed(NamedTuple):
    """Findings of a run: looks, and for each operator its hosts with the time of their first look.

    ``decisions`` are in the order of time. ``sent`` is between the looks, in ``between_s`` seconds: a look asks all nodes of a
    query for their decisions, which nobody does without an observer. ``busy`` are the nodes whose load has
    risen, with the time. ``placing`` was sent by all nodes while the queries were submitted, and ``probes`` are those of their
    placements. ``failed`` has the reason of each query that was refused or has ended.
    """

    looks: list[Look]
    hosts: dict[str, list[tuple[float, str]]]
    decisions: list[MoveDecision]
    sent: Sent
    between_s: float
    seconds: float
    cpu_s: float
    busy: tuple[tuple[float, str], ...] = ()
    placing: Sent = Sent(0, 0)
    probes: int = 0
    failed: Mapping[str, str] = MappingProxyType({})


def observe(
    world: World,
    *,
    seed: int,
    seconds: float,
    period_s: float,
    every_s: float,
    adapt: Adapt = "local",
    strategy: str = DEFAULT_STRATEGY,
    may_fail: bool = False,
    notify: Callable[[str], None] = lambda text: None,
) -> Observed:
    """Run the world for ``seconds`` after the queries have been submitted; look every ``every_s``.

    Raises :class:`SbonError` ``simulation-failed``; without ``may_fail`` also if a query ends, and as its submission.
    """
    weather, observed = world.weather, list[Observed]()
    positions = refitted(plain("drawn", weather.rounds[0]), SpaceSettings().dimensions, seed)
    coordinates = {
        name: Coordinate(vector=tuple(row[:-1].tolist()), height=max(0.0, float(row[-1])), error=0.1)
        for name, row in zip(weather.names, positions, strict=True)
    }

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        def one_way_s(source: str, target: str) -> float:
            return weather.between_ms(source, target, loop.time()) / 1000.0

        quality = NetworkQuality(spike=0.0)
        return SimulatedCluster(loop, seed, weather.names, root, config=_config(period_s), latency=one_way_s, quality=quality)

    async def play(cluster: SimulatedCluster, root: Path) -> Ended:
        await cluster.warm_start(coordinates)
        observed.append(
            await _Run(cluster, world, adapt, strategy, may_fail, seed, notify).watch(seconds, every_s, period_s / POSTS)
        )
        return Ended(0, "watched")

    outcome = run_cluster(build, play, seed=seed, max_time_s=seconds + 900, replay="sbon experiment adaptation")
    if outcome.failure:
        raise SbonError("simulation-failed", outcome.failure)
    return observed[0]._replace(cpu_s=outcome.afterwards.cpu_s)


def _config(period_s: float) -> Config:
    """Return the preset eager with another period: rates and measured pairs are as old as a few periods."""
    adaptation = preset("eager", period_s=period_s, least_measured_s=period_s, rest_s=2 * period_s, return_s=10 * period_s)
    streams = msgspec.structs.replace(CONFIG.streams, measures_half_life_s=period_s)
    directory = DirectorySettings(fresh_s=2 * period_s)
    return msgspec.structs.replace(CONFIG, adaptation=adaptation, streams=streams, directory=directory)


class _Run:
    def __init__(
        self,
        cluster: SimulatedCluster,
        world: World,
        adapt: Adapt,
        strategy: str,
        may_fail: bool,
        seed: int,
        notify: Callable[[str], None],
    ) -> None:
        self._cluster, self._world, self._seed, self._notify = cluster, world, seed, notify
        self._adapt, self._strategy, self._may_fail = adapt, strategy, may_fail
        self._failed: dict[str, str] = {}
        self._probes = 0
        self._first: dict[str, dict[str, str]] = {}
        """Hosts by query as they were placed."""
        self._looks: list[Look] = []
        self._hosts: dict[str, list[tuple[float, str]]] = {}
        self._decisions: dict[tuple[str, str, int], MoveDecision] = {}
        self._became_busy: list[tuple[float, str]] = []

    async def watch(self, seconds: float, every_s: float, post_s: float) -> Observed:
        posting = await self._declare(post_s)
        sent = self._sent()
        await asyncio.gather(*(self._begin(query) for query in self._world.queries))
        placing = self._sent().since(sent)
        try:
            return (await self._watch(seconds, every_s, posting))._replace(
                placing=placing, probes=self._probes, failed=dict(sorted(self._failed.items()))
            )
        finally:
            for task in posting:
                task.cancel()
            await asyncio.wait(posting)

    async def _watch(self, seconds: float, every_s: float, posting: list[asyncio.Task[None]]) -> Observed:
        cluster, changes = self._cluster, list(self._world.changes)
        began_s, sent, between_s = cluster.loop.time(), Sent(0, 0), 0.0
        while (now_s := cluster.loop.time() - began_s) < seconds:
            while changes and now_s >= changes[0].at_s:
                self._change(changes.pop(0), now_s)
            for query in self._world.queries:
                if query.name not in self._failed:
                    await self._look(query, now_s)
            for task in posting:
                if task.done():
                    task.result()
            self._notify(f"{now_s:.0f} s of {seconds:.0f}")
            before, slept_s = self._sent(), cluster.loop.time()
            await cluster.sleep(every_s)
            sent, between_s = sent.plus(self._sent().since(before)), between_s + cluster.loop.time() - slept_s
        return Observed(
            self._looks,
            self._hosts,
            sorted(self._decisions.values(), key=lambda one: (one.at_ms, one.operator)),
            sent,
            between_s,
            now_s,
            0.0,
            tuple(self._became_busy),
        )

    async def _declare(self, post_s: float) -> list[asyncio.Task[None]]:
        """Declare all streams and sources, and begin to post rows."""
        tasks = []
        for number, query in enumerate(self._world.queries):
            daemon = self._cluster.nodes[query.consumer].daemon
            for stream in query.streams:
                await self._cluster.answer(query.consumer, daemon.queries.declarations.create_stream(stream))
            for part, flow in enumerate(query.flows):
                await self._cluster.answer(query.consumer, daemon.hosting.sources.attach(flow.source))
                rng = np.random.default_rng((self._seed, 43, number, part))
                tasks.append(asyncio.create_task(keep_posting(self._cluster, flow, post_s, rng)))
        return tasks

    async def _begin(self, query: DrawnQuery) -> None:
        cluster, at = self._cluster, query.consumer
        daemon = cluster.nodes[at].daemon

        async def submit() -> None:
            submission = Submission(
                sql=query.sql,
                name=query.name,
                decompose="never",
                adapt=self._adapt,
                strategy=self._strategy,
                max_delay_ms=query.max_delay_ms,
                sink=SinkSpec(kind="blackhole"),
                reuse="never",
            )
            async for event in daemon.submitting.submitter.submit(submission):
                if isinstance(event, Accepted):
                    self._first[query.name] = event.query.hosts()
                    self._probes += event.query.placement.probes if event.query.placement is not None else 0

        try:
            await cluster.answer(at, submit())
        except SbonError as error:
            if not self._may_fail:
                raise
            self._failed[query.name] = f"{error.code}: {error.message}"

    def _change(self, change: Change, now_s: float) -> None:
        """Let the world change, whatever has adapted to it: all variants share one world.

        A node that becomes slow or busy is the one that has got most operators at first, of those that could be elsewhere. Where
        none could, it is a node that is no end of a query, if there is one.
        """
        if change.kind in ("rate", "selectivity"):
            self._world.queries[change.query].flows[0].change(change.kind)
            return
        slower, busy = self._world.weather.slower, self._busy()
        for node in busy if change.kind == "load" else ():
            self._cluster.nodes[node].load_per_core = 0.0
        ends = {query.name: query.ends for query in self._world.queries}
        placed = Counter(at for query, hosts in self._first.items() for at in hosts.values() if at not in ends[query])
        at_ends = frozenset[str]().union(*ends.values())
        chosen = next(
            node
            for node in sorted(self._world.weather.names, key=lambda name: (-placed[name], name in at_ends, name))
            if node not in {*slower, *busy}
        )
        if change.kind == "latency":
            slower[chosen] = SLOWER_MS
        else:
            self._cluster.nodes[chosen].load_per_core = BUSY_LOAD
            self._became_busy.append((now_s, chosen))

    def _busy(self) -> list[str]:
        return [name for name, node in self._cluster.nodes.items() if node.load_per_core >= BUSY_LOAD]

    async def _look(self, query: DrawnQuery, now_s: float) -> None:
        info: QueryInfo = await self._cluster.answer(
            query.consumer, self._cluster.nodes[query.consumer].daemon.queries.lookup.query(query.name)
        )
        if info.state != query_states.RUNNING or info.plan is None:
            self._failed[query.name] = f"{info.state}: {info.reason}"
            if self._may_fail:
                return
            raise SbonError("simulation-failed", f"{query.name} is {info.state}: {info.reason}")
        for operator in info.operators:
            seen = self._hosts.setdefault(operator.id, [])
            if not seen or seen[-1][1] != operator.node:
                seen.append((now_s, operator.node))
            self._decisions |= {(one.operator, one.code, one.at_ms): one for one in operator.decisions}
        weather, virtual_s = self._world.weather, self._cluster.loop.time()
        problem = problem_of(measured_plan(info.plan, info.operators, info.shared), info.consumer, None, info)
        names, busy = weather.names, self._busy()
        hosts = np.array([number for number, name in enumerate(names) if name not in busy])
        instance = Instance(problem, names, weather.at(virtual_s), [hosts] * len(problem.operators))
        best = instance.named(solve(instance).hosts.tolist())

        def latency_ms(a: str, b: str) -> float:
            return weather.between_ms(a, b, virtual_s)

        placements = (self._first[query.name], info.hosts(), best)
        never, adapting, oracle = (network_usage(problem, placed, latency_ms) for placed in placements)
        delay_ms = longest_delay_ms(problem, info.hosts(), latency_ms)
        bound_ms = query.max_delay_ms
        late = bound_ms is not None and straight_ms(query, weather, virtual_s) <= bound_ms < delay_ms
        self._looks.append(Look(now_s, query.name, never, adapting, oracle, delay_ms, late))

    def _sent(self) -> Sent:
        flows = [node.daemon.context.counters.traffic.snapshot() for node in self._cluster.nodes.values()]
        calls = [flow for one in flows for (_, way, kind), flow in one.items() if way == "sent" and kind in CONTROL]
        nodes = [self._cluster.network.traffic(name) for name in self._world.weather.names]
        return Sent(
            sum(one.datagram_bytes_sent for one in nodes),
            sum(flow.bytes for flow in calls),
            sum(one.datagrams_sent for one in nodes) + sum(flow.messages for flow in calls),
        )
