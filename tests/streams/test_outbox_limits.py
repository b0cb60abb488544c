"""Full disks, frames too large, files that cannot be used, counts and bounded reads of an outbox."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from sbon_node.model.frames import MAX_FRAME_BYTES, FrameDraft
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.outbox.store import FrameStore
from sbon_protocol.errors import SbonError
from tests.full_disks import no_room
from tests.streams.outboxes import SETTINGS, code_of, draft, publish, stream_settings, texts

OFF, NORMAL, FULL = 0, 1, 2
"""Answers of ``PRAGMA synchronous``."""


def test_a_full_disk_loses_nothing_and_resumes(path: Path) -> None:
    box = Outbox(path, stream_settings(outbox_max_bytes=2**20))
    box.open_stream("op", "operator")
    box.subscribe("op", "one", 0)
    big = "x" * 100_000
    published = 0
    refusal = None
    while refusal is None and published < 20:
        try:
            publish(box, "op", big)
            published += 1
        except SbonError as error:
            refusal = error.code
    assert refusal == "disk-full"
    assert 5 <= published <= 10
    assert len(texts(box, "op")) == published
    box.acknowledge("op", "one", published - 1)
    assert box.earliest("op") == published
    assert box.newest("op") == published - 1
    publish(box, "op", "resumed")
    assert texts(box, "op", published - 1) == [big, "resumed"]
    box.close()


def test_a_limit_of_the_size_of_files_is_a_full_disk(path: Path) -> None:
    """SQLite calls it an I/O error."""
    box = Outbox(path, SETTINGS)
    box.open_stream("op", "operator")
    box.subscribe("op", "one", 0)
    with no_room():
        assert code_of(lambda: publish(box, "op", "x" * 100_000)) == "disk-full"
    publish(box, "op", "resumed")
    assert texts(box, "op") == ["resumed"]
    assert not list(path.parent.glob("room.*"))
    box.close()


@pytest.mark.parametrize("finite", [True, False])
def test_a_full_disk_takes_what_a_source_keeps_for_later_subscribers(path: Path, finite: bool) -> None:
    """A file of five times the disk is read to its end; a live source keeps less history than its bounds say."""
    box = Outbox(path, stream_settings(outbox_max_bytes=2**20, trim_frames=2))
    box.open_stream("s", "source", finite=finite)
    box.subscribe("s", "one", 0)
    for number in range(1, 51):
        box.write_source("s", [draft("x" * 100_000)], str(number).encode())
        box.acknowledge("s", "one", number)
    assert box.latest("s") == 50
    assert 42 <= box.earliest("s") <= 48
    assert path.stat().st_size <= 2**20
    if finite:
        with pytest.raises(SbonError, match="attach the source again") as caught:
            box.subscribe("s", "later", 0)
        assert caught.value.code == "not-retained"
    else:
        assert box.subscribe("s", "later", 0) == box.earliest("s")
    box.close()
    again = Outbox(path, stream_settings(outbox_max_bytes=2**20))
    assert (again.earliest("s"), again.latest("s")) == (box.earliest("s"), 50)
    again.close()


def code_of_write(box: Outbox, stream: str, text: str) -> str:
    try:
        box.write_source(stream, [draft(text)], b"1")
    except SbonError as error:
        return error.code
    return ""


def test_sources_leave_room_for_the_operators_that_read_them(path: Path) -> None:
    box = Outbox(path, stream_settings(outbox_max_bytes=2**20))
    for name in ("file", "unread"):
        box.open_stream(name, "source", finite=True)
    box.open_stream("op", "operator")
    box.subscribe("file", "op#0", 0)
    box.write_source("unread", [draft("x" * 100_000)], b"1")
    while code_of_write(box, "file", "x" * 100_000) != "disk-full":
        assert box.latest("file") < 20
    written = box.latest("file")
    assert 4 <= written <= 8
    publish(box, "op", "x" * 100_000)
    assert (box.earliest("file"), box.earliest("unread")) == (1, 1)
    box.acknowledge("file", "op#0", written)
    box.write_source("file", [draft("x" * 100_000)], b"2")
    assert (box.latest("file"), box.earliest("unread")) == (written + 1, 1)
    box.close()


def test_frames_over_the_limit_are_refused(outbox: Outbox) -> None:
    large = FrameDraft(payload=bytes(MAX_FRAME_BYTES + 1), rows=1)
    assert code_of(lambda: outbox.write_batch("op", 0, (), [large])) == "frame-too-large"
    assert code_of(lambda: outbox.write_source("live", [large], b"")) == "frame-too-large"
    assert outbox.newest("op") == -1
    outbox.write_source("live", [FrameDraft(payload=bytes(MAX_FRAME_BYTES), rows=1)], b"")


@pytest.mark.parametrize(
    "spoil, code",
    [
        (lambda path: path.write_bytes(b"no database at all" * 100), "outbox-corrupt"),
        (lambda path: sqlite3.connect(path).execute("PRAGMA user_version=99").connection.close(), "outbox-version"),
        (lambda path: path.with_name("other.db").rename(path), "outbox-corrupt"),
    ],
    ids=["garbage", "newer", "another program's"],
)
def test_a_file_that_cannot_be_used_is_named(path: Path, spoil: object, code: str) -> None:
    other = sqlite3.connect(path.with_name("other.db"))
    other.execute("CREATE TABLE mine (x)")
    other.close()
    box = Outbox(path, SETTINGS)
    box.close()
    spoil(path)  # type: ignore[operator]
    with pytest.raises(SbonError) as caught:
        Outbox(path, SETTINGS)
    assert caught.value.code == code
    assert str(path) in str(caught.value)


def test_bytes_count_each_time_they_are_sent_and_rows_once(outbox: Outbox, path: Path) -> None:
    publish(outbox, "op", "ab", "cde")
    outbox.subscribe("op", "one", 0)
    frames = outbox.read("op", 0, 2**20)
    for frame in [*frames, frames[1]]:
        outbox.count_sent("op", "one", frame)
    outbox.close()
    again = Outbox(path, SETTINGS)
    count = again.link_counts("op")
    assert (count.frames, count.rows, count.bytes) == (2, 5, 5)
    assert (count.links["one"].frames, count.links["one"].rows, count.links["one"].bytes) == (3, 5, 8)
    again.close()


@pytest.mark.parametrize("fsync, promised, lazy", [(False, OFF, OFF), (True, FULL, NORMAL)])
def test_with_fsync_what_a_promise_rests_on_is_synced(path: Path, fsync: bool, promised: int, lazy: int) -> None:
    store = FrameStore(path, fsync=fsync, max_bytes=0, rng=random.Random(1))
    for is_promised, expected in ((True, promised), (False, lazy), (True, promised)):
        with store.transaction(promised=is_promised) as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (expected,)
    store.close()


@pytest.mark.parametrize("fsync", [False, True])
def test_reads_are_bounded_and_synced_files_work_the_same(path: Path, fsync: bool) -> None:
    box = Outbox(path, stream_settings(fsync=fsync))
    box.open_stream("op", "operator")
    publish(box, "op", *"abcd")
    box.subscribe("op", "one", 0)
    box.acknowledge("op", "one", 1)
    assert [frame.number for frame in box.read("op", 1, 2 * 65)] == [2, 3]
    assert [frame.number for frame in box.read("op", 1, 1)] == [2]
    assert box.read("op", 4, 1000) == []
    box.close()
