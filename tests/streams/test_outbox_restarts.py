"""An outbox after a restart, and after a death at any step, over real files."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sbon_node.streams.outbox.outbox import Outbox
from tests.streams.outboxes import SETTINGS, code_of, draft, offset, publish, texts


def test_a_restart_finds_everything_as_it_was(outbox: Outbox, path: Path) -> None:
    outbox.write_batch("op", 0, offset(4), [draft("a"), draft("b", 7)])
    outbox.publish("op", 0)
    outbox.write_batch("op", 1, offset(5), [draft("c")])
    outbox.write_source("file", [draft("x", 1), draft("y", 2, ended=True)], b"line 2")
    outbox.subscribe("op", "down", 0)
    outbox.acknowledge("op", "down", 1)
    outbox.close()
    again = Outbox(path, SETTINGS)
    again.open_stream("op", "operator", epoch=2)
    assert (again.visible_batch("op"), again.newest("op"), again.epoch("op")) == (0, 1, 2)
    assert (again.earliest("op"), again.latest("op"), texts(again, "op", 1)) == (2, 2, ["b"])
    assert again.write_batch("op", 1, offset(5), [draft("d")]) == "replaced"
    assert again.publish("op", 1) == offset(5)
    assert texts(again, "op", 1) == ["b", "d"]
    assert (again.position("file"), again.ended("file"), texts(again, "file")) == (b"line 2", True, ["x", "y"])
    assert again.position("live") is None
    assert code_of(lambda: again.open_stream("op", "operator", epoch=1)) == "fenced"
    assert code_of(lambda: again.open_stream("op", "source")) == "stream-exists"
    again.close()


def test_nothing_pending_is_kept_of_batches_that_are_shown(outbox: Outbox, path: Path) -> None:
    for text in "abc":
        publish(outbox, "op", text)
    outbox.write_batch("op", 3, offset(3), [draft("d")])
    outbox.close()
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT batch FROM pending").fetchall() == [(3,)]


class KilledError(BaseException):
    pass


def test_a_death_within_a_transaction_leaves_nothing_of_it(path: Path) -> None:
    box = Outbox(path, SETTINGS)
    box.open_stream("op", "operator")
    box.write_batch("op", 0, offset(1), [draft("a")])

    def die_within() -> None:
        with box._store.transaction() as connection:
            connection.execute("DELETE FROM frames")
            connection.execute("DELETE FROM pending")
            raise KilledError

    with pytest.raises(KilledError):
        die_within()
    died = sqlite3.connect(path, isolation_level=None)
    died.execute("BEGIN IMMEDIATE")
    died.execute("DELETE FROM frames")
    died.close()
    again = Outbox(path, SETTINGS)
    assert again.publish("op", 0) == offset(1)
    assert texts(again, "op") == ["a"]
    again.close()
    box.close()


@pytest.mark.parametrize(
    "kill_at, visible, written",
    [("outbox-write", -1, 0), ("publish", 0, 0)],
)
def test_a_death_right_after_a_step_finds_the_step_done(path: Path, kill_at: str, visible: int, written: int) -> None:
    def failpoint(step: str) -> None:
        if step == kill_at:
            raise KilledError

    box = Outbox(path, SETTINGS, failpoint)
    box.open_stream("op", "operator")

    def run() -> None:
        box.write_batch("op", 0, offset(1), [draft("a")])
        box.publish("op", 0)

    with pytest.raises(KilledError):
        run()
    again = Outbox(path, SETTINGS)
    assert (again.visible_batch("op"), again.newest("op")) == (visible, written)
    again.close()
    box.close()


def test_a_source_stores_its_position_with_its_frames(path: Path) -> None:
    failpoint: list[str] = []

    def kill(step: str) -> None:
        failpoint.append(step)
        if len(failpoint) > 3:
            raise KilledError

    box = Outbox(path, SETTINGS, kill)
    box.open_stream("s", "source")
    box.write_source("s", [draft("a")], b"1")
    with pytest.raises(KilledError):
        box.write_source("s", [draft("b")], b"2")
    assert failpoint[:3] == ["outbox-write", "position-write", "publish"]
    again = Outbox(path, SETTINGS)
    assert (texts(again, "s"), again.position("s")) == (["a", "b"], b"2")
    again.write_source("s", [], b"3")
    assert (texts(again, "s"), again.position("s")) == (["a", "b"], b"3")
    again.close()
    box.close()
