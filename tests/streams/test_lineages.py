"""A stream that begins anew under its old name is another stream: its readers fail, and say what is lost."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from sbon_node.streams.outbox.outbox import Outbox
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import Progress, Subscribe, Subscribed
from tests.streams.outboxes import SETTINGS, draft


def begin_anew(host: Any, stream: str, *texts: str) -> None:
    """Lose the stream as with its disk, and write new frames, more than there were."""
    host.cut()
    host.outbox.drop_stream(stream)
    host.source(stream, *texts, finite=False)


async def test_frames_of_a_stream_that_began_anew_are_never_taken_for_the_earlier_ones(make_host: Any, until: Any) -> None:
    """The new stream has overtaken the reader before the link comes back."""
    host = make_host()
    host.source("s", *"abc", finite=False)
    link = host.link("s")
    await link.wait(2)
    link.acknowledge(2)
    host.away = True
    begin_anew(host, "s", *"uvwxyz")
    host.away = False
    with pytest.raises(SbonError) as caught:
        await link.wait(3)
    assert caught.value.code == "source-lost"
    for known in ("has begun anew, and now has frames 1 to 6", "up to frame 3", "done up to frame 2"):
        assert known in caught.value.message
    assert (link.state, link.inbox.received) == ("failed", 3)


async def test_a_restarted_reader_knows_the_lineage_that_it_has_read(make_host: Any) -> None:
    host = make_host()
    host.source("s", *"abc", finite=False)
    learnt: list[int] = []
    link = host.link("s", learn=learnt.append)
    await link.wait(2)
    await link.close()
    assert learnt == [host.outbox.lineage("s")]
    again = host.link("s", start_after=3, lineage=learnt[0])
    host.source("s", "d", finite=False)
    await again.wait(3)
    await again.close()
    begin_anew(host, "s", *"uvwxyz")
    late = host.link("s", start_after=4, lineage=learnt[0])
    with pytest.raises(SbonError, match="begun anew"):
        await late.wait(4)


async def test_the_lineage_is_stored_before_the_first_frame_is_taken(make_host: Any, until: Any) -> None:
    host = make_host()
    host.source("s", "a", finite=False)
    link: Any = None
    full = True

    def learn(lineage: int) -> None:
        assert link.inbox.received == 0
        if full:
            raise SbonError("disk-full", "no space for more records")

    link = host.link("s", learn=learn)
    await until(lambda: "no space" in link.reason)
    assert (link.inbox.received, link.lineage) == (0, 0)
    full = False
    await link.wait(0)


async def test_a_host_that_ignores_the_lineage_is_not_believed(make_host: Any) -> None:
    host = make_host()

    async def serve(channel: Any) -> None:
        await channel.receive()
        await channel.send(Subscribed(epoch=1, next=4, lineage=8))

    host.serve = serve
    link = host.link("s", start_after=3, lineage=7)
    with pytest.raises(SbonError, match="begun anew") as caught:
        await link.wait(3)
    assert caught.value.code == "source-lost"


async def test_an_acknowledgement_for_another_lineage_counts_for_nothing(make_host: Any) -> None:
    host = make_host()
    host.source("s", *"abc", finite=False)
    ours = await host.open_stream(None)
    await ours.send(Subscribe(stream="s", subscriber="x", next=1, epoch=0, credit_bytes=1000))
    answer = await ours.receive()
    assert answer == Subscribed(epoch=1, next=1, lineage=host.outbox.lineage("s"), reader_epoch=0)
    for _ in "abc":
        await ours.receive()
    await ours.send(Progress(received=3, acknowledged=3, credit_bytes=0, epoch=1, lineage=answer.lineage + 1))
    ended = await ours.receive()
    assert ended.code == "source-lost"
    assert host.outbox.link_counts("s").links["x"].acknowledged == 0


def test_a_lineage_lives_as_long_as_its_stream(path: Path) -> None:
    box = Outbox(path, SETTINGS)
    box.open_stream("s", "source")
    box.open_stream("t", "source")
    first = box.lineage("s")
    assert first != box.lineage("t")
    box.open_stream("s", "source")
    box.close()
    box = Outbox(path, SETTINGS)
    assert box.lineage("s") == first > 0
    box.drop_stream("s")
    box.open_stream("s", "source")
    assert box.lineage("s") != first
    box.close()


OLD = """
ALTER TABLE streams DROP COLUMN lineage;
CREATE TABLE old (
  stream INTEGER NOT NULL, subscriber TEXT NOT NULL, acknowledged INTEGER NOT NULL, failed TEXT NOT NULL,
  frames INTEGER NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL, dropped INTEGER NOT NULL,
  PRIMARY KEY (stream, subscriber)
) WITHOUT ROWID;
INSERT INTO old SELECT stream, subscriber, acknowledged, failed, frames, rows, bytes, dropped FROM subscriptions;
DROP TABLE subscriptions;
ALTER TABLE old RENAME TO subscriptions;
PRAGMA user_version = 2;
"""
"""Schema 2, as the program wrote it that knew no lineages."""


def test_an_outbox_without_lineages_gets_them_when_it_is_opened(path: Path) -> None:
    box = Outbox(path, SETTINGS)
    for name in ("s", "t"):
        box.open_stream(name, "source")
        box.write_source(name, [draft(text) for text in "abc"], b"at 3")
        box.subscribe(name, "reader", 1)
        box.acknowledge(name, "reader", 2)
    box.close()
    connection = sqlite3.connect(path)
    connection.executescript(OLD)
    connection.close()
    lineages = set()
    for _ in range(2):
        box = Outbox(path, SETTINGS)
        assert (box.latest("s"), box.position("s"), box.link_counts("s").links["reader"].acknowledged) == (3, b"at 3", 2)
        lineages |= {box.lineage("s"), box.lineage("t")}
        box.open_stream("u", "source")
        box.subscribe("u", "reader", 0)
        box.drop_stream("u")
        box.close()
    assert len(lineages) == 2
    assert 0 not in lineages


def test_an_outbox_without_shares_in_payloads_gets_them_and_keeps_them(path: Path) -> None:
    box = Outbox(path, SETTINGS)
    box.open_stream("s", "source")
    box.write_source("s", [draft("abcd")], b"at 1")
    for reader in ("one", "two"):
        box.subscribe("s", reader, 1)
    box.close()
    connection = sqlite3.connect(path)
    connection.executescript("ALTER TABLE subscriptions DROP COLUMN saved; PRAGMA user_version = 3;")
    connection.close()
    box = Outbox(path, SETTINGS)
    (frame,) = box.read("s", 0, 100)
    box.count_sent("s", "one", frame)
    box.count_sent("s", "two", frame, ("one",))
    box.close()
    box = Outbox(path, SETTINGS)
    assert [(one.bytes, one.saved_bytes) for one in box.link_counts("s").links.values()] == [(4, 2), (4, 2)]
    box.close()
