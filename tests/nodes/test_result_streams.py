"""The result of a query is a stream: other queries read it, each row once, through restarts of its node."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_protocol.api.queries import Accepted, SinkSpec, Submission
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import NUMBERS, ask, declare, in_cluster, source_at, state_of, submitted

THIRD = "SELECT id, v, ts FROM numbers WHERE id % 3 = 0"
ROWS = 600


async def derive(cluster: SimulatedCluster, at: str, name: str, sql: str, **fields: Any) -> None:
    """Make the result of a query a stream."""

    async def accepted() -> None:
        sink = SinkSpec(kind="stream", options={"stream": name})
        async for event in cluster.at(at).daemon.submitting.submitter.submit(Submission(sql=sql, name=name, sink=sink, **fields)):
            if isinstance(event, Accepted):
                return

    await ask(cluster, at, accepted())


async def known(cluster: SimulatedCluster, node: str, name: str) -> None:
    await cluster.until(lambda: name in cluster.at(node).daemon.ownership.catalogue.entries)


async def finished(cluster: SimulatedCluster, name: str) -> None:
    while (info := await state_of(cluster, "a", name)).state == "running":
        await cluster.clock.sleep(0.5)
    assert info.state == "finished", info.reason


def ids(path: Path) -> list[int]:
    return sorted(json.loads(line)["id"] for line in path.read_text().splitlines())


async def refused(cluster: SimulatedCluster, at: str, work: Any) -> SbonError:
    with pytest.raises(SbonError) as refusal:
        await ask(cluster, at, work)
    return refusal.value


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_two_queries_read_the_result_of_a_third(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await derive(cluster, "b", "third", THIRD)
        await known(cluster, "c", "third")
        await submitted(cluster, "c", tmp_path / "six.ndjson", name="six", sql="SELECT id FROM third WHERE id % 6 = 0")
        windows = "SELECT window(ts, '1 second').start AS w, count(*) AS id FROM third GROUP BY window(ts, '1 second')"
        await submitted(cluster, "c", tmp_path / "counts.ndjson", name="counts", sql=windows)
        explanation = await ask(cluster, "a", cluster.at("a").daemon.queries.explainer.query("six"))
        assert {part.kind: part.result_of for part in explanation.components} == {"sink": "", "operator": "", "source": "third"}
        error = await refused(cluster, "a", cluster.at("a").daemon.queries.declarations.drop("third"))
        assert error.code == "stream-in-use"
        await finished(cluster, "six")
        await finished(cluster, "counts")
        assert ids(tmp_path / "six.ndjson") == list(range(0, ROWS, 6))
        assert sum(ids(tmp_path / "counts.ndjson")) == ROWS // 3
        await finished(cluster, "third")
        await ask(cluster, "c", cluster.at("c").daemon.queries.declarations.drop("third"))
        assert "third" not in cluster.at("c").daemon.ownership.catalogue.entries

    in_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("deaths of the node of a result", parts=3)
@pytest.mark.parametrize("pause_s", [1.0, 3.0, 5.0])
def test_rows_are_in_the_stream_once_though_its_node_dies(tmp_path: Path, pause_s: float) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await derive(cluster, "b", "third", THIRD, consumer="b")
        await known(cluster, "c", "third")
        await submitted(cluster, "c", tmp_path / "six.ndjson", name="six", sql="SELECT id FROM third WHERE id % 6 = 0")
        for _ in range(2):
            await cluster.clock.sleep(pause_s)
            cluster.crash(cluster.at("b"))
            await cluster.clock.sleep(1.0)
            cluster.boot(cluster.at("b"))
        await finished(cluster, "six")
        assert ids(tmp_path / "six.ndjson") == list(range(0, ROWS, 6))

    in_cluster(tmp_path, "abc", test)


def test_a_refused_query_leaves_no_stream(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=10))
        for name, sql, code in (
            ("numbers", THIRD, "stream-exists"),
            ("ids", "SELECT id FROM numbers", "no-event-time"),
            ("select", THIRD, "bad-name"),
            ("Numbers", THIRD, "bad-option"),
            ("sums", "SELECT ts, id + 1 AS `id + 1` FROM numbers", "bad-name"),
            ("twice", "SELECT ts, id, v AS ID FROM numbers", "duplicate-column"),
        ):
            error = await refused(cluster, "a", derive(cluster, "a", name, sql))
            assert error.code == code, (name, error)
            error = await refused(cluster, "a", derive(cluster, "a", name, sql, consumer="b"))
            assert error.code == code, (name, error)
        source = source_at("a")
        by_hand = type(source)(stream="numbers", name="q", node="a", connector="query", options={"query": "x"})
        assert (await refused(cluster, "a", cluster.at("a").daemon.hosting.sources.attach(by_hand))).code == "bad-source"
        assert set(cluster.at("a").daemon.ownership.catalogue.entries) == {"numbers"}

    in_cluster(tmp_path, "ab", test)


def test_a_stream_has_its_query_alone_and_dropping_it_stops_the_query(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=100_000, rate=20.0))
        await derive(cluster, "b", "third", THIRD)
        await cluster.clock.sleep(3.0)
        another = msgspec.structs.replace(source_at("b"), stream="third")
        for change in (
            cluster.at("b").daemon.hosting.sources.attach(another),
            cluster.at("b").daemon.queries.declarations.detach("third", "query"),
        ):
            assert (await refused(cluster, "b", change)).code == "is-a-result"
        await ask(cluster, "b", cluster.at("b").daemon.queries.declarations.drop("third"))
        assert (await state_of(cluster, "b", "third")).state == "stopped"
        assert set(cluster.at("b").daemon.ownership.catalogue.entries) == {"numbers"}

    in_cluster(tmp_path, "ab", test)


def test_the_stream_is_at_the_node_of_the_operator_that_makes_it(tmp_path: Path) -> None:
    """Nobody else reads it yet, so that node is the source's, and not the one that was asked."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=100_000, rate=20.0))
        await derive(cluster, "c", "third", THIRD, strategy="hybrid")
        info = await state_of(cluster, "c", "third")
        assert info.consumer == info.operators[-1].node == "a"
        entry = (await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.describe("third"))).entry
        assert [source.node for source in entry.sources] == ["a"]
        await derive(cluster, "c", "named", THIRD, strategy="hybrid", consumer="b")
        assert (await state_of(cluster, "c", "named")).consumer == "b"

    in_cluster(tmp_path, "abc", test, latency=lambda one, other: 0.05)


