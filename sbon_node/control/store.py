"""What a node must remember over a restart, beside its streams: identity, catalogue, query records, hosted parts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from sbon_node.errors import BrokenInvariantError, SbonError
from sbon_node.steps import Steps, unobserved

Kind = Literal["identity", "catalogue", "query", "operator", "sink", "source", "peer", "drain"]
T = TypeVar("T")

_FORMAT = 1


BUSY_S = 1.0
"""How long another process that has the file locked is waited for, on the event loop: nobody else should."""

_NAMES: dict[int, tuple[str, str, str]] = {
    sqlite3.SQLITE_FULL: ("disk-full", "no room for more records", "free some space"),
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


class Store:
    """Records by kind and key in one sqlite file; each change is durable against the death of the process when it returns,
    and with ``fsync`` against the loss of power.

    Any call may raise :class:`SbonError`, and has changed nothing then: ``disk-full``, ``store-busy`` where another process has
    the file locked, ``disk-error``; ``store-unreadable`` for a file that is damaged or of a later format. Nothing of sqlite's own
    comes out but what is our own mistake, as :class:`BrokenInvariantError`.
    """

    def __init__(self, path: Path, steps: Steps = unobserved, *, fsync: bool = False) -> None:
        self._path, self._steps = path, steps
        with self._named_errors():
            self._db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)
            try:
                self._prepare(fsync)
            except BaseException:
                self._db.close()
                raise

    def _prepare(self, fsync: bool) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={'FULL' if fsync else 'NORMAL'}")
        found = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found > _FORMAT:
            raise SbonError("store-unreadable", f"written by a later sbon (format {found})", where=str(self._path))
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS record (kind TEXT, key TEXT, value BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID"
        )
        self._db.execute(f"PRAGMA user_version={_FORMAT}")

    def put(self, kind: Kind, key: str, value: msgspec.Struct) -> None:
        self._change(
            "INSERT INTO record VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
            (kind, key, msgspec.msgpack.encode(value)),
        )

    def get(self, kind: Kind, key: str, type_: type[T]) -> T | None:
        with self._named_errors():
            row = self._db.execute("SELECT value FROM record WHERE kind = ? AND key = ?", (kind, key)).fetchone()
        return self._decode(row[0], kind, key, type_) if row else None

    def all(self, kind: Kind, type_: type[T]) -> dict[str, T]:
        """Every record of a kind by key, in the order of keys."""
        with self._named_errors():
            rows = self._db.execute("SELECT key, value FROM record WHERE kind = ? ORDER BY key", (kind,)).fetchall()
        return {key: self._decode(value, kind, key, type_) for key, value in rows}

    def delete(self, kind: Kind, key: str) -> None:
        self._change("DELETE FROM record WHERE kind = ? AND key = ?", (kind, key))

    def close(self) -> None:
        self._db.close()

    def _change(self, statement: str, values: tuple[object, ...]) -> None:
        with self._named_errors():
            self._db.execute(statement, values)
        self._steps("store")

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # The low byte is the code, the others say more of it. What Python's module raises of its own has none.
            found = getattr(error, "sqlite_errorcode", 0)
            name = _NAMES.get(found) or _NAMES.get(found & 0xFF)
            if name is None:
                raise BrokenInvariantError(f"the store was misused: {error}") from error
            code, what, hint = name
            raise SbonError(code, f"{what}: {error}", where=str(self._path), hint=hint) from error

    def _decode(self, value: bytes, kind: str, key: str, type_: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(value, type=type_)
        except msgspec.MsgspecError as error:
            raise SbonError("store-unreadable", f"{kind} {key!r}: {error}", where=str(self._path)) from error
