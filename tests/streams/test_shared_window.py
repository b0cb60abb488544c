"""The window of a shared connection: both ends agree on every frame that is sent again as a number, within its bounds."""

from __future__ import annotations

import random

import pytest

from sbon_node.streams.links.shared import Window
from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Data


def frame(number: int, payload: bytes = b"") -> Data:
    return Data(number=number, epoch=1, rows=1, watermark_ms=0, ended=False, born_ms=0, payload=payload)


def test_the_reader_has_each_frame_that_the_host_takes_for_kept() -> None:
    assert sum(repeated_in(random.Random(seed)) for seed in range(30)) > 1000


def repeated_in(rng: random.Random) -> int:
    """Run both ends through the same messages; return how many frames were repeated."""
    max_bytes, max_frames = rng.choice([50, 500, 10_000]), rng.choice([3, 30, 1000])
    host, reader = Window(max_bytes, max_frames), Window(max_bytes, max_frames)
    sizes = {(lineage, number): rng.randrange(1, 100) for lineage in (1, 2) for number in range(1, 200)}
    places: dict[int, list[int]] = {}
    repeated = 0
    for step in range(2000):
        action = rng.random()
        if action < 0.02 and len(places) < 6:
            places[step] = [rng.choice([1, 1, 1, 2]), rng.randrange(0, 50)]
            for window in (host, reader):
                window.open_subscription(step, *places[step])
        elif action < 0.03 and places:
            gone = rng.choice(sorted(places))
            del places[gone]
            for window in (host, reader):
                window.close_subscription(gone)
        elif places:
            # The first subscription is the slowest: it is behind by more than the window, at times.
            one = rng.choice(sorted(places)[1:] * 8 + sorted(places)[:1])
            lineage, sent = places[one]
            if sent == 198:
                continue
            size, data = sizes[lineage, sent + 1], frame(sent + 1, b"%d %d" % (lineage, sent + 1))
            if host.find(one, sent + 1) is not None:
                repeated += 1
                assert reader.find(one, sent + 1) == data
            host.sent(one, frame(sent + 1), size)
            reader.sent(one, data, size)
            places[one][1] += 1
        assert (len(host), host.bytes) == (len(reader), reader.bytes)
        assert host.bytes <= max_bytes
        assert len(host) <= max_frames
    for one in places:
        host.close_subscription(one)
    assert (len(host), host.bytes) == (0, 0)
    return repeated


def test_a_frame_is_kept_only_for_those_that_have_yet_to_get_it() -> None:
    window = Window(10_000, 100)
    window.open_subscription(1, 7, 0, "a")
    window.sent(1, frame(1), 10)
    assert len(window) == 0
    window.open_subscription(2, 7, 1, "b")
    window.open_subscription(3, 7, 1, "c")
    window.open_subscription(4, 8, 0, "of another stream")
    window.sent(1, frame(2), 10)
    assert (len(window), window.subscribers(2, 2), window.subscribers(4, 2)) == (1, ("a",), ())
    window.sent(2, frame(2), 10)
    assert window.subscribers(3, 2) == ("a", "b")
    window.close_subscription(3)
    assert len(window) == 0


def test_a_number_out_of_turn_is_refused() -> None:
    window = Window(10_000, 100)
    window.open_subscription(1, 7, 3)
    for number in (3, 5):
        with pytest.raises(ProtocolError, match="gap"):
            window.sent(1, frame(number), 10)
    with pytest.raises(ProtocolError, match="unexpected"):
        window.open_subscription(1, 7, 3)
