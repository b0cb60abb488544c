"""Failures to store or read: each has its own error, and changes nothing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from sbon_node.base.store import RecordStore
from sbon_protocol.errors import BrokenInvariantError, SbonError
from tests.full_disks import no_room


class Note(msgspec.Struct, frozen=True):
    text: str


SMALL, LARGE = Note("small"), Note("x" * 200_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with one record, closed."""
    path = tmp_path / "node.db"
    with closing(RecordStore(path)) as store:
        store.put("peer", "a", SMALL)
    return path


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(SbonError) as caught:
        call()
    assert caught.value.where
    assert caught.value.hint
    return caught.value.code


def test_stored_values_are_there_after_a_restart(path: Path) -> None:
    with closing(RecordStore(path)) as store:
        store.put("peer", "b", LARGE)
        store.delete("peer", "a")
    with closing(RecordStore(path)) as store:
        assert store.all("peer", Note) == {"b": LARGE}
        assert store.get("peer", "a", Note) is None


def test_a_full_disk(path: Path) -> None:
    with closing(RecordStore(path)) as store:
        # As full as sqlite can be made without filling the disk.
        store._db.execute(f"PRAGMA max_page_count={store._db.execute('PRAGMA page_count').fetchone()[0]}")
        assert refused(lambda: store.put("peer", "b", LARGE)) == "disk-full"
        assert store.all("peer", Note) == {"a": SMALL}


def test_a_limit_of_the_size_of_files_is_a_full_disk(path: Path) -> None:
    """SQLite calls it an I/O error."""
    with closing(RecordStore(path)) as store:
        with no_room():
            assert refused(lambda: store.put("peer", "b", LARGE)) == "disk-full"
        store.put("peer", "b", SMALL)
        assert store.all("peer", Note) == {"a": SMALL, "b": SMALL}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_database_that_another_has_locked_is_not_a_full_disk(path: Path) -> None:
    with closing(RecordStore(path)) as store:
        with locked(path):
            assert refused(lambda: store.put("peer", "b", SMALL)) == "store-busy"
            assert refused(lambda: store.delete("peer", "a")) == "store-busy"
        store.put("peer", "b", SMALL)
        assert store.all("peer", Note) == {"a": SMALL, "b": SMALL}


def test_a_database_that_another_has_locked_as_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    with locked(path):
        assert refused(lambda: RecordStore(path)) == "store-busy"


def test_a_file_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "node.db"
    path.write_bytes(b"something else, and long enough to have a header of its own" * 100)
    assert refused(lambda: RecordStore(path)) == "store-unreadable"


def test_a_file_that_is_damaged_while_it_is_open(path: Path) -> None:
    with closing(RecordStore(path)) as store:
        for number in range(100):
            store.put("peer", f"{number}", Note("x" * 1000))
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with open(path, "r+b") as file:
            file.seek(4096)
            file.write(os.urandom(path.stat().st_size - 4096))
    with closing(RecordStore(path)) as store:
        assert refused(lambda: store.all("peer", Note)) == "store-unreadable"
        assert refused(lambda: store.get("peer", "7", Note)) == "store-unreadable"
        assert refused(lambda: store.put("peer", "7", SMALL)) == "store-unreadable"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert refused(lambda: RecordStore(tmp_path / "nowhere" / "node.db")) == "disk-error"


def test_a_file_that_is_cut_while_it_is_read(path: Path) -> None:
    """The system cannot give what should be there: an input error, neither damage nor a full disk."""
    with closing(RecordStore(path)) as store:
        store.put("peer", "b", LARGE)
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with closing(RecordStore(path)) as store:
        os.truncate(path, 4096)
        assert refused(lambda: store.all("peer", Note)) in ("disk-error", "store-unreadable")


def test_a_later_format(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version=99")
    with pytest.raises(SbonError) as caught:
        RecordStore(path)
    assert caught.value.code == "store-unreadable"


def test_a_store_that_is_closed_is_our_own_mistake(path: Path) -> None:
    store = RecordStore(path)
    store.close()
    with pytest.raises(BrokenInvariantError):
        store.put("peer", "a", SMALL)
