"""Scenarios: one query over generated input on simulated daemons, and what befalls them, as a TOML file.

The rows at the sink are compared with the fragment evaluated over the sources' own rows: each must be there exactly once.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from sbon_node.connectors.registry import open_source
from sbon_node.control.report import Accepted, SinkSpec, Submission
from sbon_node.engine.interface import Column
from sbon_node.query.catalog import SourceDeclaration, StreamDeclaration
from sbon_node.simulation.checks import CheckFailedError
from sbon_node.simulation.cluster import NodeDiedError, SimulatedCluster
from sbon_node.simulation.evaluate import rows_of
from sbon_node.simulation.faults import Fault, Stage, random_plan
from sbon_node.simulation.left import settled
from sbon_node.simulation.loop import VirtualLoop
from sbon_node.simulation.network import NetworkQuality
from sbon_node.simulation.outcome import Ended, Outcome, run_cluster

QUERY = "query"


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
    """From the first node's start until the query has finished, and left nothing behind."""

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        delay_s = scenario.latency_ms / 1000
        return SimulatedCluster(loop, seed, scenario.nodes, root, latency=lambda a, b: delay_s, quality=scenario.quality)

    async def play(cluster: SimulatedCluster, root: Path) -> Ended:
        return await _play(cluster, scenario, root / "rows.ndjson")

    replay = f"python -m sbon_node.simulation --seed {seed} --scenario tests/scenarios/{scenario.name}.toml"
    return run_cluster(build, play, seed=seed, max_time_s=scenario.max_time_s, replay=replay)


async def _play(cluster: SimulatedCluster, scenario: Scenario, output: Path) -> Ended:
    cluster.start()
    await cluster.together()
    holder = scenario.submit_at or scenario.consumer
    cluster.watch.expect(QUERY, [source.id for source in sorted(_sources(scenario), key=lambda source: source.name)])
    await cluster.answer(holder, _submit(cluster, scenario, output))
    cluster.strikes.arm((*scenario.faults, *_random_faults(cluster, scenario)))
    while (state := await _state(cluster, holder)) != "finished":
        if state in ("failed", "stopped"):
            raise CheckFailedError(f"the query is {state}")
        await cluster.sleep(0.25)
    await settled(cluster)
    cluster.watch.checker.delivered(_delivered(output), await _oracle(cluster, scenario))
    cluster.verify()
    return Ended(0, state)


def _delivered(output: Path) -> list[tuple[object, ...]]:
    return [tuple(json.loads(line).values()) for line in output.read_text().splitlines()]


async def _submit(cluster: SimulatedCluster, scenario: Scenario, output: Path) -> None:
    daemon = cluster.nodes[scenario.submit_at or scenario.consumer].daemon
    await daemon.create_stream(_declared(scenario))
    for source in _sources(scenario):
        await daemon.attach_source(source)
    sink = SinkSpec(kind="file", options={"path": str(output), "format": "ndjson"})
    submission = Submission(sql=scenario.sql, name=QUERY, strategy=scenario.strategy, consumer=scenario.consumer, sink=sink)
    async for event in daemon.submit(submission):
        cluster.note("accepted" if isinstance(event, Accepted) else f"{event.step}: {event.message}")


async def _state(cluster: SimulatedCluster, holder: str) -> str:
    """As the record's holder tells it, as soon as it can."""
    while True:
        await cluster.until(lambda: cluster.nodes[holder].ready)
        try:
            return (await cluster.answer(holder, cluster.nodes[holder].daemon.query(QUERY))).state
        except NodeDiedError:
            await cluster.sleep(0.1)


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
            table = rows_of(scenario.sql.replace("FROM numbers", "FROM in0"), chunk.rows)
            expected += [tuple(row.values()) for row in table.to_pylist()]
    return expected
