"""A file that grows, under whatever name: every complete line once and in order, from whatever position reading goes on."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sbon_node.clock import Clock
from sbon_node.connectors.interface import BadRow, Chunk
from sbon_node.connectors.options import read_options
from sbon_node.connectors.roots import check_within
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.tail_source import TailOptions, TailSource
from sbon_node.errors import SbonError
from sbon_node.simulation.loop import run
from sbon_node.streams.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from tests.connectors.test_source_runner import SOURCE, World, numbers

US = pa.timestamp("us", "UTC")
LINES = pa.schema([("ts", US), ("line", pa.string())])
NUMBERS = pa.schema([("ts", US), ("n", pa.int64())])
SMALL = ConnectorSettings(block_bytes=1024, max_record_bytes=2048)
WALL_S = 1_600_000_000


class Tail:
    """A source that is read until nothing more comes, stopped and taken up again."""

    def __init__(self, path: Path, schema: pa.Schema = LINES, limits: ConnectorSettings = SMALL, **options: Any) -> None:
        self.path = path
        read = read_options(TailOptions, {"path": str(path), **options}, "tail")
        clock = Clock(wall_s=lambda: WALL_S)
        self.source = TailSource(read, schema, "ts", limits, clock, lambda p: check_within(p, (str(path.parent),)))
        self.chunks: list[Chunk] = []
        self.position: bytes | None = None

    async def open(self) -> None:
        await self.source.open(self.position)

    async def drain(self) -> None:
        while True:
            try:
                async with asyncio.timeout(10):
                    chunk = await self.source.read()
            except TimeoutError:
                return
            assert chunk is not None
            self.chunks.append(chunk)
            self.position = chunk.position

    async def restart(self) -> None:
        await self.source.close()
        await self.open()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for chunk in self.chunks for row in chunk.rows.to_pylist()]

    @property
    def lines(self) -> list[str]:
        return [row["line"] for row in self.rows]

    @property
    def bad(self) -> list[BadRow]:
        return [bad for chunk in self.chunks for bad in chunk.bad]


def virtually(test: Callable[[], Awaitable[None]]) -> None:
    async def main(loop: Any, rng: Any) -> None:
        await test()

    run(main, seed=1, max_time_s=1e6)


def append(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


@pytest.mark.parametrize("start", ["beginning", "end"])
def test_lines_are_read_once_they_are_complete(tmp_path: Path, start: str) -> None:
    path = tmp_path / "app.log"
    path.write_text("old\nhalf a")

    async def main() -> None:
        tail = Tail(path, **{"from": start})
        await tail.open()
        await tail.drain()
        before = ["old"] if start == "beginning" else []
        assert tail.lines == before
        append(path, " line\r\nné")
        await tail.drain()
        assert tail.lines == [*before, "half a line"]
        await tail.restart()
        append(path, "w\n\nlast\n")
        await tail.drain()
        assert tail.lines == [*before, "half a line", "néw", "last"]
        assert [chunk.origin(0)[0] for chunk in tail.chunks if chunk.rows.num_rows][-1] == (3 if before else 2)
        assert {row["ts"] for row in tail.rows} == {datetime.fromtimestamp(WALL_S, UTC)}

    virtually(main)


@pytest.mark.parametrize("killed", [False, True])
def test_from_the_end_means_the_end_when_it_began(tmp_path: Path, killed: bool) -> None:
    path = tmp_path / "app.log"
    path.touch()

    async def main() -> None:
        tail = Tail(path)
        await tail.open()
        await tail.drain()
        if killed:
            await tail.source.close()
        append(path, "1\n2\n")
        if killed:
            await tail.open()
        await tail.drain()
        assert tail.lines == ["1", "2"]

    virtually(main)


class Writer:
    """What writes a log and rotates it, with a clock of its own, since files that change within a tick change at once."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.path, self.rng = path, rng
        self.count = 0
        self.at = WALL_S
        self.half = ""

    def write(self) -> None:
        text = ""
        for _ in range(self.rng.randint(1, 120)):
            self.count += 1
            text += f"{self.count} {'x' * self.rng.randint(0, 60)}\n"
        cut = self.rng.randint(0, len(text)) if self.rng.random() < 0.3 else len(text)
        append(self.path, self.half + text[:cut])
        self.half = text[cut:]
        self.touch(self.path)

    def finish_line(self) -> None:
        append(self.path, self.half)
        self.half = ""
        self.touch(self.path)

    def touch(self, path: Path) -> None:
        self.at += 1
        os.utime(path, (self.at, self.at))

    def shift(self) -> None:
        for number in range(20, 0, -1):
            old = Path(f"{self.path}.{number}")
            if old.exists():
                old.rename(f"{self.path}.{number + 1}")

    def rename(self) -> None:
        self.finish_line()
        self.shift()
        self.path.rename(f"{self.path}.1")
        self.path.touch()
        self.touch(self.path)

    def copy_and_truncate(self) -> None:
        self.finish_line()
        self.shift()
        shutil.copyfile(self.path, f"{self.path}.1")
        self.touch(Path(f"{self.path}.1"))
        os.truncate(self.path, 0)
        self.touch(self.path)


