"""A growing file that is renamed, truncated, deleted or linked elsewhere, and a reader that is killed: every line once."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from sbon_node.connectors.settings import ConnectorSettings
from sbon_protocol.errors import SbonError
from tests.connectors.source_worlds import World, numbers
from tests.connectors.tailing import NUMBERS, WALL_S, AtItsPlace, Tail, append, virtually, whole


class Writer:
    """A writer that rotates its log, with its own clock, because files may change twice within a tick of the system's."""

    def __init__(self, path: Path, rng: random.Random, *, at_its_place: bool = False) -> None:
        self.path, self.rng = path, rng
        self.file = AtItsPlace(path) if at_its_place else None
        self.count = 0
        self.at = WALL_S
        self.half = ""

    def write(self) -> None:
        text = ""
        for _ in range(self.rng.randint(1, 120)):
            self.count += 1
            text += f"{self.count} {'x' * self.rng.randint(0, 60)}\n"
        cut = self.rng.randint(0, len(text)) if self.rng.random() < 0.3 else len(text)
        self.put(self.half + text[:cut])
        self.half = text[cut:]

    def finish_line(self) -> None:
        self.put(self.half)
        self.half = ""

    def put(self, text: str) -> None:
        if self.file is not None:
            self.file.write(text)
        else:
            append(self.path, text)
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
    path.touch()
    copies = seed % 2 == 1
    writer = Writer(path, rng, at_its_place=seed % 4 == 3)

    async def main() -> None:
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
                    # The source cannot recognise the copy of a file of which it has read nothing.
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


@pytest.mark.parametrize("restarted", [False, True])
def test_rotated_files_are_found_among_thousands_of_others(tmp_path: Path, restarted: bool) -> None:
    for number in range(1500):
        (tmp_path / f"a{number}.log").touch()
    path = tmp_path / "web.log"
    path.write_text("one\ntwo\n")

    async def main() -> None:
        tail = Tail(path, **{"from": "beginning"})
        await tail.open()
        await tail.drain()
        append(path, "three\nfour\n")
        shutil.copyfile(path, f"{path}.1")
        os.truncate(path, 0)
        append(path, "five\n")
        if restarted:
            await tail.restart()
        await tail.drain()
        assert (tail.lines, tail.bad) == (["one", "two", "three", "four", "five"], [])

    virtually(main)


def test_lines_that_a_truncation_may_have_cost_are_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("one\ntwo\n")

    async def main() -> None:
        tail = Tail(path, **{"from": "beginning"})
        await tail.open()
        await tail.drain()
        append(path, "three\n")
        os.truncate(path, 0)
        append(path, "four\n")
        await tail.drain()
        await tail.restart()
        append(path, "five\n")
        await tail.drain()
        assert tail.lines == ["one", "two", "four", "five"]
        assert [(bad.line, "was truncated, and no copy of it is here" in bad.reason) for bad in tail.bad] == [(3, True)]

    virtually(main)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("seen_empty", [False, True])
@pytest.mark.parametrize("size", [1, 2_000, 3_000_000])
def test_a_writer_that_goes_on_at_its_place_leaves_a_hole_and_no_text(
    tmp_path: Path, size: int, seen_empty: bool, restarted: bool
) -> None:
    path = tmp_path / "app.ndjson"
    row = '{{"ts":"2026-03-02T09:00:00Z","n":{}}}\n'.format
    path.touch()
    file = AtItsPlace(path)

    async def main() -> None:
        file.write("\n" * size + row(1))
        tail = Tail(path, NUMBERS, **{"from": "beginning"})
        await tail.open()
        await tail.drain()
        for number in (2, 5):
            file.write(row(number))
            shutil.copyfile(path, f"{path}.{number}")
            os.truncate(path, 0)
            if restarted:
                await tail.restart()
            if seen_empty:
                await tail.drain()
            file.write(row(number + 1))
            if restarted:
                await tail.restart()
            await tail.drain()
            file.write(row(number + 2))
            await tail.drain()
        assert [row["n"] for row in tail.rows] == list(range(1, 8))
        assert tail.bad == []

    virtually(main)


def test_the_end_of_a_file_with_a_hole_is_after_it(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    with open(path, "wb") as file:
        file.seek(100_000)
        file.write(b"one\ntw")

    async def main() -> None:
        tail = Tail(path)
        await tail.open()
        await tail.drain()
        append(path, "o\nthree\n")
        await tail.drain()
        assert (tail.lines, tail.bad) == (["two", "three"], [])

    virtually(main)


def test_a_hole_between_lines_is_no_text(tmp_path: Path) -> None:
    """Some writers append, and one goes on at its place."""
    path = tmp_path / "app.log"
    path.write_bytes(b"one\n" + bytes(10) + b"two\n" + bytes(200_000) + b"three\n" + bytes(5_000))

    async def main() -> None:
        tail = Tail(path, **{"from": "beginning"})
        await tail.open()
        await tail.drain()
        append(path, "four\n")
        await tail.restart()
        await tail.drain()
        assert (tail.lines, tail.bad) == (["one", "two", "three", "four"], [])

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


def test_a_missing_file_is_reported_and_the_new_file_read(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("1\n2\n")

    async def main() -> None:
        tail = Tail(path, **{"from": "beginning"})
        await tail.open()
        await tail.drain()
        await tail.source.close()
        path.unlink()
        await tail.open()
        with pytest.raises(SbonError) as missing:
            await tail.drain()
        assert missing.value.code == "file-not-found"
        path.write_text("three\n")
        await tail.restart()
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

        world.failpoint = kill
        try:
            found = world.run(until_s=5)
        except Killed:
            continue
        assert numbers(found) == list(range(100))
        assert point > 3
        return
    pytest.fail("it was never read to its end")
