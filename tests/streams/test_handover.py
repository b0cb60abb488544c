"""A stream that another node adopts: same lineage and numbers, same readers, and the frames that some reader still needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbon_node.streams.outbox.ledger import Reader
from sbon_node.streams.outbox.outbox import Outbox
from sbon_protocol.api.subscribers import follower_of
from sbon_protocol.errors import BrokenInvariantError
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
    other.handover.take("op", state, frames)
    other.handover.adopt("op", state, batch=11, offsets=offset(7, incarnation=3), epoch=2)


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

    def adopt() -> None:
        other.handover.adopt("op", state, batch=0, offsets=(), epoch=2)

    assert code_of(adopt) == "frames-missing"
    assert code_of(lambda: other.handover.take("op", state, frames[1:])) == "frames-missing"
    other.handover.take("op", state, frames[:1])
    assert code_of(adopt) == "frames-missing"
    assert other.streams() == []
    move(outbox, other)
    assert code_of(lambda: move(outbox, other)) == code_of(adopt) == "stream-exists"


def test_a_stream_may_be_adopted_again_until_a_batch_follows(outbox: Outbox, other: Outbox, other_path: Path) -> None:
    """Its new host may fail after the first time, and its engine run a batch without rows before the second."""
    publish(outbox, "op", "a", "b")
    move(outbox, other)
    state = outbox.handover.export("op")
    other.handover.adopt("op", state, batch=12, offsets=offset(7, incarnation=4), epoch=2)
    with sqlite3.connect(other_path) as connection:
        assert connection.execute("SELECT batch FROM streams WHERE name = 'op'").fetchall() == [(12,)]
    assert (other.visible_batch("op"), other.batch_offsets("op", 12)) == (12, offset(7, incarnation=4))
    assert code_of(lambda: other.handover.adopt("op", state, batch=12, offsets=(), epoch=3)) == "stream-exists"
    other.write_batch("op", 13, offset(9), [draft("c")])
    assert code_of(lambda: other.handover.adopt("op", state, batch=13, offsets=(), epoch=2)) == "stream-exists"
    other.publish("op", 13)
    assert code_of(lambda: other.handover.adopt("op", state, batch=13, offsets=(), epoch=2)) == "stream-exists"
    assert texts(other, "op") == ["a", "b", "c"]


def test_a_stream_comes_in_pieces_some_of_them_twice(outbox: Outbox, other: Outbox) -> None:
    """Frames that all readers acknowledge meanwhile do not come any more."""
    outbox.subscribe("op", "reader", 1)
    publish(outbox, "op", "a", "b", "c", "d", "e")
    frames = outbox.read("op", 0, 2**30)
    state = outbox.handover.export("op")
    other.handover.take("op", state, frames[:2])
    other.handover.take("op", state, frames[1:3])
    outbox.acknowledge("op", "reader", 2)
    state = outbox.handover.export("op")
    other.handover.take("op", state, frames[3:])
    other.handover.adopt("op", state, batch=0, offsets=(), epoch=2)
    assert texts(other, "op", 2) == ["c", "d", "e"]
    other.acknowledge("op", "reader", 4)
    assert (other.earliest("op"), texts(other, "op", 4)) == (5, ["e"])


def test_a_stream_of_which_not_all_has_come_is_gone_after_a_restart(outbox: Outbox, other: Outbox, other_path: Path) -> None:
    publish(outbox, "op", "a", "b")
    state, frames = outbox.handover.export("op"), outbox.read("op", 0, 2**30)
    other.handover.take("op", state, frames[:1])
    other.close()
    again = Outbox(other_path, SETTINGS)
    assert again.streams() == []
    assert code_of(lambda: again.handover.take("op", state, frames[1:])) == "frames-missing"
    move(outbox, again)
    assert texts(again, "op") == ["a", "b"]
    again.close()
    with sqlite3.connect(other_path) as connection:
        assert connection.execute("SELECT count(*) FROM frames").fetchone() == (2,)


def test_a_follower_is_subscribed_as_long_as_it_is_connected(outbox: Outbox, other: Outbox, tmp_path: Path) -> None:
    """It does not move with the stream, is gone after a restart, and ends with the next epoch of its reader."""
    publish(outbox, "op", "a", "b")
    follower = follower_of("reader", "attempt")
    for name in ("reader", follower):
        outbox.subscribe("op", name, 1, reader=Reader(epoch=1))
    outbox.subscribe("op", "reader", 1, reader=Reader(epoch=1))
    assert sorted(outbox.link_counts("op").links) == ["reader", follower]
    move(outbox, other)
    assert sorted(other.link_counts("op").links) == ["reader"]
    other.subscribe("op", follower, 1, reader=Reader(epoch=1))
    other.close()
    again = Outbox(tmp_path / "other.db", SETTINGS)
    assert sorted(again.link_counts("op").links) == ["reader"]
    again.close()
    outbox.subscribe("op", "reader", 1, reader=Reader(epoch=2))
    assert sorted(outbox.link_counts("op").links) == ["reader"]


def test_a_reader_has_been_sent_all_rows_wherever_they_came_from(outbox: Outbox, other: Outbox) -> None:
    outbox.subscribe("op", "reader", 1)
    publish(outbox, "op", "a", "bb", "ccc")
    for frame in outbox.read("op", 0, 2**30)[:2]:
        outbox.count_sent("op", "reader", frame)
    outbox.acknowledge("op", "reader", 1)
    move(outbox, other)
    assert other.link_counts("op").links["reader"].rows == 3
    other.subscribe("op", "reader", 4, reader=Reader(lineage=other.lineage("op"), acknowledged=1))  # The third came, too.
    assert other.link_counts("op").links["reader"].rows == 6
    for frame in other.read("op", 1, 2**30):
        other.count_sent("op", "reader", frame)
    assert other.link_counts("op").links["reader"].rows == 6


def test_a_reader_that_the_earlier_host_did_not_name_has_read_what_is_retained(outbox: Outbox, other: Outbox) -> None:
    publish(outbox, "op", "a", "bb", "ccc")
    move(outbox, other)
    other.subscribe("op", "reader", 3, reader=Reader(lineage=other.lineage("op")))
    assert other.link_counts("op").links["reader"].rows == 3
