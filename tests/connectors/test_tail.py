"""A growing file under any name: every complete line once, in order, from any restart position."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.errors import SbonError
from tests.connectors.source_worlds import SOURCE, World, numbers
from tests.connectors.tailing import NUMBERS, US, WALL_S, Tail, append, virtually, whole


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
            (4, "ts is no timestamp"),
        ]

    virtually(main)


@pytest.mark.parametrize(
    "name, content, options, code, where",
    [
        ("none/none.ndjson", None, {}, "file-not-found", "options.path"),
        ("none.ndjson", None, {"timestamp_format": "iso"}, "bad-option", "options.timestamp_format"),
        ("a.csv", "ts,m\n", {"format": "csv"}, "missing-columns", "options.path"),
        ("a.log", "", {"pattern": "(a)"}, "bad-option", "options.pattern"),
        ("a.log", "", {"pattern": "(?P<n>["}, "bad-option", "options.pattern"),
        ("a.log", "", {"pattern": r"(?P<ts>\d+)"}, "missing-columns", "options.pattern"),
        ("a.csv", "ts,n\n", {"pattern": "(?P<n>a)"}, "bad-option", "options.pattern"),
        ("a.log", "", {"from": "middle"}, "bad-option", "options.from"),
        ("a.ndjson", "", {"timestamp_format": "iso"}, "bad-option", "options.timestamp_format"),
    ],
)
def test_an_unreadable_file_is_refused(
    tmp_path: Path, name: str, content: str | None, options: dict[str, Any], code: str, where: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(SbonError) as caught:
        Tail(tmp_path / name, NUMBERS, **options).source.check()
    assert (caught.value.code, caught.value.where) == (code, where)


@pytest.mark.parametrize("start", ["beginning", "end"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_does_not_exist_yet_is_awaited_and_read_whole(tmp_path: Path, start: str, restarted: bool) -> None:
    path = tmp_path / "app.log"

    async def main() -> None:
        tail = Tail(path, **{"from": start})
        tail.source.check()
        await tail.open()
        with pytest.raises(SbonError) as missing:
            await tail.drain()
        assert missing.value.code == "file-not-found"
        if restarted:
            tail.source = Tail(path, **{"from": start}).source
        path.write_text("1\n2\n")
        await tail.restart()
        await tail.drain()
        assert (tail.lines, tail.bad) == (["1", "2"], [])

    virtually(main)


def test_a_source_says_that_its_file_is_missing_until_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "n.ndjson"
    world = World(tmp_path, lambda: Tail(path, NUMBERS, ConnectorSettings()).source)
    assert world.run(until_s=60) == []
    assert world.states[-1][0] == "paused"
    assert f"there is no file {path}" in world.states[-1][1]
    whole(tmp_path, 10)
    assert numbers(world.run(until_s=60)) == list(range(10))
    assert world.states[-1][0] == "running"


def test_a_path_that_is_no_file_is_refused_and_blocks_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    with pytest.raises(SbonError) as caught:
        Tail(tmp_path / "pipe.log").source.check()
    assert caught.value.code == "file-unreadable"


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
    assert world.told.dropped == 0
