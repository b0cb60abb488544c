"""Streams that are kept for other nodes: the frames of a stored batch, in the order of their numbers, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sbon_node.model.frames import Frame, FrameDraft
from sbon_node.streams.links.credit import weight
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.outbox.ledger import Tail
from sbon_node.streams.outbox.outbox import Outbox
from sbon_protocol.errors import SbonError
from tests.streams.outboxes import stream_settings

OP = "q.o1"


def frames(first: int, last: int, text: bytes = b"row") -> list[Frame]:
    return [
        Frame(stream=OP, number=number, payload=text + bytes([number]), rows=1, watermark_ms=number, ended=False, born_ms=number)
        for number in range(first, last + 1)
    ]


def state(last: int, *, trimmed: int = 0, lineage: int = 7, batch: int = 0) -> StreamState:
    size = weight(b"row1")
    tail = Tail(batch=batch, last=last, upto=last * size, watermark_ms=last, frames=last, rows=last, bytes=4 * last)
    readers = (("q.sink", trimmed, 1, ""),)
    return StreamState(lineage=lineage, tail=tail, trimmed=trimmed, trimmed_upto=trimmed * size, subscriptions=readers)


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    made = Outbox(tmp_path / "outbox.db", stream_settings())
    yield made
    made.close()


def keep(outbox: Outbox, of: StreamState, sent: list[Frame], after: int, settled: int = 0, most_bytes: int = 10**6) -> None:
    outbox.backups.keep(OP, of, sent, after, settled=settled, most_bytes=most_bytes)


def adopted(outbox: Outbox, of: StreamState) -> list[tuple[int, bytes]]:
    outbox.backups.release(OP, of)
    outbox.handover.adopt(OP, of, batch=of.tail.batch, offsets=(), epoch=2)
    return [(frame.number, frame.payload) for frame in outbox.read(OP, of.trimmed, 10**6)]


def test_a_stream_goes_on_with_the_frames_of_its_newest_stored_batch(outbox: Outbox) -> None:
    keep(outbox, state(3), frames(1, 3), 0)
    keep(outbox, state(5, trimmed=2), frames(4, 5), 3)
    assert outbox.streams() == []
    assert outbox.backups.last(OP, 7) == 5
    assert outbox.backups.last(OP, 8) == 0
    assert adopted(outbox, state(5, trimmed=2)) == [(n, b"row" + bytes([n])) for n in (3, 4, 5)]
    assert (outbox.latest(OP), outbox.epoch(OP), outbox.lineage(OP)) == (5, 2, 7)


def test_a_release_whose_adoption_fails_is_repeated(outbox: Outbox) -> None:
    keep(outbox, state(2), frames(1, 2), 0)
    outbox.backups.release(OP, state(2))
    assert [number for number, _ in adopted(outbox, state(2))] == [1, 2]


def test_a_stream_without_a_batch_goes_on_under_its_lineage(outbox: Outbox) -> None:
    nothing = StreamState(lineage=7, tail=Tail(), trimmed=0, trimmed_upto=0, subscriptions=())
    keep(outbox, state(2), frames(1, 2), 0)
    assert adopted(outbox, nothing) == []
    assert (outbox.latest(OP), outbox.lineage(OP), outbox.visible_batch(OP)) == (0, 7, -1)


def test_frames_of_a_batch_that_was_run_again_are_replaced(outbox: Outbox) -> None:
    keep(outbox, state(2), frames(1, 2), 0)
    keep(outbox, state(4), frames(3, 4, b"old"), 2)
    keep(outbox, state(3), frames(3, 3, b"new"), 2)
    assert adopted(outbox, state(3)) == [(1, b"row\x01"), (2, b"row\x02"), (3, b"new\x03")]


def test_frames_that_no_batch_stands_for_are_cut_off(outbox: Outbox) -> None:
    keep(outbox, state(2), frames(1, 2), 0)
    keep(outbox, state(4), frames(3, 4), 2)
    assert [number for number, _ in adopted(outbox, state(2))] == [1, 2]
    assert outbox.latest(OP) == 2


@pytest.mark.parametrize("given, after", [((5, 5), 4), ((4, 4), 2), ((2, 3), 2)])
def test_frames_that_do_not_follow_are_refused(outbox: Outbox, given: tuple[int, int], after: int) -> None:
    keep(outbox, state(3), frames(1, 3), 0)
    with pytest.raises(SbonError, match="do not follow"):
        keep(outbox, state(5), frames(*given), after)
    assert [number for number, _ in adopted(outbox, state(3))] == [1, 2, 3]


def test_a_stream_of_another_lineage_or_after_a_gap_begins_anew(outbox: Outbox) -> None:
    keep(outbox, state(3), frames(1, 3), 0)
    keep(outbox, state(8, trimmed=6), frames(7, 8), 6)
    assert outbox.backups.last(OP, 7) == 8
    keep(outbox, state(2, lineage=9), frames(1, 2), 0)
    assert (outbox.backups.last(OP, 7), outbox.backups.last(OP, 9)) == (0, 2)
    with pytest.raises(SbonError, match="are kept"):
        outbox.backups.release(OP, state(3, lineage=9))


def test_kept_frames_outlive_a_restart(tmp_path: Path) -> None:
    first = Outbox(tmp_path / "outbox.db", stream_settings())
    keep(first, state(4, trimmed=1), frames(2, 4), 1)
    keep(first, state(4, trimmed=2), [], 4)
    first.close()
    again = Outbox(tmp_path / "outbox.db", stream_settings())
    assert (again.streams(), again.backups.names(), again.backups.last(OP, 7)) == ([], [OP], 4)
    assert [number for number, _ in adopted(again, state(4, trimmed=2))] == [3, 4]
    again.backups.discard(OP)
    assert again.streams() == [OP]
    again.close()


def test_a_backup_gets_the_batch_that_its_host_shows_next(outbox: Outbox) -> None:
    outbox.open_stream(OP, "operator")
    outbox.subscribe(OP, "q.sink", 1)
    with pytest.raises(SbonError, match="nothing is kept of batch 0"):
        outbox.handover.unshown(OP, 0, 0, 10**6)
    outbox.write_batch(OP, 0, (), [FrameDraft(payload=bytes([number]), rows=1) for number in (1, 2)])
    given, unshown = outbox.handover.unshown(OP, 0, 0, 10**6)
    assert [(frame.number, frame.payload) for frame in unshown] == [(1, b"\x01"), (2, b"\x02")]
    assert (given.tail.batch, given.tail.last, outbox.visible_batch(OP)) == (0, 2, -1)
    assert outbox.handover.unshown(OP, 0, 1, 0)[1] == unshown[1:]


@pytest.mark.parametrize("settled", [0, 2])
def test_frames_of_a_batch_that_never_ends_are_refused_and_deleted(outbox: Outbox, settled: int) -> None:
    most = 10 * weight(b"row1")
    keep(outbox, state(2), frames(1, 2), 0, most_bytes=most)
    for after in range(2, 10):
        keep(outbox, state(1000), frames(after + 1, after + 1), after, settled, most)
    with pytest.raises(SbonError) as caught:
        keep(outbox, state(1000), frames(11, 11), 10, settled, most)
    assert (caught.value.code, outbox.backups.last(OP, 7)) == ("backup-too-large", settled)
    assert caught.value.message == f"its host sends more than {most:,} bytes of frames"
    keep(outbox, state(8), frames(settled + 1, 8), settled, settled, most)
    assert len(adopted(outbox, state(8))) == 8


def test_acknowledged_frames_make_room(outbox: Outbox) -> None:
    most = 3 * weight(b"row1")
    for last in range(1, 30):
        keep(outbox, state(last, trimmed=max(0, last - 3)), frames(last, last), last - 1, last - 1, most)
    assert [number for number, _ in adopted(outbox, state(29, trimmed=26))] == [27, 28, 29]
