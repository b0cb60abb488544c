"""Estimates from a source's beginning: bytes of a row in a frame, and the pace of a replay."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from sbon_node.base.clock import Clock
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources import sample
from sbon_node.connectors.sources.registry import open_source
from sbon_node.connectors.sources.sample import read_beginning, with_beginning
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column

STREAM = StreamDeclaration(name="s", schema=(Column("ts", "timestamp"), Column("note", "string")), event_time="ts")
ROWS = 3000


def lines(folder: Path, note: str, name: str = "rows.csv") -> Path:
    """A row every two seconds of event time."""
    path = folder / name
    rows = [f"2020-01-01 {i // 1800:02d}:{i // 30 % 60:02d}:{2 * i % 60:02d},{note}{i * 7919}" for i in range(ROWS)]
    path.write_text("\n".join(["ts,note", *rows]) + "\n")
    return path


def sampled(connector: str, options: dict[str, Any], **fields: Any) -> SourceDeclaration:
    declared = SourceDeclaration(stream="s", name="a", node="n", connector=connector, options=options, **fields)
    source = open_source(declared, STREAM, ConnectorSettings())
    return with_beginning(declared, asyncio.run(read_beginning(source, Clock.real(), "a")) if source.finite else None)


def test_longer_rows_are_sampled_as_longer(tmp_path: Path) -> None:
    short = sampled("file", {"path": str(lines(tmp_path, "x"))})
    long = sampled("file", {"path": str(lines(tmp_path, "/".join(str(i**7) for i in range(40)), "long.csv"))})
    assert short.row_bytes is not None
    assert long.row_bytes is not None
    assert 5 < short.row_bytes < 60
    assert long.row_bytes > short.row_bytes
    assert (short.sampled, short.rows_s) == (True, None)


def test_a_slow_replay_makes_small_frames_of_larger_rows(tmp_path: Path) -> None:
    file = str(lines(tmp_path, "x"))
    slow, fast = (sampled("file", {"path": file, "replay": speed}).row_bytes for speed in (60.0, 36_000.0))
    assert slow is not None
    assert fast is not None
    assert slow > 5 * fast


def test_a_file_with_many_rows_and_no_pace_is_unpaced(tmp_path: Path) -> None:
    path = lines(tmp_path, "x")
    assert not sampled("file", {"path": str(path)}).unpaced
    with path.open("a") as file:
        file.writelines(f"2020-01-02 00:00:00,{i}\n" for i in range(sample.MAX_ROWS - ROWS))
    assert sampled("file", {"path": str(path)}).unpaced
    assert not sampled("file", {"path": str(path)}, rows_s=7.0).unpaced
    assert not sampled("file", {"path": str(path), "replay": 60.0}).unpaced


@pytest.mark.parametrize("speed, rows_s", [(60.0, 30.0), (3600.0, 1800.0)])
def test_a_replay_has_the_pace_of_its_event_time(tmp_path: Path, speed: float, rows_s: float) -> None:
    assert sampled("file", {"path": str(lines(tmp_path, "x")), "replay": speed}).rows_s == pytest.approx(rows_s, rel=0.05)


def test_a_generator_that_ends_has_its_rate() -> None:
    assert sampled("generator", {"rows": 10_000, "rate": 250.0}).rows_s == pytest.approx(250, rel=0.01)


def test_declared_types_stay(tmp_path: Path) -> None:
    declared = sampled("file", {"path": str(lines(tmp_path, "x")), "replay": 60.0}, rows_s=7.0, row_bytes=9.0)
    assert (declared.rows_s, declared.row_bytes, declared.sampled) == (7.0, 9.0, False)
    half = sampled("file", {"path": str(lines(tmp_path, "x")), "replay": 60.0}, rows_s=7.0)
    assert (half.rows_s, half.row_bytes is not None, half.sampled) == (7.0, True, True)


@pytest.mark.parametrize("content", ["ts,note\n", "ts,note\nnever,x\n", "ts,note\n2020-01-01 00:00:00,only one\n"])
def test_values_without_evidence_get_no_type(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(content)
    found = sampled("file", {"path": str(path), "replay": 1.0})
    assert found.rows_s is None
    assert (found.row_bytes is not None) == found.sampled == ("only" in content)


def beginning(connector: str, options: dict[str, Any], clock: Clock) -> sample.Beginning:
    declared = SourceDeclaration(stream="s", name="a", node="n", connector=connector, options=options)
    read = asyncio.run(read_beginning(open_source(declared, STREAM, ConnectorSettings()), clock, "a"))
    assert read is not None
    return read


class Ticking(Clock):
    """A clock of which every look takes half a second."""

    def __init__(self) -> None:
        ticks = itertools.count()
        super().__init__(monotonic_s=lambda: next(ticks) / 2)


def test_the_beginning_says_how_many_rows_there_are_and_how_fast_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("ts,note\n" + "".join(f"2020-01-01 00:00:00,{i:09}\n" for i in range(100_000)))
    large = beginning("file", {"path": str(path)}, Ticking())
    assert large.rows == pytest.approx(100_000, rel=0.01)
    assert large.read_rows_s == pytest.approx(large.sample.seen / 0.5)
    assert sample.MAX_ROWS <= large.sample.seen < 100_000
    small = beginning("file", {"path": str(lines(tmp_path, "x", "small.csv"))}, Ticking())
    assert (small.rows, small.sample.seen) == (ROWS, ROWS)
    paced = beginning("file", {"path": str(lines(tmp_path, "x", "paced.csv")), "replay": 60.0}, Ticking())
    assert (paced.rows_s, paced.read_rows_s) == (pytest.approx(30, rel=0.05), None)
    assert paced.rows == pytest.approx(ROWS, rel=0.05)


def test_no_speed_is_measured_in_virtual_time_or_from_a_few_rows(tmp_path: Path) -> None:
    assert beginning("generator", {"rows": 5000, "rate": 0}, Clock(monotonic_s=lambda: 1.0)).read_rows_s is None
    assert beginning("generator", {"rows": 500, "rate": 0}, Ticking()).read_rows_s is None


def test_live_sources_are_left_alone() -> None:
    assert not sampled("generator", {"rate": 10.0}).sampled


def test_a_sample_is_bounded_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = SourceDeclaration(stream="s", name="a", node="n", connector="generator", options={"rows": 10**9, "rate": 100.0})
    source = open_source(declared, STREAM, ConnectorSettings())
    reads, closed = [], []
    read, close = source.read, source.close

    async def counted() -> Any:
        reads.append(1)
        return await read()

    async def counted_close() -> None:
        closed.append(1)
        await close()

    monkeypatch.setattr(source, "read", counted)
    monkeypatch.setattr(source, "close", counted_close)
    asyncio.run(read_beginning(source, Clock.real(), "a"))
    assert (len(reads), len(closed)) == (sample.MAX_CHUNKS, 1)
