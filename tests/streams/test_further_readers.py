"""Further sinks of a stream that has flowed before: where they begin, what is kept for them, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_node.streams.outbox.ledger import Reader
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.outbox.retention import Begin, Beginning
from sbon_protocol.errors import SbonError
from tests.streams.outboxes import code_of, draft, offset, publish, stream_settings, texts

FIRST, MORE = "q.sink", "q.sink2"
FRAME = 65
"""The weight of a frame with a letter."""


def begin(outbox: Outbox, how: Begin, epoch: int = 1, sink: str = MORE) -> Beginning:
    return outbox.further.subscribe("op", sink, epoch, how)


def test_it_begins_with_the_first_frame_while_all_are_kept(outbox: Outbox) -> None:
    publish(outbox, "op", *"abc")
    outbox.subscribe("op", FIRST, 0)
    assert begin(outbox, "earliest") == Beginning(frame=0, rows=0, ended=False)
    outbox.acknowledge("op", FIRST, 3)
    assert texts(outbox, "op") == ["a", "b", "c"], "they are kept for it before it connects"
    assert begin(outbox, "earliest").frame == 0, "a repeated call"
    assert outbox.subscribe("op", MORE, 1, 0, Reader(epoch=1)) == 1


def test_it_begins_after_the_newest_frame_where_others_are_gone(path: Path) -> None:
    outbox = Outbox(path, stream_settings())
    outbox.open_stream("op", "operator")
    publish(outbox, "op", "ab", "c", "def")
    outbox.subscribe("op", FIRST, 0)
    outbox.acknowledge("op", FIRST, 1)
    with pytest.raises(SbonError) as gone:
        begin(outbox, "earliest")
    assert (gone.value.code, "--from now" in gone.value.hint) == ("not-retained", True)
    assert begin(outbox, "now") == Beginning(frame=3, rows=6, ended=False)
    publish(outbox, "op", "g")
    outbox.acknowledge("op", FIRST, 4)
    assert begin(outbox, "now") == Beginning(frame=3, rows=6, ended=False), "a repeated call"
    assert texts(outbox, "op", 3) == ["g"]
    outbox.unsubscribe("op", MORE)
    assert outbox.earliest("op") == 5
    outbox.close()


def test_a_stream_that_has_ended_has_no_more_rows_for_it(outbox: Outbox) -> None:
    outbox.write_batch("op", 0, offset(1), [draft("ab", ended=True)])
    outbox.publish("op", 0)
    assert begin(outbox, "earliest") == Beginning(frame=0, rows=0, ended=False)
    assert begin(outbox, "now") == Beginning(frame=1, rows=2, ended=True)


def test_a_later_sink_of_that_id_ends_the_earlier_one(outbox: Outbox) -> None:
    gone: list[tuple[str, str]] = []
    outbox.watch(lambda stream, subscriber, error: gone.append((subscriber, error.code)))
    publish(outbox, "op", *"ab")
    outbox.subscribe("op", FIRST, 0)
    begin(outbox, "earliest", epoch=3)
    assert begin(outbox, "now", epoch=4).frame == 2
    assert gone == [(MORE, "reader-fenced")]
    assert code_of(lambda: begin(outbox, "now", epoch=3)) == "reader-fenced"
    assert code_of(lambda: outbox.subscribe("op", MORE, 1, 0, Reader(epoch=3))) == "reader-fenced"
    assert outbox.further.names("op") == [MORE]


def test_a_sink_that_lags_holds_up_nobody_and_fails_alone(path: Path) -> None:
    settings = stream_settings(sink_quota_bytes=3 * FRAME, outbox_quota_bytes=2 * FRAME)
    outbox = Outbox(path, settings)
    outbox.open_stream("op", "operator")
    outbox.subscribe("op", FIRST, 0)
    begin(outbox, "earliest")
    for number, letter in enumerate("abc", 1):
        publish(outbox, "op", letter)
        outbox.received("op", FIRST, number)
        outbox.acknowledge("op", FIRST, number)
    assert not outbox.pressure("op"), "only the first sink is waited for"
    assert outbox.earliest("op") == 1
    publish(outbox, "op", "d")
    assert outbox.earliest("op") == 4, "nothing is kept for it any more"
    with pytest.raises(SbonError) as failed:
        outbox.subscribe("op", MORE, 1, 0, Reader(epoch=1))
    assert (failed.value.code, "streams.sink_quota_bytes" in failed.value.hint) == ("quota", True)
    assert begin(outbox, "now", epoch=2).frame == 4, "one that is added again begins anew"
    outbox.close()


def test_the_first_sink_still_holds_up_its_operator(path: Path) -> None:
    outbox = Outbox(path, stream_settings(sink_quota_bytes=1, outbox_quota_bytes=FRAME))
    outbox.open_stream("op", "operator")
    outbox.subscribe("op", FIRST, 0)
    publish(outbox, "op", *"abc")
    assert outbox.pressure("op")
    assert texts(outbox, "op") == ["a", "b", "c"]
    outbox.close()
