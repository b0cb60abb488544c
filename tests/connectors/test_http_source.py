"""Posts: all of one or nothing, once however often it is made, answered when it is durable, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.loop import run
from sbon_node.base.clock import Clock
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.http import HttpSource, HttpSourceOptions
from sbon_node.connectors.sources.push import Post
from sbon_node.connectors.sources.runner import SourceRunner
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.streams import Pushed
from sbon_protocol.errors import SbonError
from tests.connectors.source_context import context_of
from tests.connectors.source_worlds import SCHEMA, SOURCE, STREAM, rows_of

NDJSON = "application/x-ndjson"


class Killed(Exception):
    pass


class Served:
    """The source, run over an outbox in a folder, as often as it is started."""

    def __init__(self, folder: Path, *, settings: ConnectorSettings | None = None, **options: Any) -> None:
        self.folder = folder
        self.settings = settings or ConnectorSettings()
        self.options = HttpSourceOptions(**options)
        self.failpoint: Callable[[str], None] = lambda step: None

    async def start(self) -> None:
        self.outbox = Outbox(self.folder / "outbox.db", StreamSettings(), lambda step: self.failpoint(step))
        self.source = HttpSource(context_of(SCHEMA, self.settings), self.options)
        self.source.check()
        self.runner = SourceRunner(
            SOURCE,
            STREAM,
            self.source,
            outbox=self.outbox,
            clock=Clock(),
            settings=self.settings,
            dead_letters=self.folder / "dead-letters",
        )
        self.task = asyncio.get_running_loop().create_task(self.runner.run())
        await asyncio.sleep(0)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        self.outbox.close()

    async def push(self, body: str | bytes, kind: str = NDJSON, key: str = "") -> Pushed:
        return await self.source.push(Post(kind, pieces(body if isinstance(body, bytes) else body.encode()), key))

    def numbers(self) -> list[int]:
        return [row["n"] for row in rows_of(self.outbox.read(SOURCE.id, 0, 2**40))]


async def pieces(body: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]
        await asyncio.sleep(0)


def virtually(test: Callable[[], Awaitable[None]]) -> None:
    async def main(loop: Any, rng: Any) -> None:
        await test()

    run(main, seed=1, max_time_s=1e6)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def lines(*numbers: int) -> str:
    return "".join(f'{{"ts": "2020-01-01T00:00:{number % 60:02d}Z", "n": {number}}}\n' for number in numbers)


def test_a_post_is_durable_when_it_is_answered_and_says_what_became_of_its_rows(tmp_path: Path) -> None:
    async def main() -> None:
        served = Served(tmp_path)
        await served.start()
        body = 'n,ts\n1,2020-01-01T00:00:10Z\n2,"2020-01-01T00:00:11Z\n"\nx,2020-01-01\n\n3,2020-01-01T00:00:05Z\n'
        body += "4,\n5,2020-01-01T00:00:12Z"
        answer = await served.push(body, "text/csv; charset=utf-8")
        assert served.numbers() == [1, 2, 5]
        assert (answer.rows, answer.late, answer.bad, answer.repeated) == (3, 1, 2, False)
        assert [(row.line, row.reason.split(":")[0]) for row in answer.refused] == [(5, "n is no bigint"), (8, "ts is NULL")]
        headless = await served.push("2020-01-01T00:00:13Z,6\n", "text/csv; header=absent")
        tabs = await served.push("n\tts\n7\t2020-01-01T00:00:14Z\n", "text/tab-separated-values")
        assert (headless.rows, tabs.rows) == (1, 1)
        assert served.numbers() == [1, 2, 5, 6, 7]
        assert (await served.push("")).rows == 0
        await served.stop()

    virtually(main)


@pytest.mark.parametrize(
    "kind, body, ignored",
    [
        (NDJSON, lines(1), ()),
        (NDJSON, '{"ts":"2020-01-01","m":1}\n{"ts":"2020-01-01","n":1,"m":2,"o":null}\n', ("m", "o")),
        (NDJSON, "".join(f'{{"ts":"2020-01-01","{c}":1}}\n' for c in "abcdefghijklmopqrstuvwxyz"), tuple("abcdefghijklmopqrstu")),
        ("text/csv", "m,n,ts,o\n1,2,2020-01-01,3\n", ("m", "o")),
        ("text/csv", "n,ts\n2,2020-01-01\n", ()),
    ],
)
def test_fields_outside_the_schema_are_named(tmp_path: Path, kind: str, body: str, ignored: tuple[str, ...]) -> None:
    async def main() -> None:
        served = Served(tmp_path)
        await served.start()
        answer = await served.push(body, kind)
        assert (answer.ignored, answer.bad) == (ignored, 0)
        await served.stop()

    virtually(main)


@pytest.mark.parametrize(
    "body, rows, refused",
    [
        ('{"ts": "2020-01-01", "n": 1}', [1], []),
        (' {\n  "ts": "2020-01-01",\r\n  "n": 1\n}\n', [1], []),
        ('[{"ts": "2020-01-01", "n": 9007199254740993},\n {"n":\n2, "ts": "2020-01-01"}]', [9007199254740993, 2], []),
        ("[]", [], []),
        ('[{"ts": "2020-01-01", "n": 1}, 7, {"ts": "2020-01-01", "n": "x"}, {"ts": "2020-01-01", "n": 2}]', [1, 2], [2, 3]),
    ],
)
def test_objects_and_arrays_of_objects_are_rows(tmp_path: Path, body: str, rows: list[int], refused: list[int]) -> None:
    """A row's line is its place in the array."""

    async def main() -> None:
        served = Served(tmp_path)
        await served.start()
        answer = await served.push(body, "application/json; charset=utf-8")
        assert served.numbers() == rows
        assert [row.line for row in answer.refused] == refused
        await served.stop()

    virtually(main)


