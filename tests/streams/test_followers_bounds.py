"""Followers of operators that move hold a live source back, within bounds: a stranger may subscribe as one, too."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sbon_node.streams.outbox.outbox import Outbox
from sbon_protocol.api.subscribers import attempt_of, component_of, followed_by, follower_of, input_of, is_follower
from sbon_protocol.errors import SbonError
from tests.streams.outboxes import code_of, draft, stream_settings

FRAME_BYTES = 65
"""Weight of a frame of one byte."""
QUOTA, MORE = 4, 10
"""Frames within the quota of a subscriber, and of a follower."""
SETTINGS = stream_settings(
    live_retention_bytes=0,
    subscription_quota_bytes=QUOTA * FRAME_BYTES,
    follower_quota_bytes=MORE * FRAME_BYTES,
    max_followers=3,
)


@pytest.fixture
def box(tmp_path: Path) -> Outbox:
    outbox = Outbox(tmp_path / "outbox.db", SETTINGS)
    outbox.open_stream("live", "source")
    return outbox


def write(outbox: Outbox, frames: int) -> None:
    for _ in range(frames):
        outbox.write_source("live", [draft("x")], b"")


def kept(outbox: Outbox) -> int:
    return outbox.latest("live") - outbox.earliest("live") + 1


def links(outbox: Outbox) -> dict[str, str]:
    return {name: one.failed for name, one in outbox.link_counts("live").links.items()}


def test_a_follower_that_reads_nothing_is_dropped_with_a_reason(box: Outbox) -> None:
    gone: list[tuple[str, SbonError]] = []
    box.watch(lambda stream, subscriber, error: gone.append((subscriber, error)))
    for name in ("op#0", "op#0~1"):
        box.subscribe("live", name, 0)
    for number in range(1, MORE + 2):
        assert not gone
        write(box, 1)
        box.acknowledge("live", "op#0", number)
    ((subscriber, error),) = gone
    assert (subscriber, error.code) == ("op#0~1", "follower-behind")
    assert links(box) == {"op#0": ""}
    assert kept(box) <= 1


def test_an_operator_that_is_followed_has_its_quota_after_the_follower_is_dropped(box: Outbox) -> None:
    for name in ("op#0", "op#0~1"):
        box.subscribe("live", name, 0)
    write(box, MORE)
    assert links(box) == {"op#0": "", "op#0~1": ""}
    write(box, QUOTA)
    assert links(box) == {"op#0": ""}
    write(box, 1)
    assert links(box) == {"op#0": "quota"}


def test_followers_that_come_again_and_again_free_nobody_of_the_quota(box: Outbox) -> None:
    box.subscribe("live", "op#0", 0)
    for attempt in range(10):
        box.subscribe("live", f"op#0~{attempt}", 0)
        write(box, MORE // 2)
    assert links(box).get("op#0") == "quota"
    assert kept(box) <= MORE + QUOTA


def test_a_stream_has_few_followers(box: Outbox) -> None:
    for attempt in range(3):
        box.subscribe("live", f"op#0~{attempt}", 0)
    assert code_of(lambda: box.subscribe("live", "op#0~3", 0)) == "too-many-subscribers"
    box.subscribe("live", "op#0~2", 0)
    box.subscribe("live", "op#0", 0)
    box.unsubscribe("live", "op#0~1")
    box.subscribe("live", "op#0~3", 0)


def test_followers_cost_a_write_no_more_than_other_subscribers(tmp_path: Path) -> None:
    """With a comparison of each name with each other, followers would cost some hundred times as much."""

    def seconds(suffix: str) -> float:
        outbox = Outbox(tmp_path / f"{suffix or 'plain'}.db", stream_settings(max_subscribers=4000, max_followers=4000))
        outbox.open_stream("live", "source")
        for number in range(2000):
            outbox.subscribe("live", f"op{number}#0", 0)
            outbox.subscribe("live", f"op{number}#0{suffix}" if suffix else f"op{number}#1", 0)
        (stream,) = outbox._streams.values()
        begin = time.process_time()
        for _ in range(5):
            stream.followers_behind(outbox._settings)
            stream.overdrawn(outbox._settings)
        return time.process_time() - begin

    assert seconds("~1") < 5 * seconds("") + 0.1


def test_names_of_followers_are_read_as_they_are_written() -> None:
    for subscriber, component in ((input_of("q-1.o1", 2), "q-1.o1"), ("q-1.sink", "q-1.sink")):
        follower = follower_of(subscriber, "b-c")
        assert (is_follower(subscriber), is_follower(follower)) == (False, True)
        assert (followed_by(follower), attempt_of(follower), component_of(follower)) == (subscriber, "b-c", component)
        assert (followed_by(subscriber), attempt_of(subscriber), component_of(subscriber)) == (subscriber, "", component)
