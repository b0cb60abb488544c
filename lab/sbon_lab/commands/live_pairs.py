"""Pairs of queries on a local cluster, of which one may migrate, and latencies or loads that change meanwhile."""

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from sbon import SbonError, states
from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.wide_area import WideArea
from sbon.model import SinkSpec, Submission
from sbon.states import LIVE

LOOKS = 5
"""Looks at all queries in a period."""
PATIENCE_S = 300.0
"""Longest time in seconds from the last look until a query has finished."""
START_S = 600.0
"""Longest time for an engine to start on a machine that has other work."""
CALM_LOAD, OVERLOAD, BUSY_LOAD = 0.2, 1.0, 4.0
"""Emulated loads, runnable processes per core: at first; from which operators leave a node; of a node that becomes busy."""
TINY_MB = 1.0
"""Memory for operators at nodes of sources and consumers: too little for one."""


class Plan(NamedTuple):
    """How the pairs run: ``adapt`` is that of the migrating query; ``changes_s`` are the times of changes of latency or load.

    Coordinates settle for ``settle_s`` before the queries. Rows come for ``ahead_s`` beyond the looks, since sources begin before
    all queries run.
    """

    adapt: str
    seconds: float
    period_s: float
    changes_s: Sequence[float]
    seed: int
    change: Literal["latency", "load"] = "latency"
    settle_s: float = 30.0
    ahead_s: float = 60.0

    @property
    def strategy(self) -> str:
        return "ants" if self.adapt == "ants" else "hybrid"


def settings(period_s: float) -> dict[str, Any]:
    """Return the preset eager with another period. Nodes share the machine, so loads are emulated."""
    return {
        **SHORT_LIVED,
        "adaptation.preset": "eager",
        "adaptation.period_s": period_s,
        "adaptation.least_measured_s": period_s,
        "adaptation.rest_s": 2 * period_s,
        "adaptation.return_s": 10 * period_s,
        "adaptation.replace_s": 2 * period_s,
        "adaptation.overload": OVERLOAD,
        "ants.update_s": period_s,
        "ants.rest_s": 2 * period_s,
        "control.cores": 64.0,
        "control.start_timeout_s": START_S + 120.0,
        "directory.fresh_s": 2 * period_s,
        "engine.max_operators": 30,
        "engine.start_timeout_s": START_S,
        "streams.measures_half_life_s": period_s,
    }


def run_pairs(world: Any, plan: Plan, folder: Path, notify: Callable[[str], None]) -> Any:
    """Return what looks at the pairs have shown, a ``PairRun``. Raise :class:`SbonError` of a query that fails."""
    module: Any = importlib.import_module("sbon_lab.experiments.live.pairs")
    seconds = plan.seconds + plan.ahead_s
    streams = {pair.stream: module.write_rows(pair, folder, seconds, plan.seed) for pair in world.pairs}
    area = WideArea(tuple(world.area.names), tuple(tuple(row) for row in world.area.rtt_ms))
    weak = {name: {"control.memory_mb": TINY_MB} for name in world.ends}
    with LocalCluster(area.names, area, overrides=settings(plan.period_s), per_node=weak) as cluster:
        notify("coordinates settle")
        cluster.change_load(dict.fromkeys(area.names, CALM_LOAD))
        time.sleep(plan.settle_s)
        start_engines(cluster, world.pairs[0], streams[world.pairs[0].stream], world.hosts, notify)
        run = _Run(cluster, world, plan, folder, module, notify)
        for pair in world.pairs:
            notify(f"{pair.name} begins")
            run.begin(pair, streams[pair.stream])
        run.watch()
        run.finish()
        return run.result(streams)


def start_engines(cluster: LocalCluster, pair: Any, stream: Any, hosts: Sequence[str], notify: Callable[[str], None]) -> None:
    """Let a short query run at each host, so that no engine has to start while others are measured."""
    client = cluster[pair.consumer].client
    declaration = msgspec.structs.replace(stream.declaration, name="first")
    client.create_stream(declaration)
    for source in stream.sources(pair.nodes):
        client.attach_source(msgspec.structs.replace(source, stream=declaration.name))
    for host in hosts:
        notify(f"the engine of {host} starts")
        sql = f"SELECT id FROM {declaration.name} WHERE id < 10"
        submission = Submission(
            sql=sql, name=f"first-{host}", strategy="consumer", consumer=host, sink=SinkSpec(kind="blackhole"), reuse="never"
        )
        client.submitted(submission)


