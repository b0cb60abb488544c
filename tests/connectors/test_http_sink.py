"""Webhooks: every frame at least once, under one key however often it is posted, in order, and paced by the other end."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sbon_node.base import disk
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition, DeliveryPositionFile
from sbon_node.connectors.sinks.http import requested_wait_s
from sbon_node.connectors.sinks.registry import check_sink, reach_sink
from sbon_protocol.errors import SbonError
from tests.addresses import own_host
from tests.connectors.sent_streams import EXPECTED, SENT, stream_of
from tests.connectors.sink_world import Sinking

PORT = 18080
HOST = own_host(40)
URL = f"http://{HOST}:{PORT}/hook?x=1"


class Hook:
    """Takes posts; ``answers`` are statuses for the next ones, 200 after those."""

    def __init__(self) -> None:
        self.answers: list[int | tuple[int, str]] = []
        self.posts: list[tuple[str, list[dict[str, Any]]]] = []
        self.headers: list[dict[str, str]] = []
        self.delay_s = 0.0
        self.stalls_after = 1_000_000
        self.stalls = 0
        """How many posts have got no answer."""

    async def take(self, request: web.Request) -> web.Response:
        body = await request.text()
        if len(self.posts) >= self.stalls_after:
            self.stalls += 1
            await asyncio.sleep(3600)
        await asyncio.sleep(self.delay_s)
        self.headers.append(dict(request.headers))
        answer = self.answers.pop(0) if self.answers else 200
        status, after = answer if isinstance(answer, tuple) else (answer, "")
        if status < 300:
            self.posts.append((request.headers["Idempotency-Key"], [json.loads(line) for line in body.splitlines()]))
        return web.Response(status=status, headers={"Retry-After": after} if after else {})

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_post("/hook", self.take)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, HOST, PORT, reuse_address=True).start()
        try:
            yield
        finally:
            await runner.cleanup()

    @property
    def once(self) -> list[tuple[Any, ...]]:
        """The rows of each key, once."""
        found = dict(self.posts)
        return sorted((row["stream"], row["n"], row["x"]) for rows in found.values() for row in rows)


def letters_in(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_frames_are_posted_in_order_with_a_key_each(tmp_path: Path) -> None:
    hook = Hook()
    sinking = Sinking(tmp_path, "http", {"url": URL.replace("//", "//me:pw@"), "headers": {"X-One": "1"}})
    async with hook.served():
        runner = await sinking.run()
    assert hook.once == EXPECTED
    assert len(hook.posts) == len({key for key, _ in hook.posts}) == sum(1 for s in SENT.values() for f in s if f.rows)
    for name in SENT:
        numbers = [row["n"] for key, rows in hook.posts for row in rows if row["stream"] == name]
        assert numbers == sorted(numbers)
    assert (hook.headers[0]["X-One"], hook.headers[0]["Content-Type"]) == ("1", "application/x-ndjson")
    assert hook.headers[0]["Authorization"] == "Basic bWU6cHc="
    assert sinking.acknowledged == {"a": 13, "b": 6}
    assert runner.describe().rows == len(EXPECTED)
    again = await sinking.run()
    assert (again.rows, len(hook.headers)) == (len(EXPECTED), len(hook.posts)), "what has ended is not posted again"


async def test_a_temporary_failure_is_posted_again_under_the_same_key(tmp_path: Path) -> None:
    hook = Hook()
    hook.answers = [500, 503, (429, "0"), 404, 301, 200, 502]
    sinking = Sinking(tmp_path, "http", {"url": URL})
    async with hook.served():
        runner = await sinking.run()
    assert hook.once == EXPECTED
    keys = [headers["Idempotency-Key"] for headers in hook.headers]
    assert keys[:6] == [keys[0]] * 6
    assert runner.describe().retries == 6
    assert runner.describe().refused == 0


async def test_a_post_is_repeated_after_the_date_that_the_other_end_names(tmp_path: Path) -> None:
    hook = Hook()
    at_s = int(time.time()) + 3
    hook.answers = [(503, formatdate(at_s, usegmt=True)), (503, "\u00b2"), (503, "tomorrow")]
    arrived_s: list[float] = []
    take = hook.take

    async def timed(request: web.Request) -> web.Response:
        arrived_s.append(time.time())
        return await take(request)

    hook.take = timed  # type: ignore[method-assign]
    async with hook.served():
        await Sinking(tmp_path, "http", {"url": URL}).run()
    assert hook.once == EXPECTED
    assert arrived_s[0] < at_s
    assert arrived_s[1] >= at_s - 1  # both dates are whole seconds


AT = 784_111_777  # Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110, section 5.6.7


@pytest.mark.parametrize(
    "headers, wait_s",
    [
        ({"Retry-After": "120"}, 120),
        ({"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"}, 60),
        ({"Retry-After": "Sunday, 06-Nov-94 08:49:37 GMT"}, 60),
        ({"Retry-After": "Sun Nov  6 08:49:37 1994"}, 60),
        ({"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT", "Date": "Sun, 06 Nov 1994 08:49:27 GMT"}, 10),
        ({"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT", "Date": "yesterday"}, 60),
        ({"Retry-After": "Sat, 05 Nov 1994 08:49:37 GMT"}, 0),
        ({"Retry-After": "-5"}, 0),
        ({"Retry-After": "\u00b2"}, 0),
        ({"Retry-After": "Sun, 06 Nov 99999 08:49:37 GMT"}, 0),
        ({}, 0),
    ],
)
def test_the_wait_that_an_answer_asks_for(headers: dict[str, str], wait_s: float) -> None:
    assert requested_wait_s(headers, AT - 60) == wait_s


async def test_refused_rows_are_kept_and_the_rest_is_delivered(tmp_path: Path) -> None:
    hook = Hook()
    hook.answers = [200, 422, 200, 413]
    sinking = Sinking(tmp_path, "http", {"url": URL.replace("//", "//me:pw@")})
    async with hook.served():
        runner = await sinking.run()
    report = runner.describe()
    letters = letters_in(report.dead_letters)
    assert report.refused == len(letters) > 0
    assert report.rows == len(EXPECTED) - len(letters)
    refused = [json.loads(letter["text"]) for letter in letters]
    assert sorted([*hook.once, *((r["stream"], r["n"], r["x"]) for r in refused)]) == EXPECTED
    assert "answers 422" in letters[0]["reason"]
    assert "pw" not in "".join(letter["reason"] for letter in letters)


async def test_the_other_end_killed_and_started_again_misses_nothing(tmp_path: Path) -> None:
    hook = Hook()
    sinking = Sinking(tmp_path, "http", {"url": URL}, pause_s=0.05)
    task = asyncio.ensure_future(sinking.run())
    await until(lambda: hasattr(sinking, "runner") and sinking.runner.state == "paused")
    assert "hook" in sinking.runner.reason
    for count in (3, 8):
        async with hook.served():
            await until(lambda count=count: len(hook.posts) >= count)  # type: ignore[misc]
        await until(lambda: sinking.runner.state == "paused" or task.done())
    async with hook.served():
        await task
    assert hook.once == EXPECTED


async def test_a_killed_sink_posts_again_what_its_position_lacks(tmp_path: Path) -> None:
    hook = Hook()
    sinking = Sinking(tmp_path, "http", {"url": URL}, pause_s=0.01)
    async with hook.served():
        for count in (2, 5, 9):
            task = asyncio.ensure_future(sinking.run())
            await until(lambda count=count: len(hook.posts) >= count)  # type: ignore[misc]
            task.cancel()
            await asyncio.wait([task])
        await sinking.run()
    assert hook.once == EXPECTED


async def test_a_sink_stopped_between_two_posts_has_stored_the_first(tmp_path: Path) -> None:
    """The count of delivered rows is right, and accepted rows are not posted again."""
    hook = Hook()
    hook.answers = [200, 422]
    sinking = Sinking(tmp_path, "http", {"url": URL})
    async with hook.served():
        for number, hook.stalls_after in enumerate((3, 4, 7), 1):
            task = asyncio.ensure_future(sinking.run())
            await until(lambda number=number: hook.stalls == number)  # type: ignore[misc]
            task.cancel()
            await asyncio.wait([task])
            report = sinking.runner.describe()
            assert report.rows == sum(len(rows) for _, rows in hook.posts)
            assert report.refused == len(letters_in(report.dead_letters)) > 0
        hook.stalls_after = 1_000_000
        runner = await sinking.run()
    assert len({key for key, _ in hook.posts}) == len(hook.posts)
    assert runner.rows + runner.describe().refused == len(EXPECTED)


async def test_a_sink_stopped_after_the_last_frame_has_stored_the_end(tmp_path: Path) -> None:
    """Nothing comes after that frame to tell of it."""
    hook = Hook()
    hook.stalls_after = 1
    sent = {"b": stream_of("b", 1), "a": stream_of("a", 2)}
    sinking = Sinking(tmp_path, "http", {"url": URL}, sent=sent)
    async with hook.served():
        task = asyncio.ensure_future(sinking.run())
        await until(lambda: hook.stalls == 1)
        task.cancel()
        await asyncio.wait([task])
        assert DeliveryPositionFile(tmp_path, "c1a1").take_up().ended == ("b",)
        hook.stalls_after = 1_000_000
        task = asyncio.ensure_future(sinking.run())
        await until(task.done)
    assert sorted(row["stream"] for _, rows in hook.posts for row in rows) == ["a", "a", "a", "b"]


async def test_a_slow_end_is_waited_for_and_given_up_after_the_timeout(tmp_path: Path) -> None:
    hook = Hook()
    hook.delay_s = 0.3
    sinking = Sinking(tmp_path, "http", {"url": URL, "timeout_s": 0.1})
    async with hook.served():
        task = asyncio.ensure_future(sinking.run())
        await until(lambda: hasattr(sinking, "runner") and sinking.runner.retries > 2)
        assert sinking.acknowledged == {}
        assert "no answer within 0.1 s" in sinking.runner.describe().state
        hook.delay_s = 0.0
        await task
    assert hook.once == EXPECTED


async def test_csv(tmp_path: Path) -> None:
    bodies: list[str] = []

    async def take(request: web.Request) -> web.Response:
        bodies.append(await request.text())
        return web.Response()

    hook = Hook()
    hook.take = take  # type: ignore[method-assign]
    async with hook.served():
        await Sinking(tmp_path, "http", {"url": URL, "format": "csv"}, sent={"a": SENT["a"][:1]}).open()
        sinking = Sinking(tmp_path, "http", {"url": URL, "format": "csv"}, claim="other")
        await sinking.run()
    assert bodies[0] == '"stream","n","ts","x"\n"a",10,1970-01-01 00:16:40.000000Z,0.5\n'


@pytest.mark.parametrize(
    "options, code, where",
    [
        ({}, "bad-option", "options.url"),
        ({"url": "ftp://a/b"}, "bad-option", "options.url"),
        ({"url": "http:///b"}, "bad-option", "options.url"),
        ({"url": "http://[::1/b"}, "bad-option", "options.url"),
        ({"url": "http://a:b/"}, "bad-option", "options.url"),
        ({"url": "http://db.example.org/"}, "outside-endpoints", "options.url"),
        ({"url": "http://in.example.org:81/"}, "outside-endpoints", "options.url"),
        ({"url": "http://10.2.0.1/"}, "outside-endpoints", "options.url"),
        ({"url": "http://in.example.org/", "headers": {"a\r\nb": "c"}}, "bad-option", "options.headers.a\r\nb"),
        ({"url": "http://in.example.org/", "headers": {"a": "b\r\nc: d"}}, "bad-option", "options.headers.a"),
    ],
)
def test_bad_options_are_refused_at_submission(options: dict[str, Any], code: str, where: str) -> None:
    settings = ConnectorSettings(endpoints=("in.example.org:80", "*.in.example.org", "10.1.0.0/16", "fd00::/8"))
    with pytest.raises(SbonError) as caught:
        check_sink("http", options, settings)
    assert (caught.value.code, caught.value.where) == (code, where)
    for allowed in ("in.example.org", "a.in.example.org:99", "10.1.2.3", "[fd00::1]:8080"):
        check_sink("http", {"url": f"http://{allowed}/x"}, settings)


async def test_blackhole_stopped_while_it_stores_has_counted_the_stored_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, storing = DeliveryPositionFile.store, threading.Event()

    def slow(self: DeliveryPositionFile, stated: DeliveryPosition) -> None:
        if stated.rows:
            storing.set()
            time.sleep(0.3)
        store(self, stated)

    monkeypatch.setattr(DeliveryPositionFile, "store", slow)
    sinking = Sinking(tmp_path, "blackhole", {})
    task = asyncio.ensure_future(sinking.run())
    await until(storing.is_set)
    task.cancel()
    await asyncio.wait([task])
    assert sinking.runner.rows == (await sinking.open()).rows > 0


async def test_blackhole_counts_and_ends_and_resumes_from_its_position(tmp_path: Path) -> None:
    sinking = Sinking(tmp_path, "blackhole", {}, pause_s=0.1)
    task = asyncio.ensure_future(sinking.run())
    await until(lambda: bool(sinking.acknowledged))
    task.cancel()
    await asyncio.wait([task])
    before = sinking.acknowledged.copy()
    runner = await sinking.run()
    assert runner.rows == len(EXPECTED)
    assert sinking.acknowledged == {"a": 13, "b": 6} != before
    await sinking.withdraw(delivered=False)
    assert not list((tmp_path / "sinks").iterdir())
    with pytest.raises(SbonError) as caught:
        await sinking.run()
    assert caught.value.code == "sink-lost"


async def test_a_disk_that_is_full_when_it_states_and_a_kill_then_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is acknowledged that is not stated, however often it was posted."""
    hook = Hook()
    sinking = Sinking(tmp_path, "http", {"url": URL})
    write, full = disk._write, False

    def written(path: Path, content: bytes) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    monkeypatch.setattr(disk, "_write", written)
    async with hook.served():
        await sinking.open()
        full = True
        running = asyncio.create_task(sinking.runner.run())
        await until(lambda: len(hook.posts) > 3 * len({key for key, _ in hook.posts}))
        assert "no space for more" in sinking.runner.describe().state
        assert (sinking.acknowledged, sinking.runner.rows) == ({}, 0)
        running.cancel()
        await asyncio.wait([running])
        await sinking.runner.close()
        assert sinking.acknowledged == {}
        full = False
        runner = await sinking.run()
    assert (runner.state, runner.rows, hook.once) == ("finished", len(EXPECTED), EXPECTED)
    assert sinking.acknowledged == {name: len(frames) for name, frames in SENT.items()}


