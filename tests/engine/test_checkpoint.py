"""The checkpoint's two logs, and what is mended before an engine starts on them."""

import json
from pathlib import Path

import pytest

from sbon_node.engine.checkpoint import BatchLog
from sbon_node.model.frames import InputOffset

AT = (InputOffset(frame=7, watermark_ms=5, ended=False, incarnation=1),)


def checkpoint(folder: Path, offsets: list[int], commits: list[int]) -> BatchLog:
    log = BatchLog(folder)
    for batch in offsets:
        log.write_offsets(batch, AT)
    for batch in commits:
        log.write_commit(batch)
    return log


@pytest.mark.parametrize(
    "offsets, commits, broken, stored, newest, planned",
    [
        ([], [], [], [], None, []),
        # Spark starts its first batch in an empty folder only; what nothing came of is planned again.
        ([0], [], [], [], None, []),
        ([0, 1], [0], [], [0], 0, [0, 1]),
        ([0, 1], [0, 1], [], [0, 1], 1, [0, 1]),
        # A commit whose output was lost never happened; left in place, what was planned after it would be skipped by Spark.
        ([0, 1, 2], [0, 1], [], [0], 0, [0, 1]),
        # An empty commit file stops Spark.
        ([0, 1], [0, 1], ["commits/1"], [0, 1], 0, [0, 1]),
        ([0, 1, 2], [0, 1], ["offsets/2"], [0, 1], 1, [0, 1]),
        ([0, 1, 2], [0, 1], ["offsets/2", "commits/1"], [0, 1], 0, [0, 1]),
        # A commit without its plan is one that Spark stumbles over: it plans the batch again, and finds it committed.
        ([0, 1, 2, 3], [0, 1, 2, 3], ["offsets/3"], [0, 1, 2, 3], 2, [0, 1, 2]),
        ([0, 1, 2, 3], [0, 1, 2, 3], ["offsets/2"], [0, 1, 2, 3], 3, [0, 1, 2, 3]),
        ([0], [0], ["offsets/0"], [0], None, []),
        ([0, 1], [0, 1], ["commits/0", "commits/1"], [0, 1], None, []),
    ],
)
def test_repair(
    tmp_path: Path,
    offsets: list[int],
    commits: list[int],
    broken: list[str],
    stored: list[int],
    newest: int | None,
    planned: list[int],
) -> None:
    log = checkpoint(tmp_path, offsets, commits)
    for name in broken:
        (tmp_path / name).write_bytes(b"")

    assert log.repair(lambda batch: batch in stored, visible=-1) == newest
    assert log.offsets() == planned
    assert log.commits() == list(range(0 if newest is None else newest + 1))


@pytest.mark.parametrize("left", ["offsets/.0.5f1c.tmp", "state/0/0/1.delta", "commits/.0.77aa.tmp", "metadata", "sources/0/0"])
def test_nothing_is_left_of_a_first_batch_that_nothing_came_of(tmp_path: Path, left: str) -> None:
    (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / left).write_bytes(b"")

    assert BatchLog(tmp_path).repair(lambda batch: False, visible=-1) is None
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_has_lost_what_was_shown_is_left_as_it_is(tmp_path: Path) -> None:
    """The node refuses to continue with it, so that the user can still mend it."""
    log = checkpoint(tmp_path, [5, 6], [5])
    (tmp_path / "state").mkdir()
    (tmp_path / "commits" / "5").write_bytes(b"")

    assert log.repair(lambda batch: True, visible=5) is None
    assert (tmp_path / "state").is_dir()


@pytest.mark.parametrize("fsync, newest", [(True, 0), (False, 1)])
def test_a_commit_that_was_not_shown_counts_where_only_processes_die(tmp_path: Path, fsync: bool, newest: int) -> None:
    """The state behind it was synced before it would have been shown."""
    checkpoint(tmp_path, [0, 1, 2], [0, 1])

    assert BatchLog(tmp_path, fsync=fsync).repair(lambda batch: True, visible=0) == newest
    assert BatchLog(tmp_path).offsets() == list(range(newest + 2))


def test_remains_of_full_disks_are_cleared_away(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, [0], [0])
    scratch = tmp_path / "state" / "0" / "0" / "_metadata" / ".schema.209f8f6c.tmp"
    scratch.parent.mkdir(parents=True)
    scratch.touch()

    assert log.repair(lambda batch: True, visible=0) == 0
    assert not scratch.exists()


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"id": 3}'])
def test_metadata_that_were_lost_are_written_again(tmp_path: Path, content: bytes | None) -> None:
    log = checkpoint(tmp_path, [0], [0])
    if content is not None:
        (tmp_path / "metadata").write_bytes(content)

    log.repair(lambda batch: True, visible=0)

    assert len(json.loads((tmp_path / "metadata").read_text())["id"]) == 36


def test_offsets_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, [3], [])
    assert log.read_offsets(3) == AT
    assert not log.is_committed(3)


def test_offsets_as_spark_writes_them(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    text = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"frame": 2, "watermark_ms": 9, "ended": true, "incarnation": 4}'
    (tmp_path / "offsets" / "0").write_text(text)
    assert BatchLog(tmp_path).read_offsets(0) == (InputOffset(frame=2, watermark_ms=9, ended=True, incarnation=4),)


@pytest.mark.parametrize("visible, told", [(0, True), (1, False)])
def test_a_batch_that_will_run_again_moves_every_input(tmp_path: Path, visible: int, told: bool) -> None:
    """A batch that was shown stays what it was."""
    log = BatchLog(tmp_path)
    before, quiet = InputOffset(frame=1, incarnation=2), InputOffset(frame=4, watermark_ms=-7, incarnation=2)
    log.write_offsets(0, (before, quiet), watermark_ms=-9)
    log.write_commit(0, -8)
    log.write_offsets(1, (InputOffset(frame=2, incarnation=2), quiet), watermark_ms=-8)

    assert log.repair(lambda batch: True, visible) == 0
    first, second = log.read_offsets(1)
    assert (first.frame, second.frame, second.watermark_ms, log.read_watermark(1)) == (2, 4, -7, -8)
    assert (second != quiet) == told


def test_no_checksum_stays_of_what_is_written_anew(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, [0, 1, 2], [0, 1])
    names = ("metadata", "offsets/1", "offsets/2", "commits/1", "commits/0")
    marks = [(tmp_path / name).with_name(f".{Path(name).name}.crc") for name in names]
    for mark in marks:
        mark.write_bytes(b"crc")
    assert log.repair(lambda batch: batch != 1, visible=0) == 0
    kept = [name for name, mark in zip(names, marks, strict=True) if mark.exists()]
    assert kept == ["commits/0"]
