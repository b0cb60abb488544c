"""Retention of an outbox's frames by subscriber (docs/design.md, section 8), over real files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.errors import BrokenInvariantError, SbonError
from tests.streams.outboxes import code_of, draft, offset, publish, stream_settings, texts


def test_frames_go_when_every_subscriber_has_acknowledged_them(outbox: Outbox) -> None:
    publish(outbox, "op", *"abcde")
    assert outbox.subscribe("op", "one", 0) == 1
    assert outbox.subscribe("op", "two", 1) == 1
    outbox.acknowledge("op", "one", 4)
    assert outbox.earliest("op") == 1
    outbox.acknowledge("op", "two", 2)
    assert (outbox.earliest("op"), texts(outbox, "op", 2)) == (3, ["c", "d", "e"])
    outbox.acknowledge("op", "two", 1)
    assert outbox.link_counts("op").links["two"].acknowledged == 2
    outbox.unsubscribe("op", "two")
    assert outbox.earliest("op") == 5
    assert code_of(lambda: outbox.read("op", 3, 100)) == "not-retained"
    assert code_of(lambda: outbox.subscribe("op", "three", 0)) == "not-retained"
    assert outbox.subscribe("op", "three", 6) == 6
    assert code_of(lambda: outbox.subscribe("op", "four", 7)) == "stream-behind"
    with pytest.raises(BrokenInvariantError):
        outbox.acknowledge("op", "one", 6)


def test_a_finite_source_keeps_all_until_it_is_dropped(outbox: Outbox) -> None:
    outbox.write_source("file", [draft(text) for text in "abc"], b"")
    outbox.subscribe("file", "one", 0)
    outbox.acknowledge("file", "one", 3)
    assert outbox.subscribe("file", "late", 0) == 1
    assert texts(outbox, "file") == ["a", "b", "c"]
    outbox.drop_stream("file")
    assert code_of(lambda: outbox.read("file", 0, 1)) == "stream-unknown"
    outbox.open_stream("file", "source", finite=True)
    assert texts(outbox, "file") == []


@pytest.mark.parametrize(
    "settings, expected",
    [
        (stream_settings(live_retention_bytes=3 * 65), ["h", "i", "j"]),
        (stream_settings(live_retention_bytes=2**20, live_retention_s=2.0), ["h", "i", "j"]),
        (stream_settings(live_retention_bytes=2**20, live_retention_s=50.0), list("abcdefghij")),
        (stream_settings(live_retention_bytes=0), ["j"]),
    ],
)
@pytest.mark.parametrize("subscribed", [False, True])
def test_live_sources_are_kept_by_bytes_and_age(
    path: Path, settings: StreamSettings, expected: list[str], subscribed: bool
) -> None:
    settings = msgspec.structs.replace(settings, subscription_quota_bytes=2**20)
    box = Outbox(path, settings)
    box.open_stream("live", "source")
    if subscribed:
        box.subscribe("live", "one", 0)
    for second, text in enumerate("abcdefghij"):
        box.write_source("live", [draft(text, born_ms=1000 * second)], b"")
    if subscribed:
        assert texts(box, "live") == list("abcdefghij")
        box.acknowledge("live", "one", 10)
    first = box.earliest("live")
    assert texts(box, "live", first - 1) == expected
    assert box.subscribe("live", "late", 0) == first
    box.close()


def test_a_subscription_over_quota_fails_alone(path: Path) -> None:
    settings = stream_settings(live_retention_bytes=100, subscription_quota_bytes=5 * 65, outbox_quota_bytes=65)
    box = Outbox(path, settings)
    box.open_stream("live", "source")
    for name in ("slow", "fast"):
        box.subscribe("live", name, 0)
    for number, text in enumerate("abcdefgh", start=1):
        box.write_source("live", [draft(text)], b"")
        box.acknowledge("live", "fast", number)
        assert not box.pressure("live")
    count = box.link_counts("live")
    assert {name: (one.failed, one.dropped) for name, one in count.links.items()} == {"slow": ("quota", 6), "fast": ("", 0)}
    assert count.dropped == 6
    assert code_of(lambda: box.subscribe("live", "slow", 1)) == "quota"
    assert box.earliest("live") > 5
    box.close()
    again = Outbox(path, settings)
    with pytest.raises(SbonError, match=r"slow fell behind .* 6 rows were dropped"):
        again.subscribe("live", "slow", 1)
    again.unsubscribe("live", "slow")
    assert again.link_counts("live").dropped == 6
    assert again.subscribe("live", "slow", 0) == again.earliest("live")
    again.close()


def test_an_operator_keeps_its_first_frames_for_a_later_query_until_they_are_many(path: Path) -> None:
    """A frame of one byte counts as 65: three of them are within a history of 200 bytes, and four are not."""
    outbox = Outbox(path, stream_settings(operator_history_bytes=200))
    outbox.open_stream("op", "operator")
    publish(outbox, "op", "a", "b", "c")
    outbox.subscribe("op", "reader", 0)
    outbox.acknowledge("op", "reader", 3)
    assert outbox.earliest("op") == 1
    assert outbox.subscribe("op", "later", 0) == 1
    assert texts(outbox, "op") == ["a", "b", "c"]
    outbox.acknowledge("op", "later", 3)
    publish(outbox, "op", "d")
    outbox.acknowledge("op", "reader", 4)
    outbox.acknowledge("op", "later", 4)
    assert outbox.earliest("op") == 5


def test_the_oldest_waiting_rows_of_each_subscriber_are_known(outbox: Outbox) -> None:
    """Frames without rows do not count, nor those that no subscriber may see yet."""
    drafts = [draft("a", born_ms=1_000), draft("", watermark_ms=5, born_ms=2_000), draft("b", born_ms=3_000)]
    for number, one in enumerate(drafts):
        outbox.write_batch("op", number, offset(number + 1), [one])
        outbox.publish("op", number)
    outbox.write_batch("op", 3, offset(4), [draft("c", born_ms=500)])
    for subscriber in ("q.sink", "q.sink2"):
        outbox.subscribe("op", subscriber, 0)
    assert outbox.oldest_waiting_ms() == {"q.sink": 1_000, "q.sink2": 1_000}
    outbox.acknowledge("op", "q.sink", 1)
    assert outbox.oldest_waiting_ms() == {"q.sink": 3_000, "q.sink2": 1_000}
    outbox.acknowledge("op", "q.sink", 3)
    assert outbox.oldest_waiting_ms() == {"q.sink2": 1_000}