@pytest.mark.parametrize("seed", range(30))
def test_every_line_once_whatever_happens_to_names_and_processes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "app.log"
    writer = Writer(path, rng)
    copies = seed % 2 == 1

    async def main() -> None:
        path.touch()
        tail = Tail(path, **{"from": "beginning"})
        await tail.open()
        await tail.drain()
        for _ in range(40):
            match rng.choice(["write", "write", "write", "drain", "rotate", "restart"]):
                case "write":
                    writer.write()
                case "drain":
                    await tail.drain()
                case "restart":
                    await tail.restart()
                case "rotate" if copies:
                    # Of what was not read at all nothing is known by which its copy could be found.
                    writer.write()
                    writer.finish_line()
                    await tail.drain()
                    writer.write()
                    writer.copy_and_truncate()
                    await tail.drain()
                case "rotate":
                    writer.rename()
        writer.finish_line()
        await tail.drain()
        assert [int(line.split()[0]) for line in tail.lines] == list(range(1, writer.count + 1))
        assert tail.bad == []

    virtually(main)


def test_the_rest_of_a_line_that_is_too_long_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("a\n")

    async def main() -> None:
        tail = Tail(path, **{"from": "beginning"})
        await tail.open()
        for i in range(50):
            append(path, "x" * 1000)
            await tail.drain()
            if i % 7 == 0:
                await tail.restart()
        append(path, "\nb\n")
        await tail.drain()
        assert tail.lines == ["a", "b"]
        assert [(bad.line, bad.reason) for bad in tail.bad] == [(2, "a line longer than 2,048 bytes")]
        assert [chunk.origin(0)[0] for chunk in tail.chunks if chunk.rows.num_rows] == [1, 3]

    virtually(main)


def test_each_csv_file_names_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts,n\n2020-01-01,1\n2020-01-01,x\n")

    async def main() -> None:
        tail = Tail(path, NUMBERS, **{"from": "beginning"})
        tail.source.check()
        await tail.open()
        await tail.drain()
        path.rename(tmp_path / "a.csv.1")
        path.write_text("n,extra")
        await tail.drain()
        append(path, ',ts\n2,"a\nb",2020-01-02\n3,,2020-01-03\n')
        await tail.drain()
        await tail.restart()
        append(path, "4,,2020-01-04\n")
        await tail.drain()
        assert [row["n"] for row in tail.rows] == [1, 2, 3, 4]
        assert [(bad.line, bad.text) for bad in tail.bad] == [(3, "2020-01-01,x")]

    virtually(main)


def test_a_pattern_finds_the_columns_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_text(
        '1.2.3.4 - [10/Oct/2020:13:55:36 +0200] "GET /a HTTP/1.1" 200 12\n'
        "nonsense\n"
        '::1 - [10/Oct/2020:13:55:37 +0200] "PUT /b HTTP/1.1" 404 -\n'
        '::1 - [yesterday] "PUT /b HTTP/1.1" 404 7\n'
    )
    schema = pa.schema([("ts", US), ("host", pa.string()), ("status", pa.int32()), ("size", pa.int64()), ("line", pa.string())])
    pattern = r'^(?P<host>\S+) - \[(?P<ts>[^\]]+)\] "[^"]*" (?P<status>\d+) (?:-|(?P<size>\d+))$'

    async def main() -> None:
        options = {"from": "beginning", "pattern": pattern, "timestamp_format": "%d/%b/%Y:%H:%M:%S %z"}
        tail = Tail(path, schema, ConnectorSettings(), **options)
        await tail.open()
        await tail.drain()
        found = [(r["ts"].isoformat(), r["host"], r["status"], r["size"], r["line"][-2:]) for r in tail.rows]
        assert found == [
            ("2020-10-10T11:55:36+00:00", "1.2.3.4", 200, 12, "12"),
            ("2020-10-10T11:55:37+00:00", "::1", 404, None, " -"),
        ]
        assert [(bad.line, bad.reason.split(":")[0]) for bad in tail.bad] == [
            (2, "does not match the pattern"),
            (4, "ts is no timestamp[us, tz=UTC]"),
        ]

    virtually(main)


