"""Followers at nodes where the rows do not arrive: exactly once, one at a time, whichever node dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.one_query import Follower
from sbon_protocol.api.delivery import Finished, Rows
from sbon_protocol.calls import AcknowledgeRows
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted


async def running(cluster: SimulatedCluster, rows: int = 100, rate: float = 10.0) -> None:
    """The query ``q``: source and operator at ``b``, record at ``a``, rows at ``c``; ``d`` has nothing of it."""
    await declare(cluster, "a", source_at("b", rows=rows, rate=rate))
    await submitted(cluster, "a", None, consumer="c", strategy="producer")


async def events_at(cluster: SimulatedCluster, node: str, enough: Callable[[Rows], bool] = lambda event: False) -> list[Any]:
    """The events of a follower at the node, which acknowledges none, until the end or ``enough``."""

    async def follow() -> list[Any]:
        events: list[Any] = []
        following: AsyncIterator[Rows | Finished] = cluster.at(node).daemon.queries.follows.follow("q", {})
        async with aclosing(following) as stream:  # type: ignore[type-var]
            async for event in stream:
                events.append(event)
                if isinstance(event, Rows) and enough(event):
                    break
        return events

    events: list[Any] = await ask(cluster, node, follow())
    return events


async def refused(cluster: SimulatedCluster, node: str) -> SbonError:
    with pytest.raises(SbonError) as caught:
        await events_at(cluster, node)
    return caught.value


def ids(follower: Follower) -> list[object]:
    return sorted(row[0] for row in follower.rows)  # type: ignore[type-var]


@pytest.mark.one_part_per_commit("nodes of followers", parts=2)
@pytest.mark.parametrize("node", "bd")
def test_a_follower_at_any_node_gets_every_row_once(tmp_path: Path, node: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster)
        follower = Follower(cluster, node, "q")
        await follower.run()
        await cluster.sleep(5.0)
        info = await state_of(cluster, node)
        assert (info.state, info.rows, len(ids(follower)), len(set(ids(follower)))) == ("finished", 100, 100, 100)
        (end,) = await events_at(cluster, node)
        assert end.state == "finished", "who comes later is told the end"

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("nodes of followers", parts=2)
@pytest.mark.parametrize("dying", "cd")
def test_a_far_follower_goes_on_after_restarts_of_its_node_and_of_the_consumer(tmp_path: Path, dying: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster)
        follower = Follower(cluster, "d", "q")
        following = asyncio.get_running_loop().create_task(follower.run())
        for least in (20, 50):
            await cluster.until(lambda least=least: len(follower.rows) >= least)  # type: ignore[misc]
            cluster.crash(cluster.at(dying))
            await cluster.sleep(2.0)
            cluster.boot(cluster.at(dying))
        await following
        await cluster.sleep(5.0)
        info = await state_of(cluster, "a")
        assert (info.state, info.rows, len(ids(follower)), len(set(ids(follower)))) == ("finished", 100, 100, 100)

    in_cluster(tmp_path, "abcd", test)


def test_nobody_acknowledges_the_rows_of_another_follower(tmp_path: Path) -> None:
    async def refused(cluster: SimulatedCluster, node: str, acknowledging: Any) -> None:
        with pytest.raises(SbonError) as caught:
            await ask(cluster, node, acknowledging)
        assert caught.value.code == "not-the-reader"

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster)
        taken: dict[str, int] = {}
        to_go_on = asyncio.Event()

        async def read() -> None:
            async with aclosing(cluster.at("d").daemon.queries.follows.follow("q", {}, word="secret")) as events:  # type: ignore[type-var]
                async for event in events:
                    if isinstance(event, Rows):
                        taken[event.stream] = event.number
                        await to_go_on.wait()
                        await cluster.at("d").daemon.queries.follows.acknowledge("q", {event.stream: event.number}, word="secret")

        reading = asyncio.get_running_loop().create_task(ask(cluster, "d", read()))
        await cluster.until(lambda: bool(taken))
        for node, word in (("d", "guessed"), ("d", ""), ("c", "guessed"), ("c", ""), ("b", "secret"), ("a", "secret")):
            await refused(cluster, node, cluster.at(node).daemon.queries.follows.acknowledge("q", taken, word=word))
        call = AcknowledgeRows(query="q", numbers=taken)
        await refused(cluster, "b", cluster.at("b").daemon.context.call("c", call))
        to_go_on.set()
        await reading
        await cluster.sleep(5.0)
        assert (await state_of(cluster, "a")).rows == 100

    in_cluster(tmp_path, "abcd", test)


def test_a_clean_restart_of_the_consumer_is_no_end(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster)
        events = asyncio.get_running_loop().create_task(refused(cluster, "d"))
        await cluster.sleep(5.0)
        await cluster.stop("c")
        assert (await events).code == "consumer-unreachable"
        cluster.boot(cluster.at("c"))
        follower = Follower(cluster, "d", "q")
        await follower.run()
        assert len(set(ids(follower))) == 100

    in_cluster(tmp_path, "abcd", test)


def test_a_follower_moves_to_another_node_without_loss_or_repetition(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster)
        follower = Follower(cluster, "d", "q")
        following = asyncio.get_running_loop().create_task(follower.run())
        await cluster.until(lambda: len(follower.rows) >= 20)
        following.cancel()
        cluster.crash(cluster.at("d"))
        elsewhere = Follower(cluster, "a", "q")
        elsewhere.rows, elsewhere.taken = follower.rows, follower.taken
        await elsewhere.run()
        assert (len(ids(elsewhere)), len(set(ids(elsewhere)))) == (100, 100)

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("nodes of followers", parts=2)
@pytest.mark.parametrize("first, second", ["cd", "da"])
def test_a_second_follower_is_refused_wherever_it_is_until_the_first_has_gone(tmp_path: Path, first: str, second: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, rows=100, rate=1.0)
        gone = asyncio.Event()

        async def follow() -> None:
            async with aclosing(cluster.at(first).daemon.queries.follows.follow("q", {})) as stream:  # type: ignore[type-var]
                await anext(stream)
                await gone.wait()  # a slow reader: it asks for nothing meanwhile

        following = cluster.call(first, follow())
        await cluster.sleep(5.0)
        for pause_s in (0.0, 25.0):
            await cluster.sleep(pause_s)
            assert (await refused(cluster, second)).code == "already-followed"
        gone.set()
        await following
        await cluster.sleep(1.0)
        assert await events_at(cluster, second, lambda event: True)

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("ends of followers", parts=2)
@pytest.mark.parametrize("ends", ["crash", "cut"])
def test_a_follower_whose_node_dies_or_is_cut_off_keeps_nobody_out(tmp_path: Path, ends: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, rows=100, rate=1.0)
        cluster.call("d", _drain(cluster, "d"))
        await cluster.sleep(5.0)
        assert (await refused(cluster, "a")).code == "already-followed"
        settings = cluster.at("c").daemon.context.settings
        if ends == "crash":
            cluster.crash(cluster.at("d"))
            await cluster.sleep(settings.call_timeout_s + 1.0)
        else:
            cluster.network.cut("c", "d", both=True)
            await cluster.sleep(settings.follow_wait_s + settings.call_timeout_s + 1.0)
        assert await events_at(cluster, "a", lambda event: True)
        cluster.network.heal()

    in_cluster(tmp_path, "abcd", test)


async def _drain(cluster: SimulatedCluster, node: str) -> None:
    try:
        async for _ in cluster.at(node).daemon.queries.follows.follow("q", {}):
            pass
    except SbonError:
        pass


def test_a_far_follower_gets_the_end_of_a_stopped_query_and_the_reason_of_a_silent_consumer(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, rows=100, rate=2.0)
        events = asyncio.get_running_loop().create_task(events_at(cluster, "d"))
        await cluster.sleep(5.0)
        cluster.network.cut("c", "b", both=True)
        cluster.crash(cluster.at("c"))
        with pytest.raises(SbonError) as caught:
            await events
        assert (caught.value.code, "c, which does not answer" in caught.value.message) == ("consumer-unreachable", True)
        cluster.network.heal()
        cluster.boot(cluster.at("c"))
        await cluster.until(lambda: cluster.at("c").ready)
        await cluster.sleep(5.0)
        events = asyncio.get_running_loop().create_task(events_at(cluster, "d"))
        await cluster.sleep(5.0)
        await ask(cluster, "b", cluster.at("b").daemon.queries.lookup.stop("q"))
        end = (await events)[-1]
        assert (end.state, end.reason in ("", "stopped by a user")) == ("stopped", True), "its sink does not know the reason"

    in_cluster(tmp_path, "abcd", test)


def test_queries_without_followers_and_unknown_ones_are_refused_at_any_node(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        assert (await refused(cluster, "d")).code == "unknown-query"
        await declare(cluster, "a", source_at("b"))
        await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="c", strategy="producer")
        for node in "cd":
            assert (await refused(cluster, node)).code == "not-followable"

    in_cluster(tmp_path, "abcd", test)


def test_answers_to_far_followers_are_bounded(tmp_path: Path) -> None:
    """One frame at a time: all rows still come, in order."""

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, rows=200, rate=500.0)
        await cluster.sleep(20.0)
        events = await events_at(cluster, "d", lambda event: bool(event.rows) and event.rows[-1][0] == 199)
        numbers = [event.number for event in events]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert sum(len(event.rows) for event in events) == 200

    in_cluster(tmp_path, "abcd", test, follow_bytes=1)
