"""Scenarios: one query over generated input on simulated daemons, and what befalls them, as a TOML file.

The rows at the sink are compared with the fragment evaluated over the sources' own rows: each must be there exactly once.
"""

from __future__ import annotations

import json
import random
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from sbon_node.connectors.registry import open_source
from sbon_node.control.report import Accepted, SinkSpec, Submission
from sbon_node.engine.interface import Column
from sbon_node.query.catalog import SourceDeclaration, StreamDeclaration
from sbon_node.simulation.checks import CheckFailedError
from sbon_node.simulation.cluster import SimulatedCluster
from sbon_node.simulation.disk import watched_databases
from sbon_node.simulation.evaluate import fragment
from sbon_node.simulation.faults import Fault, Stage, random_plan
from sbon_node.simulation.harness import Outcome, in_memory
from sbon_node.simulation.loop import VirtualLoop, VirtualTimeError, run
from sbon_node.simulation.network import NetworkQuality


class ScenarioSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``rows`` generated at ``node``; ``columns`` as the connector ``generator`` takes them."""

    node: str
    rows: int
    rate: float = 0.0
    columns: dict[str, Any] = {}


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``sql`` reads the stream ``numbers``, whose columns are ``schema`` (name to type). ``faults`` strike once the query runs;
    ``random_faults`` more are drawn from the seed."""

    name: str
    nodes: tuple[str, ...]
    schema: dict[str, str]
    event_time: str
    sources: tuple[ScenarioSource, ...]
    sql: str
    consumer: str
    submit_at: str = ""
    strategy: str = "relaxation"
    latency_ms: float = 12.0
    quality: NetworkQuality = NetworkQuality()
    faults: tuple[Fault, ...] = ()
    random_faults: int = 0
    max_time_s: float = 1800.0


def load_scenario(path: Path) -> Scenario:
    return msgspec.convert(tomllib.loads(path.read_text()), Scenario)


def run_scenario(scenario: Scenario, *, seed: int | str) -> Outcome:
    """From the first node's start until the query has finished."""
    clusters: list[SimulatedCluster] = []

    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        delay_s = scenario.latency_ms / 1000
        clusters.append(
            SimulatedCluster(loop, seed, scenario.nodes, Path(root), latency=lambda a, b: delay_s, quality=scenario.quality)
        )
        with watched_databases(clusters[0].disks):
            await _play(clusters[0], scenario, Path(root) / "rows.ndjson")

    failure = ""
    with tempfile.TemporaryDirectory(prefix="sbon-simulation-", dir=in_memory()) as root:
        try:
            run(main, seed=seed, max_time_s=scenario.max_time_s)
        except (CheckFailedError, VirtualTimeError) as error:
            failure = (
                f"{error}\nreplay: python -m sbon_node.simulation --seed {seed} --scenario tests/scenarios/{scenario.name}.toml"
            )
    (cluster,) = clusters
    unstruck = tuple(cluster.plan.never_struck())
    return Outcome(failure, tuple(cluster.trace), cluster.checker.checks, cluster.loop.time(), unstruck)


async def _play(cluster: SimulatedCluster, scenario: Scenario, output: Path) -> None:
    cluster.start()
    await cluster.together()
    holder = scenario.submit_at or scenario.consumer
    submitting = cluster.call(holder, _submit(cluster, scenario, output))
    await cluster.until(submitting.done)
    query: str = submitting.result()
    cluster.arm((*scenario.faults, *_random_faults(cluster, scenario)))
    while True:
        await cluster.until(lambda: cluster.at(holder).ready)
        asking = cluster.call(holder, _state(cluster, holder, query))
        await cluster.until(lambda: asking.done(), pause_s=0.25)  # noqa: B023 - awaited before it changes
        state = "" if asking.cancelled() else asking.result()
        if state == "finished":
            break
        if state in ("failed", "stopped"):
            raise CheckFailedError(f"the query is {state}")
    cluster.checker.delivered(_delivered(output), await _oracle(cluster, scenario))
    cluster.verify()


def _delivered(output: Path) -> list[tuple[object, ...]]:
    return [tuple(json.loads(line).values()) for line in output.read_text().splitlines()]


async def _submit(cluster: SimulatedCluster, scenario: Scenario, output: Path) -> str:
    daemon = cluster.at(scenario.submit_at or scenario.consumer).daemon
    await daemon.create_stream(_declared(scenario))
    for source in _sources(scenario):
        await daemon.attach_source(source)
    sink = SinkSpec(kind="file", options={"path": str(output), "format": "ndjson"})
    submission = Submission(sql=scenario.sql, strategy=scenario.strategy, consumer=scenario.consumer, sink=sink)
    async for event in daemon.submit(submission):
        if isinstance(event, Accepted):
            return event.query.id
        cluster.note(f"{event.step}: {event.message}")
    raise CheckFailedError("the submission ended without an answer")


async def _state(cluster: SimulatedCluster, holder: str, query: str) -> str:
    return (await cluster.at(holder).daemon.query(query)).state


def _random_faults(cluster: SimulatedCluster, scenario: Scenario) -> tuple[Fault, ...]:
    """Drawn for where the operators turned out to be."""
    if not scenario.random_faults:
        return ()
    hosts = tuple(name for name, node in cluster.nodes.items() if node.operators())
    stage = Stage(tuple(source.node for source in scenario.sources), hosts, (scenario.consumer,))
    return random_plan(cluster.seed, stage, most=scenario.random_faults)


def _declared(scenario: Scenario) -> StreamDeclaration:
    schema = tuple(Column(name, type_) for name, type_ in scenario.schema.items())
    return StreamDeclaration(name="numbers", schema=schema, event_time=scenario.event_time)


def _sources(scenario: Scenario) -> list[SourceDeclaration]:
    return [
        SourceDeclaration(
            stream="numbers",
            name=f"at-{source.node}",
            node=source.node,
            connector="generator",
            options={"rows": source.rows, "rate": source.rate, "columns": source.columns},
        )
        for source in scenario.sources
    ]


async def _oracle(cluster: SimulatedCluster, scenario: Scenario) -> list[tuple[object, ...]]:
    """The sources' rows, read straight from their connectors, through the query."""
    expected: list[tuple[object, ...]] = []
    for declared in _sources(scenario):
        source = open_source(declared, _declared(scenario), cluster.config.connectors)
        await source.open(None)
        while (chunk := await source.read()) is not None:
            table = fragment(scenario.sql.replace("FROM numbers", "FROM in0"))(pa.Table.from_batches([chunk.rows]))
            expected += [tuple(row.values()) for row in table.to_pylist()]
    return expected
