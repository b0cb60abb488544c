"""The part of a sqlite database in WAL mode that survives a power loss: transactions up to the last synced one.

With ``synchronous`` FULL or more, sqlite syncs a transaction and all before it. A checkpoint syncs the frames that it copies.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from pathlib import Path
from typing import Any

_FULL = 2
_WAL_HEADER, _FRAME_HEADER = 32, 24
_BACKFILLED_AT = 96
"""Offset in the WAL index of the number of frames that a checkpoint has copied."""


class Unsynced:
    """Number of transactions of one database stored since the last synced one."""

    def __init__(self, path: Path, count: int = 0) -> None:
        self.path, self.count = path, count

    def lose(self, index: Path) -> bool:
        """Remove them from the WAL, except those copied according to ``index``; return whether there were any."""
        wal = self.path.with_name(self.path.name + "-wal")
        if not self.count or not wal.exists():
            return False
        content = wal.read_bytes()
        frame_bytes = _FRAME_HEADER + int.from_bytes(content[8:12])
        ends = _ends(content, frame_bytes)
        kept_end = ends[-self.count - 1] if self.count < len(ends) else 0
        copied = struct.unpack("=I", index.read_bytes()[_BACKFILLED_AT : _BACKFILLED_AT + 4])[0] if index.exists() else 0
        os.truncate(wal, _WAL_HEADER + max(kept_end, copied) * frame_bytes)
        self.count = 0
        return True


class WatchedConnection(sqlite3.Connection):
    """A connection that counts its stored but unsynced transactions, once ``unsynced`` is set."""

    unsynced: Unsynced | None = None
    _changes = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        cursor = super().execute(sql, parameters)
        if not self.in_transaction and self.total_changes != self._changes:
            self._changes = self.total_changes
            if self.unsynced is not None and sql != "ROLLBACK":
                synced = super().execute("PRAGMA synchronous").fetchone()[0] >= _FULL
                self.unsynced.count = 0 if synced else self.unsynced.count + 1
        return cursor


def _ends(wal: bytes, frame_bytes: int) -> list[int]:
    """Return the number of WAL frames at each transaction's end; frames of an earlier round have another salt."""
    salt, ends = wal[16:24], []
    for number, at in enumerate(range(_WAL_HEADER, len(wal) - frame_bytes + 1, frame_bytes), start=1):
        if wal[at + 8 : at + 16] != salt:
            break
        if any(wal[at + 4 : at + 8]):
            ends.append(number)
    return ends
