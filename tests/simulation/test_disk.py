"""A disk after a kill: what was committed is there, nothing else, and the dead cannot write any more."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sbon_node.simulation.disk import SimulatedDisk, watched_databases
from sbon_node.simulation.process import Process


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
    (host / "late").write_text("by the engine host, a process of its own")
    successor = _database(disk)
    successor.execute("INSERT INTO t VALUES ('new')")
    assert [value for (value,) in successor.execute("SELECT v FROM t")] == ["kept", "new"]
    assert (disk.folder / "log").read_text() == ""
    assert (disk.folder / "checkpoints" / "op" / "late").exists()


def test_a_full_disk_refuses_growth_until_it_is_freed(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    process = Process("n#1")
    with watched_databases({"n": disk}):
        database = process.context.run(_database, disk)
        disk.fill()
        with pytest.raises(sqlite3.OperationalError, match="full"):
            database.execute("INSERT INTO t VALUES (zeroblob(100000))")
        disk.free()
        database.execute("INSERT INTO t VALUES (zeroblob(100000))")
