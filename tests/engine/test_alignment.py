"""When two hosts of one operator have emitted the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_node.engine.alignment import Cut, check_aligned, cut_of
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.model.frames import InputOffset
from sbon_protocol.errors import SbonError


def cut(*frames: int, ran: int = 5, after: int = 5, incarnation: int = 0) -> Cut:
    offsets = tuple(InputOffset(frame=frame, watermark_ms=10 * frame, incarnation=incarnation) for frame in frames)
    return cut_of(offsets, ran, after)


@pytest.mark.parametrize(
    "ours, theirs, aligned",
    [
        (cut(3, 4), cut(3, 4), True),
        (cut(3, 4, incarnation=2), cut(3, 4, incarnation=9), True),
        (cut(3, 4, after=9), cut(3, 4, after=5), True),  # the next watermark has emitted nothing yet
        (cut(3, 4, ran=4), cut(3, 4, ran=5), False),
        (cut(3, 5), cut(3, 4), False),
        (cut(4, 3), cut(3, 4), False),
    ],
    ids=["equal", "other starts", "other next watermark", "other watermark", "further", "other inputs"],
)
def test_equal_offsets_and_equal_watermarks_have_emitted_the_same(ours: Cut, theirs: Cut, aligned: bool) -> None:
    assert ours.has_emitted_as(theirs) == aligned
    if aligned:
        check_aligned(ours, theirs, "q.o1")
        return
    with pytest.raises(SbonError) as caught:
        check_aligned(ours, theirs, "q.o1")
    assert caught.value.code == "not-aligned"


def test_a_batch_that_moved_the_watermark_is_not_settled(tmp_path: Path) -> None:
    """Numbers alone do not show it: each planned batch is committed."""
    log = BatchLog(tmp_path)
    for batch, (ran, after) in enumerate([(5, 8), (8, 8)]):
        log.write_offsets(batch, (InputOffset(frame=3, incarnation=batch),), watermark_ms=ran)
        log.write_commit(batch, after)
    first, second = log.read_cut(0), log.read_cut(1)
    assert (first.is_settled, second.is_settled) == (False, True)
    assert first.offsets == second.offsets
    assert not first.has_emitted_as(second)


def test_frames_behind_are_those_of_all_inputs() -> None:
    assert cut(3, 4).frames_behind(cut(5, 5)) == 3
    assert cut(6, 5).frames_behind(cut(5, 5)) == -1
