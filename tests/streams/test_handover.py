"""A stream that another node adopts: same lineage and numbers, same readers, and the frames that some reader still needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sbon_node.errors import BrokenInvariantError
from sbon_node.streams.outbox.ledger import Reader
from sbon_node.streams.outbox.outbox import Outbox
from tests.streams.outboxes import SETTINGS, code_of, draft, offset, publish, texts


@pytest.fixture
def other_path(tmp_path: Path) -> Path:
    return tmp_path / "other.db"


@pytest.fixture
def other(other_path: Path) -> Iterator[Outbox]:
    box = Outbox(other_path, SETTINGS)
    yield box
    box.close()


def move(outbox: Outbox, other: Outbox) -> None:
    state = outbox.handover.export("op")
    frames = outbox.read("op", state.trimmed, 2**30)
    other.handover.adopt("op", state, frames, batch=11, offsets=offset(7, incarnation=3), epoch=2)


def test_an_adopted_stream_goes_on_and_survives_a_restart(outbox: Outbox, other: Outbox, other_path: Path) -> None:
    outbox.subscribe("op", "reader", 1, reader=Reader(epoch=4))
    outbox.subscribe("op", "slow", 1)
    publish(outbox, "op", "a", "bb", "ccc")
    outbox.acknowledge("op", "reader", 2)
    outbox.acknowledge("op", "slow", 1)
    move(outbox, other)
    counts = outbox.link_counts("op")
    for box in (other, Outbox(other_path, SETTINGS)):
        assert (box.lineage("op"), box.epoch("op"), box.earliest("op"), box.latest("op")) == (outbox.lineage("op"), 2, 2, 3)
        assert texts(box, "op", 1) == ["bb", "ccc"]
        assert (box.visible_batch("op"), box.batch_offsets("op", 11)) == (11, offset(7, incarnation=3))
        assert (box.link_counts("op").rows, box.link_counts("op").frames) == (counts.rows, counts.frames) == (6, 3)
        assert {name: link.acknowledged for name, link in box.link_counts("op").links.items()} == {"reader": 2, "slow": 1}
        assert box.reader_epoch("op", "reader") == 4
        assert box.stored().streams == {"op": outbox.stored().streams["op"]}
        if box is not other:
            box.close()

    other.write_batch("op", 12, offset(9), [draft("d")])
    other.publish("op", 12)
    assert [frame.number for frame in other.read("op", 1, 2**30)] == [2, 3, 4]
    other.acknowledge("op", "slow", 2)
    assert other.earliest("op") == 3
    assert other.subscribe("op", "reader", 4) == 4


def test_a_stream_that_grows_is_not_exported(outbox: Outbox) -> None:
    outbox.write_batch("op", 0, offset(1), [draft("a")])
    with pytest.raises(BrokenInvariantError, match="not visible"):
        outbox.handover.export("op")
    with pytest.raises(BrokenInvariantError):
        outbox.handover.export("file")
    assert code_of(lambda: outbox.handover.export("nothing")) == "stream-unknown"


def test_a_stream_is_adopted_whole_and_once(outbox: Outbox, other: Outbox) -> None:
    publish(outbox, "op", "a", "b")
    state, frames = outbox.handover.export("op"), outbox.read("op", 0, 2**30)
    for some in (frames[:1], frames[1:], frames[::-1]):
        with pytest.raises(BrokenInvariantError):
            other.handover.adopt("op", state, some, batch=0, offsets=(), epoch=2)
    assert other.streams() == []
    move(outbox, other)
    assert code_of(lambda: move(outbox, other)) == "stream-exists"
