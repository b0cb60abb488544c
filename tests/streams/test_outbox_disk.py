"""Disk of the outbox and of spilled frames is given back after use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sbon_node.model.frames import Frame, FrameDraft
from sbon_node.streams.links.inbox import Spill
from sbon_node.streams.outbox.outbox import Outbox
from tests.streams.outboxes import stream_settings

MIB = 2**20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


def disk(path: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in path.parent.glob("outbox.db*"))


def settle(outbox: Outbox, longest_s: float = 120.0) -> float:
    """Call ``shrink`` until it has no more to do; return the seconds it would have taken, which are not waited."""
    seconds = 0.0
    while (pause_s := outbox.shrink()) is not None:
        seconds += pause_s
        assert seconds < longest_s
    return seconds


def write(outbox: Outbox, stream: str, megabytes: int) -> None:
    for _ in range(megabytes):
        outbox.write_source(stream, [FrameDraft(payload=os.urandom(MIB), rows=1)], b"")


@pytest.mark.parametrize("fsync", [False, True])
def test_a_dropped_stream_gives_its_disk_back_and_leaves_others_whole(path: Path, fsync: bool) -> None:
    outbox = Outbox(path, stream_settings(fsync=fsync))
    for name in ("files/kept", "files/dropped"):
        outbox.open_stream(name, "source", finite=True)
    for _ in range(10):
        write(outbox, "files/dropped", 3)
        write(outbox, "files/kept", 1)
    kept = [frame.payload for frame in outbox.read("files/kept", 0, 2**30)]
    outbox.drop_stream("files/dropped")
    assert disk(path) > 40 * MIB
    settle(outbox)
    assert disk(path) < 10 * MIB + 3 * MIB
    assert [frame.payload for frame in outbox.read("files/kept", 0, 2**30)] == kept
    outbox.close()
    assert disk(path) < 10 * MIB + 3 * MIB
    again = Outbox(path, stream_settings())
    assert [frame.payload for frame in again.read("files/kept", 0, 2**30)] == kept
    again.close()


def test_acknowledged_frames_of_an_operator_give_their_disk_back(path: Path) -> None:
    outbox = Outbox(path, stream_settings())
    outbox.open_stream("q.1", "operator")
    outbox.subscribe("q.1", "sink", 0)
    for batch in range(40):
        outbox.write_batch("q.1", batch, (), [FrameDraft(payload=os.urandom(MIB), rows=1)])
        outbox.publish("q.1", batch)
    settle(outbox)
    assert disk(path) > 40 * MIB
    outbox.acknowledge("q.1", "sink", 40)
    settle(outbox)
    assert disk(path) < 3 * MIB
    outbox.close()


def test_pages_that_a_flowing_stream_reuses_stay(path: Path) -> None:
    outbox = Outbox(path, stream_settings())
    outbox.open_stream("q.1", "operator")
    outbox.subscribe("q.1", "sink", 0)
    sizes = set()
    for batch in range(60):
        outbox.write_batch("q.1", batch, (), [FrameDraft(payload=os.urandom(MIB), rows=1)])
        outbox.publish("q.1", batch)
        if batch % 4 == 3:  # Once in four looks all pages are free.
            outbox.acknowledge("q.1", "sink", batch + 1)
        assert outbox.shrink() is not None
        if batch > 20:
            sizes.add(path.stat().st_size)
    assert len(sizes) == 1, "the file shrinks and grows while its pages are in use"
    outbox.close()


def test_a_quiet_outbox_empties_its_journal_and_then_rests(path: Path) -> None:
    outbox = Outbox(path, stream_settings())
    outbox.open_stream("files/a", "source", finite=True)
    write(outbox, "files/a", 4)
    journal = path.with_name("outbox.db-wal")
    assert journal.stat().st_size > 0
    settle(outbox, longest_s=10.0)
    assert journal.stat().st_size == 0
    write(outbox, "files/a", 1)
    assert len(outbox.read("files/a", 0, 2**30)) == 5
    outbox.close()


def test_a_spill_that_is_read_gives_its_disk_back(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "spill", 2**30)
    frames = [
        Frame(stream="s", number=number, payload=os.urandom(MIB), rows=1, watermark_ms=0, ended=False, born_ms=0)
        for number in range(1, 13)
    ]
    for _ in range(2):
        for frame in frames:
            spill.push(frame)
        assert [spill.pop() for _ in frames] == frames
        assert sum(file.stat().st_size for file in (tmp_path / "spill").iterdir()) < MIB
