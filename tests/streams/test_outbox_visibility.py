"""Visibility of an outbox's frames (docs/design.md, section 8), over real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_node.model.frames import NO_WATERMARK_MS
from sbon_node.streams.outbox.outbox import Outbox
from sbon_protocol.errors import BrokenInvariantError
from tests.streams.outboxes import SETTINGS, code_of, draft, offset, texts


def test_nothing_is_visible_before_it_is_published(outbox: Outbox) -> None:
    assert outbox.write_batch("op", 0, offset(3), [draft("a"), draft("b")]) == "written"
    assert texts(outbox, "op") == []
    assert (outbox.newest("op"), outbox.visible_batch("op"), outbox.latest("op")) == (0, -1, 0)
    assert outbox.publish("op", 0) == offset(3)
    assert texts(outbox, "op") == ["a", "b"]
    assert [frame.number for frame in outbox.read("op", 0, 2**20)] == [1, 2]


def test_a_rerun_is_dropped_where_visible_and_replaces_where_not(outbox: Outbox) -> None:
    outbox.write_batch("op", 0, offset(1), [draft("a"), draft("b")])
    assert outbox.write_batch("op", 0, offset(1), [draft("c")]) == "replaced"
    outbox.publish("op", 0)
    assert outbox.write_batch("op", 0, offset(1), [draft("d"), draft("e")]) == "dropped"
    assert outbox.write_batch("op", 1, offset(2), [draft("f")]) == "written"
    outbox.publish("op", 1)
    assert [(frame.number, frame.payload) for frame in outbox.read("op", 0, 2**20)] == [(1, b"c"), (2, b"f")]


def test_publishing_shows_all_batches_up_to_one_and_again_is_no_news(outbox: Outbox) -> None:
    for batch in range(3):
        outbox.write_batch("op", batch, offset(batch + 1), [draft(str(batch))])
    assert outbox.publish("op", 1) == offset(2)
    assert texts(outbox, "op") == ["0", "1"]
    assert outbox.publish("op", 0) == offset(2)
    assert [outbox.has_batch("op", batch) for batch in (-1, 0, 1, 2, 3)] == [False, True, True, True, False]
    assert (outbox.batch_offsets("op", 1), outbox.batch_offsets("op", 2)) == (offset(2), offset(3))
    assert code_of(lambda: outbox.batch_offsets("op", 0)) == "batch-unknown"


def test_a_batch_run_again_takes_back_those_written_after_it(path: Path) -> None:
    """Its commit was lost with the power, and with it the plan of the next, which may be planned otherwise."""
    box = Outbox(path, SETTINGS)
    box.open_stream("op", "operator")
    box.write_batch("op", 0, offset(1), [draft("a"), draft("b")])
    box.write_batch("op", 1, offset(2), [draft("c")])
    assert box.write_batch("op", 0, offset(1), [draft("ab")]) == "replaced"
    assert box.newest("op") == 0
    box.close()
    again = Outbox(path, SETTINGS)
    assert again.newest("op") == 0
    assert again.write_batch("op", 1, offset(3), [draft("cd")]) == "written"
    again.publish("op", 1)
    assert texts(again, "op") == ["ab", "cd"]
    again.close()


@pytest.mark.parametrize("batch", [2, 5])
def test_batches_are_written_strictly_in_order(outbox: Outbox, batch: int) -> None:
    outbox.write_batch("op", 0, offset(1), [draft("a")])
    outbox.write_batch("op", 1, offset(2), [draft("b")])
    outbox.publish("op", -1)
    if batch == 2:
        assert outbox.write_batch("op", batch, offset(3), [draft("c")]) == "written"
        return
    with pytest.raises(BrokenInvariantError):
        outbox.write_batch("op", batch, offset(3), [draft("c")])


def test_a_broken_rule_raises(outbox: Outbox) -> None:
    with pytest.raises(BrokenInvariantError, match="no frame"):
        outbox.write_batch("op", 0, offset(1), [])
    with pytest.raises(BrokenInvariantError, match="never written"):
        outbox.publish("op", 0)
    with pytest.raises(BrokenInvariantError, match="belong to batches"):
        outbox.write_source("op", [draft("a")], b"")
    with pytest.raises(BrokenInvariantError, match="no batches"):
        outbox.write_batch("file", 0, (), [draft("a")])
    outbox.write_batch("op", 0, offset(1), [draft("a", ended=True)])
    outbox.publish("op", 0)
    with pytest.raises(BrokenInvariantError, match="other input"):
        outbox.write_batch("op", 0, offset(2), [draft("a")])
    with pytest.raises(BrokenInvariantError, match="has ended"):
        outbox.write_batch("op", 1, offset(2), [draft("b")])
    assert outbox.write_batch("op", 1, offset(1, incarnation=2), [draft(ended=True)]) == "written"


def test_only_the_last_frame_of_a_batch_carries_its_watermark(outbox: Outbox) -> None:
    outbox.write_batch("op", 0, offset(1), [draft("a", 10), draft("b", 10)])
    outbox.write_batch("op", 1, offset(2), [draft("c", 20), draft("d", 20), draft("e", 20)])
    outbox.write_batch("op", 2, offset(3), [draft("f", 15, ended=True)])
    outbox.publish("op", 2)
    frames = outbox.read("op", 0, 2**20)
    assert [frame.watermark_ms for frame in frames] == [NO_WATERMARK_MS, 10, 10, 10, 20, 20]
    assert [frame.ended for frame in frames] == [False, False, False, False, False, True]
    assert (outbox.watermark_ms("op"), outbox.ended("op")) == (20, True)


def test_a_batch_without_rows_or_a_later_watermark_makes_no_frame(outbox: Outbox) -> None:
    outbox.write_batch("op", 0, offset(1), [draft("")])
    outbox.write_batch("op", 1, offset(2), [draft("a", 10)])
    outbox.write_batch("op", 2, offset(3), [draft("", 10), draft("", 10)])
    outbox.write_batch("op", 3, offset(4), [draft("", 20)])
    outbox.publish("op", 2)
    assert [(frame.number, frame.rows, frame.watermark_ms) for frame in outbox.read("op", 0, 2**20)] == [(1, 1, 10)]
    assert (outbox.visible_batch("op"), outbox.batch_offsets("op", 2)) == (2, offset(3))
    outbox.publish("op", 3)
    outbox.write_batch("op", 4, offset(5), [draft("", 20, ended=True)])
    outbox.publish("op", 4)
    outbox.write_batch("op", 5, offset(5, incarnation=2), [draft("", 20, ended=True)])
    outbox.publish("op", 5)
    assert [(frame.number, frame.watermark_ms, frame.ended) for frame in outbox.read("op", 1, 2**20)] == [
        (2, 20, False),
        (3, 20, True),
    ]


def test_a_batch_that_runs_again_may_lose_and_gain_its_frame(outbox: Outbox) -> None:
    outbox.write_batch("op", 0, offset(1), [draft("a", 10)])
    assert outbox.write_batch("op", 0, offset(1), [draft("")]) == "replaced"
    assert outbox.write_batch("op", 0, offset(1), [draft("b", 10)]) == "replaced"
    outbox.write_batch("op", 1, offset(2), [draft("c", 10)])
    outbox.publish("op", 1)
    assert texts(outbox, "op") == ["b", "c"]
