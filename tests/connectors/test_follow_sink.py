"""Followers of a query: they receive every row, one follower at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sbon_lab.simulation.loop import run
from sbon_node.base.clock import Clock
from sbon_node.connectors.sinks.follow import FollowSink
from sbon_node.streams.outbox.signals import Signal
from sbon_protocol.api.delivery import Finished, Rows
from sbon_protocol.errors import SbonError
from tests.connectors.sent_streams import EXPECTED, SENT, FakeLink


def following(test: Callable[[FollowSink, list[FakeLink], asyncio.Task[None]], Any], pause_s: float = 0.01) -> dict[str, int]:
    acknowledged: dict[str, int] = {}

    async def main() -> None:
        news = Signal()
        links: list[Any] = [FakeLink(s, acknowledged, pause_s, 0, news) for s in SENT.values()]
        sink = FollowSink("q", links, news, Clock())
        task = asyncio.get_running_loop().create_task(sink.run())
        try:
            await test(sink, links, task)
        finally:
            task.cancel()
            await asyncio.wait([task])
            await sink.close()

    run(lambda loop, rng: main(), seed=1)
    return acknowledged


def test_a_follower_sees_every_row_and_then_the_end() -> None:
    seen: list[tuple[Any, ...]] = []

    async def test(sink: FollowSink, links: list[FakeLink], task: asyncio.Task[None]) -> None:
        async for event in sink.follow({}):
            if isinstance(event, Finished):
                assert event.state == "finished"
                break
            seen.extend(dict(zip(event.columns, row, strict=True)).values() for row in event.rows)
            sink.acknowledge({event.stream: event.number})
        await task
        assert sink.rows == len(EXPECTED)

    assert following(test) == {"a": 13, "b": 6}
    assert sorted((s, n, x) for s, n, _, x in seen) == EXPECTED


def test_unacknowledged_rows_come_again() -> None:
    async def test(sink: FollowSink, links: list[FakeLink], task: asyncio.Task[None]) -> None:
        async def numbers(after: dict[str, int], count: int) -> list[tuple[str, int]]:
            found = []
            events = sink.follow(after)
            async for event in events:
                assert isinstance(event, Rows)
                found.append((event.stream, event.number))
                if len(found) == count:
                    await events.aclose()
            return found

        await asyncio.sleep(60)
        everything = await numbers({}, 19)
        assert everything == [("a", n) for n in range(1, 14)] + [("b", n) for n in range(1, 7)]
        sink.acknowledge({"a": 5})
        assert await numbers({}, 14) == everything[5:]
        assert await numbers({"a": 13, "b": 4}, 2) == [("b", 5), ("b", 6)]
        for after, code in (({"a": 3}, "not-retained"), ({"c": 1}, "unknown-stream")):
            with pytest.raises(SbonError) as caught:
                await numbers(after, 1)
            assert caught.value.code == code
        with pytest.raises(SbonError) as caught:
            sink.acknowledge({"a": 14})
        assert caught.value.code == "not-received"
        assert sink.ends({"a": 13}) == {"a"}
        assert not task.done()

    assert following(test) == {"a": 5}


def test_one_follower_at_a_time_and_another_after_it() -> None:
    async def test(sink: FollowSink, links: list[FakeLink], task: asyncio.Task[None]) -> None:
        first = sink.follow({})
        await anext(first)
        with pytest.raises(SbonError) as caught:
            await anext(sink.follow({}))
        assert caught.value.code == "already-followed"
        await first.aclose()
        assert isinstance(await anext(sink.follow({})), Rows)

    assert following(test) == {}


def test_who_reads_or_read_last_may_acknowledge_and_nobody_else() -> None:
    async def test(sink: FollowSink, links: list[FakeLink], task: asyncio.Task[None]) -> None:
        def may(word: str) -> bool:
            try:
                sink.check_reader(lambda one: one.word == word)
            except SbonError as error:
                return error.code != "not-the-reader"
            return True

        words = ("one", "two", "three")
        assert not any(may(word) for word in words)
        for number, word in enumerate(words):
            events = sink.follow({}, word)
            await anext(events)
            assert [may(one) for one in words] == [number - 1 <= of <= number for of in range(3)]
            await events.aclose()
        assert [may(word) for word in words] == [False, False, True]

    assert following(test) == {}


def test_a_link_that_fails_ends_the_following_with_its_reason() -> None:
    async def test(sink: FollowSink, links: list[FakeLink], task: asyncio.Task[None]) -> None:
        events = sink.follow({"a": 13, "b": 6})
        waiting = asyncio.get_running_loop().create_task(anext(events))
        await asyncio.sleep(0.05)
        links[0].failure = SbonError("quota", "fell behind")
        links[0].inbox.news.notify()
        event = await waiting
        assert isinstance(event, Finished)
        assert (event.state, event.reason) == ("failed", "fell behind")
        with pytest.raises(SbonError):
            await task

    following(test)