@pytest.mark.parametrize("body", ["", "[", '{"n": 1}\n{"n": 2}', "[1 2]", "n,ts"])
def test_a_body_that_is_no_json_is_refused_whole(tmp_path: Path, body: str) -> None:
    async def main() -> None:
        served = Served(tmp_path)
        await served.start()
        with pytest.raises(SbonError, match="the body is no JSON") as refusal:
            await served.push(body, "application/json")
        assert refusal.value.code == "bad-request"
        assert served.numbers() == []
        await served.stop()

    virtually(main)


def test_a_post_with_a_key_counts_once(tmp_path: Path) -> None:
    async def main() -> None:
        served = Served(tmp_path, keys=3)
        await served.start()
        both = await asyncio.gather(served.push(lines(1), key="a"), served.push(lines(1), key="a"))
        assert sorted(one.repeated for one in both) == [False, True]
        assert (await served.push(lines(1), key="a")).repeated
        with pytest.raises(SbonError) as caught:
            await served.push(lines(2), key="a")
        assert caught.value.code == "key-reused"
        await served.stop()
        await served.start()
        assert (await served.push(lines(1), key="a")) == Pushed(source="one", rows=1, repeated=True)
        for key in "bcd":
            await served.push(lines(ord(key)), key=key)
        assert served.numbers() == [1, 98, 99, 100]
        assert not (await served.push(lines(1), key="a")).repeated, "only the latest keys are remembered"
        for _ in range(2):
            assert not (await served.push(lines(5))).repeated
        await served.stop()

    virtually(main)


@pytest.mark.parametrize("linger_s", [0.0, 0.05])
def test_killed_between_any_two_steps_a_post_made_again_counts_once(tmp_path: Path, linger_s: float) -> None:
    """A client repeats each post until it is answered; it gets no notice when the node dies."""

    async def one(folder: Path, point: int) -> int:
        served = Served(folder, settings=ConnectorSettings(linger_s=linger_s))
        count = deaths = 0

        def kill(step: str) -> None:
            nonlocal count
            count += 1
            if count == point:
                raise Killed

        served.failpoint = kill
        await served.start()
        for number in range(4):
            while True:
                pushing = asyncio.ensure_future(served.push(lines(number * 2, number * 2 + 1), key=f"post {number}"))
                await asyncio.wait([pushing, served.task], return_when=asyncio.FIRST_COMPLETED)
                if served.task.done():
                    deaths += 1
                    assert isinstance(served.task.exception(), Killed)
                    await asyncio.wait([pushing])
                    assert isinstance(pushing.exception(), SbonError)
                    served.outbox.close()
                    await served.start()
                    continue
                assert (await pushing).rows == 2
                break
        assert served.numbers() == list(range(8))
        await served.stop()
        return deaths

    async def main() -> None:
        for point in range(1, 50):
            if not await one(made(tmp_path / f"{point}"), point):
                assert point > 6
                return
        pytest.fail("it was killed at every point")

    virtually(main)


def test_an_unusable_post_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        settings = ConnectorSettings(push_max_bytes=10_000, push_buffer_bytes=15_000, push_timeout_s=5)
        served = Served(tmp_path, settings=settings)
        await served.start()

        async def refused(*args: Any, **more: Any) -> str:
            with pytest.raises(SbonError) as caught:
                await served.push(*args, **more)
            return caught.value.code

        assert await refused(lines(1), "application/xml") == "unsupported-format"
        assert await refused(lines(1), "") == "unsupported-format"
        assert await refused("m\n1\n", "text/csv") == "missing-columns"
        assert await refused(lines(1), key="k" * 256) == "bad-request"
        assert await refused(b"x" * 10_001) == "post-too-large"

        async def slow() -> AsyncIterator[bytes]:
            yield b"x" * 9000
            await asyncio.sleep(60)
            yield b"\n"

        waiting = [asyncio.ensure_future(served.source.push(Post(NDJSON, slow()))) for _ in range(2)]
        await asyncio.sleep(1)
        with pytest.raises(SbonError) as caught:
            await waiting[1]
        assert caught.value.code == "source-busy"
        with pytest.raises(SbonError) as caught:
            await waiting[0]
        assert caught.value.code == "post-too-slow"
        for _ in range(20):
            assert (await served.push(b"x" * 9000)).bad == 1, "what was refused holds no room"
        assert served.numbers() == []
        await served.stop()
        with pytest.raises(SbonError) as caught:
            await served.push(lines(1))
        assert caught.value.code == "source-stopped"

    virtually(main)


def test_times_of_arrival(tmp_path: Path) -> None:
    async def main() -> None:
        served = Served(tmp_path, stamp=True)
        await served.start()
        assert (await served.push('{"n": 1}\n{"n": 2, "ts": "never"}')).rows == 2
        assert served.numbers() == [1, 2]
        await served.stop()

    virtually(main)