def test_a_result_that_ended_just_before_its_node_died_is_finished(tmp_path: Path) -> None:
    """Its source has ended and is not opened again, and the query's record has not heard of the sink's end."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=30, rate=60.0))
        await derive(cluster, "a", "third", THIRD, consumer="b")
        await known(cluster, "b", "third")
        (source,) = cluster.at("b").daemon.ownership.catalogue.entries["third"].sources
        await cluster.until(lambda: cluster.at("b").daemon.hosting.sources.runner(source.id).state == "ended")
        cluster.crash(cluster.at("b"))
        assert (await state_of(cluster, "a", "third")).state == "running"
        await cluster.clock.sleep(1.0)
        cluster.boot(cluster.at("b"))
        await finished(cluster, "third")
        await submitted(cluster, "a", tmp_path / "rows.ndjson", name="reader", sql="SELECT id FROM third")
        await finished(cluster, "reader")
        assert ids(tmp_path / "rows.ndjson") == list(range(0, 30, 3))

    in_cluster(tmp_path, "ab", test, latency=lambda one, other: 0.5)


def test_a_query_whose_stream_is_gone_fails(tmp_path: Path) -> None:
    """As when it is dropped while no node that answers knows of the query."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=100_000, rate=20.0))
        await derive(cluster, "b", "third", THIRD)
        await ask(cluster, "b", cluster.at("b").daemon.ownership.catalogue.drop("third"))
        for _ in range(60):
            if (info := await state_of(cluster, "b", "third")).state != "running":
                break
            await cluster.clock.sleep(0.5)
        assert (info.state, "the stream 'third' was dropped" in info.reason) == ("failed", True)

    in_cluster(tmp_path, "ab", test)


def test_a_query_whose_stream_was_declared_otherwise_at_the_same_time_is_refused(tmp_path: Path) -> None:
    """Neither node knows of the other's declaration in time, and the rows are not those of the one that stays."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=100_000, rate=20.0))
        await known(cluster, "b", "numbers")
        submission = asyncio.ensure_future(derive(cluster, "b", "third", THIRD, consumer="b"))
        await known(cluster, "b", "third")
        other = msgspec.structs.replace(NUMBERS, name="third", schema=NUMBERS.schema[1:])
        await ask(cluster, "a", cluster.at("a").daemon.queries.declarations.create_stream(other))
        error = (await asyncio.gather(submission, return_exceptions=True))[0]
        assert "another stream 'third' was declared at the same time" in str(error)
        await cluster.clock.sleep(20.0)
        entries = [cluster.at(node).daemon.ownership.catalogue.entries["third"] for node in "ab"]
        assert [(entry.declaration, entry.sources) for entry in entries] == [(other, ())] * 2

    in_cluster(tmp_path, "ab", test, latency=lambda one, other: 0.4)