class _Run:
    """The queries of all pairs on a cluster, from their submission to the comparison of their rows."""

    def __init__(
        self, cluster: LocalCluster, world: Any, plan: Plan, folder: Path, module: Any, notify: Callable[[str], None]
    ) -> None:
        self._cluster, self._world, self._plan, self._folder = cluster, world, plan, folder
        self._module, self._notify = module, notify
        self._figures: Any = importlib.import_module("sbon_lab.experiments.live.pair_figures")
        self._area, self._changed = world.area, list[str]()
        self._seen: list[Any] = []
        self._changes: list[Any] = []
        self._meters = {pair.query(variant): module.Meter() for pair in world.pairs for variant in module.VARIANTS}

    def begin(self, pair: Any, stream: Any) -> None:
        """Attach the sources of a pair and submit both queries; the fixed one begins where the migrating one is."""
        module, client = self._module, self._cluster[pair.consumer].client
        client.create_stream(stream.declaration)
        for source in module.sources_of(pair, stream):
            client.attach_source(source)
        for variant in module.VARIANTS:
            sink = SinkSpec(kind="file", options={"path": str(self._path(pair.query(variant))), "format": "parquet"})
            adapt: Any = self._plan.adapt if variant == module.MIGRATING else "off"
            submission = Submission(
                sql=pair.case.sql,
                name=pair.query(variant),
                strategy=self._plan.strategy,
                consumer=pair.consumer,
                decompose="never",
                adapt=adapt,
                sink=sink,
                reuse="never",
            )
            client.submitted(submission)
        targets = {operator.rpartition(".")[2]: node for operator, node in self._info(pair, module.MIGRATING).hosts().items()}
        for operator, node in self._info(pair, module.FIXED).hosts().items():
            if node != (target := targets[operator.rpartition(".")[2]]):
                for _ in client.move_operator(pair.query(module.FIXED), operator, target):
                    pass

    def watch(self) -> None:
        """Look at all pairs several times in each period, and let nodes become slow or busy at their times."""
        plan, began_s, waiting = self._plan, time.monotonic(), list(self._plan.changes_s)
        every_s = plan.period_s / LOOKS
        while (now_s := time.monotonic() - began_s) < plan.seconds:
            if waiting and now_s >= waiting[0]:
                waiting.pop(0)
                self._change(now_s)
            for pair in self._world.pairs:
                self._look(pair, began_s)
            self._notify(f"{now_s:.0f} of {plan.seconds:.0f} s")
            time.sleep(max(0.0, every_s - (time.monotonic() - began_s - now_s)))

    def finish(self) -> None:
        """Wait until all queries have finished. Raise ``timeout``, or ``query-over`` with the reason of one that failed."""
        deadline = time.monotonic() + self._plan.ahead_s + PATIENCE_S
        for pair in self._world.pairs:
            for variant in self._module.VARIANTS:
                query, client = pair.query(variant), self._cluster[pair.consumer].client
                self._notify(f"{query} finishes")
                while (info := client.query(query)).state in LIVE:
                    if time.monotonic() > deadline:
                        raise SbonError("timeout", f"{query} has not finished: {info.reason}")
                    time.sleep(1.0)
                if info.state != states.FINISHED:
                    raise SbonError("query-over", f"{query} {info.state}: {info.reason}")

    def result(self, streams: Mapping[str, Any]) -> Any:
        """Compare the rows of all queries with DuckDB's, and return the run."""
        answers: Any = importlib.import_module("sbon_lab.suite.reference")
        reference, wrong, rows = answers.Reference(streams), dict[str, int](), dict[str, int]()
        for pair in self._world.pairs:
            expected = reference.answer(pair.case)
            rows[pair.name] = len(expected)
            for variant in self._module.VARIANTS:
                query = pair.query(variant)
                found = answers.stored(self._path(query))
                wrong[query] = len(answers.differences(found, expected, most=len(expected) + 1))
        carried = {query: meter.bytes for query, meter in self._meters.items()}
        over_s = self._seen[-1].at_s if self._seen else 0.0
        return self._figures.PairRun(self._seen, self._changes, over_s, carried, wrong, rows)

    def _change(self, now_s: float) -> None:
        """Let the node that hosts most of the migrating queries become slow or busy; it stays so."""
        hosts = [host for pair in self._world.pairs for host in self._info(pair, self._module.MIGRATING).hosts().values()]
        self._changed.append(changed := self._module.next_changed(self._world, hosts, self._changed))
        if self._plan.change == "load":
            busy = dict.fromkeys(self._changed, BUSY_LOAD)
            self._cluster.change_load({**dict.fromkeys(self._area.names, CALM_LOAD), **busy})
        else:
            self._area = self._module.slowed(self._world.area, self._changed)
            self._cluster.change_latency(WideArea(tuple(self._area.names), tuple(tuple(row) for row in self._area.rtt_ms)))
        self._changes.append(self._figures.Change(now_s, changed))
        self._notify(f"{changed} is {'busy' if self._plan.change == 'load' else 'slow'} from now on")

    def _look(self, pair: Any, began_s: float) -> None:
        """Look at both queries of a pair; a look without an answer is left out."""
        with suppress(SbonError):
            infos = [self._info(pair, variant) for variant in self._module.VARIANTS]
            at_s = time.monotonic() - began_s
            usages = [self._meters[info.id].usage(info, at_s, self._area) for info in infos]
            if None not in usages:
                delays = (self._module.delay_ms(info, self._area) for info in infos)
                self._seen.append(self._figures.Seen(at_s, pair.name, *usages, *delays, infos[0].hosts()))

    def _info(self, pair: Any, variant: str) -> Any:
        return self._module.info_of(self._cluster[pair.consumer].client.query(pair.query(variant)))

    def _path(self, query: str) -> Path:
        return self._folder / f"{query}.parquet"
