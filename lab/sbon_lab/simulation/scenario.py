"""Scenarios: one query over generated input on simulated daemons, with its faults, as a TOML file.

The rows at the sink are compared with DuckDB's over all of the sources' rows at once: each must be there exactly once.
"""

import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta

from sbon_lab.simulation.cluster import SYNCED, SimulatedCluster
from sbon_lab.simulation.engine.duck import run
from sbon_lab.simulation.faults.plan import MAX_TIME_S, AtCall, AtFailpoint, Fault
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.outcome import Ended, Outcome, run_cluster
from sbon_lab.simulation.query_run import QueryRun, RunQuery
from sbon_node.base.validation_messages import in_plain_words
from sbon_node.connectors.sources.registry import open_source
from sbon_node.model.schema import to_arrow
from sbon_node.overlay.space.coordinate import Coordinate
from sbon_node.overlay.space.settings import SpaceSettings
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.errors import SbonError
from sbon_protocol.rtt_matrix import MAX_RTT_MS

QUERY = "query"
MAX_ROWS = 10_000_000


class ScenarioSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``rows`` generated at ``node``; ``columns`` has the format of the connector ``generator``."""

    node: str
    rows: Annotated[int, Meta(ge=0, le=MAX_ROWS)]
    rate: Annotated[float, Meta(ge=0, le=MAX_ROWS)] = 0.0
    columns: dict[str, Any] = {}


class ScenarioStream(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stream; ``schema`` maps name to type."""

    schema: dict[str, str]
    event_time: str
    sources: tuple[ScenarioSource, ...]
    delay_ms: Annotated[int, Meta(ge=0)] = 0

    def declared(self, name: str) -> StreamDeclaration:
        schema = tuple(Column(column, type_) for column, type_ in self.schema.items())
        return StreamDeclaration(name=name, schema=schema, event_time=self.event_time, delay_ms=self.delay_ms)

    def declared_sources(self, name: str) -> list[SourceDeclaration]:
        return [
            SourceDeclaration(
                stream=name,
                name=f"at-{source.node}",
                node=source.node,
                connector="generator",
                options={"rows": source.rows, "rate": source.rate, "columns": source.columns},
            )
            for source in self.sources
        ]


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A simulated cluster, its query and its faults.

    ``answer`` is DuckDB's SQL for ``sql``, where it differs. ``faults`` strike once the query runs; ``random_faults`` more
    are drawn from the seed. With ``warm_start`` the nodes begin with coordinates that have converged.
    """

    name: str
    nodes: Annotated[tuple[str, ...], Meta(min_length=1)]
    streams: dict[str, ScenarioStream]
    sql: str
    consumer: str
    answer: str = ""
    submit_at: str = ""
    strategy: str = "relaxation"
    latency_ms: Annotated[float, Meta(ge=0, le=MAX_RTT_MS / 2)] = 12.0
    quality: NetworkQuality = NetworkQuality()
    faults: tuple[Fault, ...] = ()
    random_faults: Annotated[int, Meta(ge=0, le=1000)] = 0
    max_time_s: Annotated[float, Meta(gt=0, le=MAX_TIME_S)] = 1800.0
    warm_start: bool = False

    def named(self) -> list[tuple[str, str]]:
        """Return every node that is named outside ``nodes``, with the field that names it."""
        nodes = [("consumer", self.consumer)] + ([("submit_at", self.submit_at)] if self.submit_at else [])
        for name, stream in self.streams.items():
            nodes += [(f"streams.{name}.sources[{index}].node", source.node) for index, source in enumerate(stream.sources)]
        for index, fault in enumerate(self.faults):
            nodes.append((f"faults[{index}].node", fault.node))
            nodes += [(f"faults[{index}].other", fault.other)] if fault.other else []
            nodes += [(f"faults[{index}].when.node", fault.when.node)] if isinstance(fault.when, AtFailpoint | AtCall) else []
        return nodes

    @property
    def query_run(self) -> QueryRun:
        return QueryRun(
            queries=(RunQuery(QUERY, self.sql, self.strategy),),
            streams=tuple(stream.declared(name) for name, stream in self.streams.items()),
            sources=tuple(source for name, stream in self.streams.items() for source in stream.declared_sources(name)),
            consumer=self.consumer,
            submitter=self.submit_at,
            faults=self.faults,
            random_faults=self.random_faults,
            coordinates=dict.fromkeys(self.nodes, self._coordinate) if self.warm_start else {},
        )

    @property
    def _coordinate(self) -> Coordinate:
        """The coordinate of every node if all are equally far apart: equal vectors, each with the latency as height."""
        return Coordinate(vector=(0.0,) * SpaceSettings().dimensions, height=self.latency_ms)


def load_scenario(path: Path, nodes: int | None = None) -> Scenario:
    """Load a scenario; with ``nodes``, give it as many nodes in all.

    Raises :class:`SbonError` ``bad-scenario``, naming the file and the field.
    """
    try:
        scenario = msgspec.convert(tomllib.loads(path.read_text()), Scenario)
    except OSError as error:
        raise SbonError("bad-scenario", error.strerror or "cannot be read", where=str(path)) from error
    except msgspec.ValidationError as error:
        field, message = in_plain_words(error, Scenario)
        raise SbonError(
            "bad-scenario", f"{field}: {message}" if field else message, where=str(path), hint="tests/scenarios has examples"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SbonError("bad-scenario", str(error), where=str(path), hint="tests/scenarios has examples") from error
    more = (nodes or 0) - len(scenario.nodes)
    if nodes is not None and more < 0:
        raise SbonError(
            "bad-scenario", f"names {len(scenario.nodes)} nodes", where=str(path), hint="--nodes can only add to them"
        )
    scenario = msgspec.structs.replace(scenario, nodes=(*scenario.nodes, *(f"node-{number}" for number in range(more))))
    twice = [name for name, times in Counter(scenario.nodes).items() if times > 1]
    if twice:
        raise SbonError("bad-scenario", f"nodes: two are called {twice[0]!r}", where=str(path), hint="rename one")
    unknown = next(((field, name) for field, name in scenario.named() if name not in scenario.nodes), None)
    if unknown is not None:
        known = f"nodes has: {', '.join(scenario.nodes)}"
        raise SbonError("bad-scenario", f"{unknown[0]}: there is no node {unknown[1]!r}", where=str(path), hint=known)
    return scenario


def run_scenario(scenario: Scenario, *, seed: int | str, replay: str = "") -> Outcome:
    """Run from the first node's start until the query has ended without leaks; ``replay`` is the command for it."""

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        delay_s = scenario.latency_ms / 1000
        quality = scenario.quality
        return SimulatedCluster(loop, seed, scenario.nodes, root, config=SYNCED, latency=lambda a, b: delay_s, quality=quality)

    async def query_run(cluster: SimulatedCluster, root: Path) -> Ended:
        output = cluster.at(scenario.consumer).disk.add(root / "results")
        delivered = await scenario.query_run.run(cluster, output)
        cluster.watch.checker.delivered(_rounded(delivered[QUERY]), _rounded(await _answer(cluster, scenario)))
        cluster.verify()
        return Ended(0, "finished")

    return run_cluster(build, query_run, seed=seed, max_time_s=scenario.max_time_s, replay=replay)


async def _answer(cluster: SimulatedCluster, scenario: Scenario) -> list[tuple[object, ...]]:
    """Return DuckDB's answer over the sources' rows, read straight from their connectors."""
    tables = {}
    for name, stream in scenario.streams.items():
        declared = stream.declared(name)
        batches = []
        for source_spec in stream.declared_sources(name):
            source = open_source(source_spec, declared, cluster.config.connectors)
            await source.open(None)
            while (chunk := await source.read()) is not None:
                batches.append(chunk.rows)
        tables[name] = pa.Table.from_batches(batches, to_arrow(declared.schema))
    return [tuple(row.values()) for row in run(scenario.answer or scenario.sql, tables)[1].to_pylist()]


def _rounded(rows: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Round floating-point sums, which depend a little on the order of their terms."""
    return [tuple(float(f"{value:.9g}") if isinstance(value, float) else value for value in row) for row in rows]
