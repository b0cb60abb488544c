"""What a node must remember over a restart, beside its streams: identity, catalogue, query records, hosted parts."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from sbon_node.errors import SbonError
from sbon_node.steps import Steps, unobserved

Kind = Literal["identity", "catalogue", "query", "operator", "sink", "source", "peer"]
T = TypeVar("T")

_FORMAT = 1


class Store:
    """Records by kind and key in one sqlite file; each change is durable against the death of the process when it returns,
    and with ``fsync`` against the loss of power.

    Raises :class:`SbonError` ``store-unreadable`` for a file that is damaged or of a later format, ``disk-full`` where a record
    cannot be written; nothing is then changed.
    """

    def __init__(self, path: Path, steps: Steps = unobserved, *, fsync: bool = False) -> None:
        self._path, self._steps = path, steps
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA synchronous={'FULL' if fsync else 'NORMAL'}")
            found = self._db.execute("PRAGMA user_version").fetchone()[0]
            if found > _FORMAT:
                raise SbonError("store-unreadable", f"written by a later sbon (format {found})", where=str(path))
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS record "
                "(kind TEXT, key TEXT, value BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID"
            )
            self._db.execute(f"PRAGMA user_version={_FORMAT}")
        except sqlite3.DatabaseError as error:
            hint = "restore it from a copy, or start with a new data directory"
            raise SbonError("store-unreadable", str(error), where=str(path), hint=hint) from error

    def put(self, kind: Kind, key: str, value: msgspec.Struct) -> None:
        self._change(
            "INSERT INTO record VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
            (kind, key, msgspec.msgpack.encode(value)),
        )

    def get(self, kind: Kind, key: str, type_: type[T]) -> T | None:
        row = self._db.execute("SELECT value FROM record WHERE kind = ? AND key = ?", (kind, key)).fetchone()
        return self._decode(row[0], kind, key, type_) if row else None

    def all(self, kind: Kind, type_: type[T]) -> dict[str, T]:
        """Every record of a kind by key, in the order of keys."""
        rows = self._db.execute("SELECT key, value FROM record WHERE kind = ? ORDER BY key", (kind,)).fetchall()
        return {key: self._decode(value, kind, key, type_) for key, value in rows}

    def delete(self, kind: Kind, key: str) -> None:
        self._change("DELETE FROM record WHERE kind = ? AND key = ?", (kind, key))

    def close(self) -> None:
        self._db.close()

    def _change(self, statement: str, values: tuple[object, ...]) -> None:
        try:
            self._db.execute(statement, values)
        except sqlite3.OperationalError as error:
            raise SbonError("disk-full", str(error), where=str(self._path), hint="free some space") from error
        self._steps("store")

    def _decode(self, value: bytes, kind: str, key: str, type_: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(value, type=type_)
        except msgspec.MsgspecError as error:
            raise SbonError("store-unreadable", f"{kind} {key!r}: {error}", where=str(self._path)) from error
