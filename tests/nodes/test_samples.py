"""Samples of sources, asked for over the wire, and what a node accepts of a peer's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.hosting.sources.measurements import checked
from sbon_node.model.samples import MAX_TEXT
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.measuring import SampleRequest, SampleSources, SourceSample, SourceSamples
from tests.nodes.clusters import ask, declare, in_cluster, source_at

SCHEMA = (Column("ts", "timestamp"), Column("name", "string"), Column("n", "int"), Column("v", "decimal(9,2)"))


def report(seen: int = 100, rows: float | None = 100.0, read_rows_s: float = 0.0, **columns: tuple[Any, ...]) -> SourceSample:
    return SourceSample(source="x", seen=seen, rows=rows, read_rows_s=read_rows_s, columns=columns)


@pytest.mark.parametrize(
    "bad",
    [
        report(ts=(1, 2), n=(1,)),
        report(other=(1,)),
        report(name=(5,)),
        report(n=("5",)),
        report(n=(1.5,)),
        report(n=(True,)),
        report(ts=(2**63 + 1,)),
        report(ts=(-(2**70),)),
        report(name=("x" * (MAX_TEXT + 1),)),
        report(n=([1],)),
        report(seen=1, n=(1, 2)),
        report(seen=101, n=(1,)),
    ],
    ids=str,
)
def test_an_impossible_sample_is_refused(bad: SourceSample) -> None:
    assert checked(bad, {"ts", "name", "n", "v"}, SCHEMA) is None


def test_a_possible_sample_is_taken() -> None:
    good = checked(
        report(ts=(1, None), name=("a", "b"), n=(None, -5), v=(1, 2.5), read_rows_s=1e3), {"ts", "name", "n", "v"}, SCHEMA
    )
    assert good is not None
    assert (good.columns["v"], good.rows, good.read_rows_s) == ((1, 2.5), 100.0, 1e3)
    assert checked(report(n=(1,)), {"ts"}, SCHEMA) is None, "nobody asked for n"
    unbelievable = checked(report(read_rows_s=1e14), set(), SCHEMA)
    assert unbelievable is not None
    assert unbelievable.read_rows_s is None


def test_only_the_wanted_columns_of_a_nodes_own_sources_leave_it(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("a", rows=3000, rate=50.0), source_at("b"))
        sources = {source.node: source for source in cluster.at("b").daemon.ownership.catalogue.entry("numbers").sources}

        async def sampled(source: SourceDeclaration, rows: int, *columns: str) -> tuple[SourceSample, ...]:
            call = SampleSources(requests=(SampleRequest(source=source.id, columns=columns),), rows=rows)
            answer: SourceSamples = await ask(cluster, "b", cluster.at("b").daemon.context.ask("a", call, SourceSamples))
            return answer.samples

        (few,) = await sampled(sources["a"], 50, "ts", "nothing")
        assert list(few.columns) == ["ts"]
        assert 0 < len(few.columns["ts"]) <= 50
        assert few.rows == pytest.approx(3000, rel=0.05)
        assert await sampled(sources["b"], 50, "ts") == (), "b's source is not a's"
        known = await ask(
            cluster,
            "b",
            cluster.at("b").daemon.hosting.measurements.measured({sources["a"].id: "a"}, [], {sources["a"].id: ("id", "v")}),
        )
        sample = known.samples[sources["a"].id]
        assert set(sample.columns) == {"id", "v"}
        assert 50 < len(sample.columns["id"]) <= 1000

    in_cluster(tmp_path, "ab", test)


def test_samples_that_lie_are_counted_and_a_plan_does_without_them(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("a", rows=3000, rate=50.0))
        (source,) = cluster.at("b").daemon.ownership.catalogue.entry("numbers").sources

        async def lie(call: SampleSources, caller: object) -> SourceSamples:
            name = call.requests[0].source
            return SourceSamples(
                samples=(
                    SourceSample(source=name, seen=1, rows=None, read_rows_s=0.0, columns={"ts": ("never",)}),
                    SourceSample(source="other", seen=1, rows=None, read_rows_s=0.0, columns={}),
                )
            )

        cluster.at("a").daemon.context.server.handle(SampleSources, lie)
        daemon = cluster.at("b").daemon
        known = await ask(cluster, "b", daemon.hosting.measurements.measured({source.id: "a"}, [], {source.id: ("ts",)}))
        assert known.samples == {}
        assert daemon.operations.status().counters["sample-refused"] == 2

    in_cluster(tmp_path, "ab", test)
