"""A disk after a kill: it has the committed data alone, and the dead process cannot write."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sbon_lab.simulation.faults.disk import SimulatedDisk, watched_disks
from sbon_lab.simulation.process import KilledError, Process
from sbon_node.base.disk import replace


def _database(disk: SimulatedDisk) -> sqlite3.Connection:
    connection = sqlite3.connect(disk.folder / "x.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS t (v BLOB)")
    return connection


def test_a_successor_sees_what_was_committed_and_nothing_the_dead_do_later(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    dead = _database(disk)
    dead.execute("INSERT INTO t VALUES ('kept')")
    dead.execute("BEGIN IMMEDIATE")
    dead.execute("INSERT INTO t VALUES ('open transaction')")
    buffered = (disk.folder / "log").open("w")
    buffered.write("in a buffer")
    host = disk.folder / "checkpoints" / "op"
    host.mkdir()
    disk.crash()
    dead.execute("COMMIT")
    buffered.close()
    (host / "late").write_text("by the engine process, a process of its own")
    successor = _database(disk)
    successor.execute("INSERT INTO t VALUES ('new')")
    assert [value for (value,) in successor.execute("SELECT v FROM t")] == ["kept", "new"]
    assert (disk.folder / "log").read_text() == ""
    assert (disk.folder / "checkpoints" / "op" / "late").exists()


def test_the_loss_of_power_takes_what_was_not_synced(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    process = Process("n#1")

    def work() -> None:
        database = _database(disk)
        database.execute("PRAGMA synchronous=FULL")
        database.execute("INSERT INTO t VALUES ('synced')")
        database.execute("PRAGMA synchronous=NORMAL")
        database.execute("INSERT INTO t VALUES ('not synced')")
        (disk.folder / "checkpoints" / "not-synced").write_text("x")
        replace(disk.folder / "synced", b"kept")
        (disk.folder / "synced").write_text("changed later")

    with watched_disks({"n": disk}):
        process.context.run(work)
        process.kill()
        with pytest.raises(KilledError):
            process.context.run((disk.folder / "synced").unlink)
        disk.crash()
        lost = disk.lose_power("synced")
    assert lost == ["synced", "checkpoints/not-synced", "x.db"]
    assert (disk.folder / "synced").read_text() == "kept"
    assert not list((disk.folder / "checkpoints").iterdir())
    assert [value for (value,) in _database(disk).execute("SELECT v FROM t")] == ["synced"]


def test_a_transaction_is_synced_with_any_later_one_and_by_a_checkpoint(tmp_path: Path) -> None:
    for later in ("PRAGMA synchronous=FULL", "PRAGMA wal_checkpoint"):
        disk = SimulatedDisk(tmp_path / later)
        process = Process("n#1")

        def work() -> None:
            database = _database(disk)  # noqa: B023 - run at once
            database.execute("PRAGMA synchronous=NORMAL")
            database.execute("INSERT INTO t VALUES ('first')")
            database.execute(later)  # noqa: B023
            database.execute("INSERT INTO t VALUES ('second')")

        with watched_disks({"n": disk}):
            process.context.run(work)
            disk.crash()
            disk.lose_power("synced")
        kept = [value for (value,) in _database(disk).execute("SELECT v FROM t")]
        assert kept == (["first", "second"] if "FULL" in later else ["first"])


def test_a_full_disk_refuses_growth_until_it_is_freed(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    process = Process("n#1")
    with watched_disks({"n": disk}):
        database = process.context.run(_database, disk)
        disk.fill()
        with pytest.raises(sqlite3.OperationalError, match="full"):
            database.execute("INSERT INTO t VALUES (zeroblob(100000))")
        disk.free()
        database.execute("INSERT INTO t VALUES (zeroblob(100000))")


def test_a_wiped_disk_has_room_again(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    process = Process("n#1")
    with watched_disks({"n": disk}):
        old = process.context.run(_database, disk)
        old.execute("INSERT INTO t VALUES ('old')")
        disk.fill()
        disk.crash()
        disk.wipe()
        database = Process("n#2").context.run(_database, disk)
        database.execute("INSERT INTO t VALUES (zeroblob(100000))")
        assert [len(value) for (value,) in database.execute("SELECT v FROM t")] == [100_000]
