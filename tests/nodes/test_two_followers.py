"""Several followers of one query, each with every row from its own position; also of one that delivers to a file."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import NodeDiedError, SimulatedCluster
from sbon_node.queries.sinks.follow import ANY_SINK
from sbon_protocol.api.delivery import Finished, Rows
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, state_of
from tests.nodes.test_further_sinks import ROWS, ended, ids, in_cluster, refused, running


class Reader:
    """A user who follows with a sink of his own if need be, and goes on with it after each loss."""

    def __init__(self, cluster: SimulatedCluster, node: str, sink: str = ANY_SINK) -> None:
        self._cluster, self._node, self.sink = cluster, node, sink
        self.rows: list[int] = []
        self.taken: dict[str, int] = {}

    async def run(self, rows: int = 2**62) -> None:
        """Follow to the end, or for so many rows."""
        while not await self._followed(rows):
            await self._cluster.clock.sleep(0.3)

    async def _followed(self, rows: int) -> bool:
        cluster = self._cluster
        await cluster.until(lambda: cluster.nodes[self._node].ready)
        try:
            done: bool = await cluster.answer(self._node, self._follow(rows))
        except (NodeDiedError, SbonError) as error:
            if isinstance(error, SbonError) and error.code == "unknown-sink":
                raise
            return False
        return done

    async def _follow(self, rows: int) -> bool:
        daemon = self._cluster.at(self._node).daemon
        async with aclosing(daemon.queries.follows.follow("q", dict(self.taken), self.sink)) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, Finished):
                    return event.state == "finished"
                self._take(event)
                await daemon.queries.follows.acknowledge("q", {event.stream: event.number}, self.sink)
                if len(self.rows) >= rows:
                    return True
        return False

    def _take(self, event: Rows) -> None:
        self.sink = event.sink
        if event.number > self.taken.get(event.stream, 0):
            self.rows += [row[0] for row in event.rows]
            self.taken[event.stream] = event.number


@pytest.mark.one_part_per_commit("nodes of followers", parts=2)
@pytest.mark.parametrize("second", ["c", "d"])
def test_two_followers_get_every_row(tmp_path: Path, second: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, None)
        one, two = Reader(cluster, "a"), Reader(cluster, second)
        first = cluster.loop.create_task(one.run())
        await cluster.until(lambda: len(one.rows) > 10)
        await two.run()
        await first
        await ended(cluster)
        assert (one.sink, two.sink) == ("", "sink2")
        assert sorted(one.rows) == list(range(ROWS))
        assert sorted(two.rows) == list(range(two.rows[0], ROWS))
        assert 0 < two.rows[0] < ROWS // 2

    in_cluster(tmp_path, "abcd", test)


def test_a_query_with_a_file_is_followed(tmp_path: Path) -> None:
    """From the first row where none is gone; and it goes on after a restart of its node."""

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "first.ndjson")
        reader = Reader(cluster, "d")
        following = cluster.loop.create_task(reader.run())
        for least in (20, 80):
            await cluster.until(lambda least=least: len(reader.rows) >= least)  # type: ignore[misc]
            cluster.crash(cluster.at("d"))
            await cluster.clock.sleep(1.0)
            cluster.boot(cluster.at("d"))
        await following
        await ended(cluster)
        assert sorted(reader.rows) == list(range(reader.rows[0], ROWS))
        assert reader.rows[0] < 60
        assert ids(tmp_path / "first.ndjson") == list(range(ROWS))

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("followers that leave", parts=8)
@pytest.mark.parametrize("leaves", ["its terminal", "its node"])
def test_a_follower_that_leaves_is_removed_after_a_while(tmp_path: Path, leaves: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "first.ndjson", rows=3000)
        reader = Reader(cluster, "d")
        await reader.run(rows=30)
        if leaves == "its node":
            cluster.crash(cluster.at("d"))
        await cluster.clock.sleep(4.0)
        assert [one.temporary for one in (await state_of(cluster, "a")).sinks] == [True]
        await cluster.clock.sleep(40.0)
        assert not (await state_of(cluster, "a")).sinks
        if leaves == "its node":
            cluster.boot(cluster.at("d"))
            await cluster.clock.sleep(5.0)
        with pytest.raises(SbonError) as gone:
            await Reader(cluster, "d", reader.sink).run()
        assert gone.value.code == "unknown-sink"
        assert not cluster.at("d").daemon.hosting.sinks.components()

    in_cluster(tmp_path, "abcd", test, follower_grace_s=10.0)


def test_nobody_follows_in_place_of_the_first_follower(tmp_path: Path) -> None:
    """Without a word for it, a second follower is refused; one that has rows already gets no other sink's rows."""

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, None)
        one = Reader(cluster, "c")
        following = cluster.loop.create_task(one.run())
        await cluster.until(lambda: len(one.rows) > 10)

        async def follow(after: dict[str, int], sink: str) -> list[Any]:
            daemon = cluster.at("d").daemon
            async with aclosing(daemon.queries.follows.follow("q", after, sink)) as events:  # type: ignore[type-var]
                return [event async for event in events]

        assert (await refused(cluster, "d", follow({}, ""))).code == "already-followed"
        assert (await refused(cluster, "d", follow(dict(one.taken), ANY_SINK))).code == "already-followed"
        assert (await refused(cluster, "d", follow({}, "sink2"))).code == "unknown-sink"
        assert not (await state_of(cluster, "a")).sinks
        await following

    in_cluster(tmp_path, "abcd", test)


def test_a_query_has_eight_sinks_at_most(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, None, rows=30_000)
        readers = [Reader(cluster, "d") for _ in range(8)]
        following = [cluster.loop.create_task(readers[0].run(rows=200))]
        await cluster.until(lambda: len(readers[0].rows) > 10)
        following += [cluster.loop.create_task(one.run(rows=100)) for one in readers[1:]]
        await cluster.until(lambda: all(len(one.rows) > 10 for one in readers))
        assert {one.sink for one in readers} == {"", *(f"sink{number}" for number in range(2, 9))}

        async def ninth() -> None:
            async with aclosing(cluster.at("c").daemon.queries.follows.follow("q", {}, ANY_SINK)) as events:  # type: ignore[type-var]
                await anext(events)

        error = await refused(cluster, "c", ninth())
        assert (error.code, error.where) == ("too-many-sinks", "query")
        await asyncio.gather(*following)
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        await cluster.clock.sleep(3.0)
        assert not cluster.at("d").daemon.hosting.sinks.components()

    in_cluster(tmp_path, "abcd", test)
