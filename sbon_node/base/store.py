"""State that a node keeps over a restart, beside its streams: identity, catalogue, query records, hosted parts."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from sbon_node.base.disk import is_full
from sbon_node.base.failpoints import Failpoints, unobserved
from sbon_protocol.errors import BrokenInvariantError, SbonError

Kind = (
    Literal["identity", "peer", "catalogue", "register", "forgotten", "replaced", "document", "proposer", "query", "drain"]
    | Literal["source", "source-register", "source-backup", "operator", "lineages", "measures", "departure", "arrival", "backup"]
    | Literal["sink", "sink-end"]
)
T = TypeVar("T")

_FORMAT = 1
BUSY_S = 1.0
"""Longest wait of the event loop for another process that has the file locked, which none should."""

_NAMES: dict[int, tuple[str, str, str]] = {
    sqlite3.SQLITE_FULL: ("disk-full", "no space for more records", "free some space"),
    sqlite3.SQLITE_BUSY: (
        "store-busy",
        "another process has it locked",
        "is a second node, or a tool, using this data directory?",
    ),
    sqlite3.SQLITE_CORRUPT: ("store-unreadable", "it is damaged", "restore it from a copy, or start with a new data directory"),
    sqlite3.SQLITE_IOERR: ("disk-error", "it cannot be used", "check the disk and its rights"),
}
_NAMES[sqlite3.SQLITE_IOERR_SHMSIZE] = _NAMES[sqlite3.SQLITE_FULL]
_NAMES[sqlite3.SQLITE_LOCKED] = _NAMES[sqlite3.SQLITE_BUSY]
_NAMES[sqlite3.SQLITE_NOTADB] = _NAMES[sqlite3.SQLITE_CORRUPT]
for _code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
    _NAMES[_code] = _NAMES[sqlite3.SQLITE_IOERR]


class RecordStore:
    """Records by kind and key in a single sqlite file.

    Each change is durable against the death of the process when the call returns, and with ``fsync`` against the loss of power.

    Any call may raise :class:`SbonError`, and has then changed nothing: ``disk-full``, ``store-busy`` if another process has the
    file locked, ``disk-error``; ``store-unreadable`` for a file that is damaged or of a later format. Errors of sqlite that are
    our own mistake become :class:`BrokenInvariantError`.
    """

    def __init__(self, path: Path, failpoint: Failpoints = unobserved, *, fsync: bool = False) -> None:
        self._path, self._failpoint, self._fsync = path, failpoint, fsync
        self._refused: SbonError | None = None
        with self._named_errors():
            self._db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)
            try:
                self._prepare(fsync)
            except BaseException:
                self._db.close()
                raise

    def _prepare(self, fsync: bool) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA secure_delete=ON")
        self._db.execute(f"PRAGMA synchronous={'FULL' if fsync else 'NORMAL'}")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > _FORMAT:
            raise SbonError("store-unreadable", f"written by a later sbon (format {version})", where=str(self._path))
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS record (kind TEXT, key TEXT, value BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID"
        )
        self._db.execute(f"PRAGMA user_version={_FORMAT}")

    def put(self, kind: Kind, key: str, value: msgspec.Struct, *, sync: bool = False) -> None:
        """Store a record. With ``sync`` it, and every change before it, is on disk when the call returns, whatever ``fsync``."""
        change = "INSERT INTO record VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
        values = (kind, key, msgspec.msgpack.encode(value))
        if not sync or self._fsync:
            self._change(change, values)
            return
        self._synchronise("FULL")
        try:
            self._change(change, values)
        finally:
            self._synchronise("NORMAL")

    def _synchronise(self, level: str) -> None:
        with self._named_errors():
            self._db.execute(f"PRAGMA synchronous={level}")

    def get(self, kind: Kind, key: str, type_: type[T]) -> T | None:
        with self._named_errors():
            row = self._db.execute("SELECT value FROM record WHERE kind = ? AND key = ?", (kind, key)).fetchone()
        return self._decode(row[0], kind, key, type_) if row else None

    def all(self, kind: Kind, type_: type[T]) -> dict[str, T]:
        """Return every record of a kind by key, in the order of keys."""
        with self._named_errors():
            rows = self._db.execute("SELECT key, value FROM record WHERE kind = ? ORDER BY key", (kind,)).fetchall()
        return {key: self._decode(value, kind, key, type_) for key, value in rows}

    def sizes(self, kind: Kind) -> dict[str, int]:
        """Return the bytes of every record of a kind by key, in the order of keys."""
        with self._named_errors():
            rows = self._db.execute("SELECT key, LENGTH(value) FROM record WHERE kind = ? ORDER BY key", (kind,)).fetchall()
        return dict(rows)

    def delete(self, kind: Kind, key: str) -> None:
        self._change("DELETE FROM record WHERE kind = ? AND key = ?", (kind, key))

    def forget_deleted(self) -> None:
        """Erase replaced and deleted records from the files."""
        with self._named_errors():
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def trouble(self) -> SbonError | None:
        """Return why nothing can be stored; None unless the newest change failed and a small change fails now too."""
        if self._refused is not None:
            try:
                with self._named_errors():
                    self._db.execute(f"PRAGMA user_version={_FORMAT}")
                self._refused = None
            except SbonError as error:
                self._refused = error
        return self._refused

    def close(self) -> None:
        self._db.close()

    def _change(self, statement: str, values: tuple[object, ...]) -> None:
        try:
            with self._named_errors():
                self._db.execute(statement, values)
        except SbonError as error:
            self._refused = error
            raise
        self._refused = None
        self._failpoint("store")

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # The low byte is the code, the others give details. Errors that Python's module raises itself have none.
            sqlite_code = getattr(error, "sqlite_errorcode", 0)
            if sqlite_code == sqlite3.SQLITE_IOERR_WRITE and is_full(self._path.parent):
                sqlite_code = sqlite3.SQLITE_FULL
            name = _NAMES.get(sqlite_code) or _NAMES.get(sqlite_code & 0xFF)
            if name is None:
                raise BrokenInvariantError(f"the store was misused: {error}") from error
            code, what, hint = name
            raise SbonError(code, f"{what}: {error}", where=str(self._path), hint=hint) from error

    def _decode(self, value: bytes, kind: str, key: str, type_: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(value, type=type_)
        except msgspec.MsgspecError as error:
            raise SbonError("store-unreadable", f"{kind} {key!r}: {error}", where=str(self._path)) from error