async def test_a_sink_that_was_taken_over_begins_after_the_acknowledged_frames(tmp_path: Path) -> None:
    hook = Hook()
    async with hook.served():
        whole = Sinking(tmp_path / "former", "http", {"url": URL})
        whole.folder.mkdir()
        await whole.run()
        posted, hook.posts = dict(hook.posts), []
        taken = Sinking(tmp_path / "next", "http", {"url": URL}, epoch=2)
        taken.folder.mkdir()
        taken.fresh = False
        with pytest.raises(SbonError) as unknown:
            await taken.run()
        assert unknown.value.code == "sink-lost"
        taken.taken_up = DeliveryPosition(streams={"a": 5, "b": 6}, ended=("b",))
        runner = await taken.run()
    again = dict(hook.posts)
    assert again
    assert all(posted[key] == rows for key, rows in again.items())
    assert {int(key.rpartition("-")[2]) for key in again if "-b-" in key} == set()
    assert min(int(key.rpartition("-")[2]) for key in again) > 5
    assert runner.rows == sum(map(len, again.values()))


async def test_a_sink_says_why_its_webhook_is_out_of_reach_in_plain_words(tmp_path: Path) -> None:
    sinking = Sinking(tmp_path, "http", {"url": URL})
    task = asyncio.ensure_future(sinking.run())
    await until(lambda: hasattr(sinking, "runner") and sinking.runner.retries > 0)
    assert f"{URL.partition('?')[0]}: Connection refused" in sinking.runner.describe().state
    task.cancel()
    await asyncio.wait([task])


async def test_a_webhook_out_of_reach_is_told_before_a_sink_is_taken_over(tmp_path: Path) -> None:
    sinking = Sinking(tmp_path, "http", {"url": URL})
    with pytest.raises(SbonError) as caught:
        await reach_sink("http", sinking.options, sinking.context(fresh=False))
    assert (caught.value.code, caught.value.where) == ("endpoint-unreachable", f"{HOST}:{PORT}")
    assert caught.value.message == "Connection refused"
    hook = Hook()
    async with hook.served():
        await reach_sink("http", sinking.options, sinking.context(fresh=False))
    assert hook.posts == []
