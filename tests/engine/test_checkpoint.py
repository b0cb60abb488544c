"""The checkpoint's two logs, and what is mended before an engine starts on them."""

from pathlib import Path

import pytest

from sbon_node.engine.checkpoint import BatchLog
from sbon_node.streams.frame import InputOffset

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
        ([0], [], [], [], None, [0]),
        ([0, 1], [0], [], [0], 0, [0, 1]),
        ([0, 1], [0, 1], [], [0, 1], 1, [0, 1]),
        # A commit whose output was lost never happened; left in place, what was planned after it would be skipped by Spark.
        ([0, 1, 2], [0, 1], [], [0], 0, [0, 1]),
        # An empty commit file stops Spark.
        ([0, 1], [0, 1], ["commits/1"], [0, 1], 0, [0, 1]),
        ([0, 1, 2], [0, 1], ["offsets/2"], [0, 1], 1, [0, 1]),
        ([0, 1, 2], [0, 1], ["offsets/2", "commits/1"], [0, 1], 0, [0, 1]),
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

    assert log.repair(lambda batch: batch in stored) == newest
    assert log.offsets() == planned
    assert log.commits() == list(range(0 if newest is None else newest + 1))


def test_offsets_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, [3], [])
    assert log.read_offsets(3) == AT
    assert not log.is_committed(3)


def test_offsets_as_spark_writes_them(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    text = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"frame": 2, "watermark_ms": 9, "ended": true, "incarnation": 4}'
    (tmp_path / "offsets" / "0").write_text(text)
    assert BatchLog(tmp_path).read_offsets(0) == (InputOffset(frame=2, watermark_ms=9, ended=True, incarnation=4),)