def test_a_file_that_is_gone_is_told_and_the_new_one_read(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("1\n2\n")

    async def main() -> None:
        tail = Tail(path, **{"from": "beginning"})
        await tail.open()
        await tail.drain()
        await tail.source.close()
        path.unlink()
        await tail.open()
        await tail.drain()
        path.write_text("three\n")
        await tail.drain()
        assert tail.lines == ["1", "2", "three"]
        assert [bad.line for bad in tail.bad] == [3]
        assert "is gone" in tail.bad[0].reason

    virtually(main)


def test_a_link_that_leads_out_of_the_roots_is_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "files"
    inside.mkdir()
    (tmp_path / "secret").write_text("secret\n")
    path = inside / "app.log"
    path.write_text("1\n")

    async def main() -> None:
        tail = Tail(path, **{"from": "beginning"})
        await tail.open()
        await tail.drain()
        path.unlink()
        path.symlink_to(tmp_path / "secret")
        with pytest.raises(SbonError) as caught:
            await tail.drain()
        assert caught.value.code == "outside-roots"
        assert tail.lines == ["1"]

    virtually(main)


@pytest.mark.parametrize(
    "name, content, options, code, where",
    [
        ("none.ndjson", None, {}, "file-not-found", "options.path"),
        ("a.csv", "ts,m\n", {"format": "csv"}, "missing-columns", "options.path"),
        ("a.log", "", {"pattern": "(a)"}, "bad-option", "options.pattern"),
        ("a.log", "", {"pattern": "(?P<n>["}, "bad-option", "options.pattern"),
        ("a.log", "", {"pattern": r"(?P<ts>\d+)"}, "missing-columns", "options.pattern"),
        ("a.csv", "ts,n\n", {"pattern": "(?P<n>a)"}, "bad-option", "options.pattern"),
        ("a.log", "", {"from": "middle"}, "bad-option", "options.from"),
        ("a.ndjson", "", {"timestamp_format": "iso"}, "bad-option", "options.timestamp_format"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, name: str, content: str | None, options: dict[str, Any], code: str, where: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(SbonError) as caught:
        Tail(tmp_path / name, NUMBERS, **options).source.check()
    assert (caught.value.code, caught.value.where) == (code, where)


def test_what_is_no_file_is_refused_and_blocks_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    with pytest.raises(SbonError) as caught:
        Tail(tmp_path / "pipe.log").source.check()
    assert caught.value.code == "file-unreadable"


def whole(folder: Path, count: int) -> Path:
    path = folder / "n.ndjson"
    path.write_text("".join(f'{{"ts":"2020-01-01T00:00:00Z","n":{i}}}\n' for i in range(count)))
    return path


def test_killed_between_any_two_steps_each_line_is_in_frames_once(tmp_path: Path) -> None:
    settings = {"block_bytes": 1024, "max_record_bytes": 1024, "linger_s": 0.0}
    path = whole(tmp_path, 100)

    class Killed(Exception):
        pass

    world = World(
        tmp_path, lambda: Tail(path, NUMBERS, ConnectorSettings(**settings), **{"from": "beginning"}).source, **settings
    )
    for point in range(1, 200):
        left = iter(range(point))

        def kill(step: str, left: Any = left) -> None:
            if next(left, None) is None:
                raise Killed

        world.steps = kill
        try:
            found = world.run(until_s=5)
        except Killed:
            continue
        assert numbers(found) == list(range(100))
        assert point > 3
        return
    pytest.fail("it was never read to its end")


def test_it_waits_for_its_subscribers_and_begins_with_the_first(tmp_path: Path) -> None:
    path = whole(tmp_path, 50_000)
    world = World(tmp_path, lambda: Tail(path, NUMBERS, ConnectorSettings(), **{"from": "beginning"}).source)
    world.stream_settings = StreamSettings(outbox_quota_bytes=50_000)
    box = Outbox(tmp_path / "outbox.db", world.stream_settings)
    box.open_stream(SOURCE.id, "source")
    box.subscribe(SOURCE.id, "slow", 0)
    box.close()
    found = world.run(until_s=60)
    assert world.states[-1][0] == "paused"
    assert 0 < len(numbers(found)) < 50_000
    assert world.runner.describe().dropped == 0
