"""A node's disk: a real temporary folder, as its last dead process left it.

When the node's process is killed, the folder is copied and the successor gets the copy. So the clean-up of a dead process can
write nothing that anyone reads. As after a real kill, the content of user-space buffers is lost, the open transaction is not
there, and no lock of the dead process remains. Folders named ``shared`` outlive the daemon instead, because the engine process,
a separate process, may still write there. A power loss removes unsynced data from all folders.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from sbon_lab.simulation.faults.power_loss import CALLS, Durable, Survives, synced_path
from sbon_lab.simulation.process import current_process
from sbon_node.base.executors import Executor, inline
from sbon_protocol.errors import SbonError

T = TypeVar("T")

_UNLIMITED_PAGES = 2**30


class SimulatedDisk:
    """The disk calls ``on_call`` before each change of names and each sync by a living process of the node."""

    def __init__(self, root: Path, shared: tuple[str, ...] = ("checkpoints",)) -> None:
        self._root = root
        self._generation = 1
        self._connections: list[sqlite3.Connection] = []
        self._unsynced: dict[str, Unsynced] = {}
        self.is_full = False
        self.on_call: Callable[[], None] = lambda: None
        self.threads: Executor = inline
        self._shared = shared
        self._make()
        self._own = Durable(self.folder, root / "held" / "own")
        self._durable = [self._own, Durable(root / "shared", root / "held" / "shared")]

    def _make(self) -> None:
        self.folder.mkdir(parents=True)
        for name in self._shared:
            (self._root / "shared" / name).mkdir(parents=True)
            (self.folder / name).symlink_to(self._root / "shared" / name)

    @property
    def folder(self) -> Path:
        """Return the folder of the living incarnation."""
        return self._root / f"{self._generation}"

    def add(self, folder: Path) -> Path:
        """Create a folder of this disk outside the data directory."""
        folder.mkdir()
        self._durable.append(Durable(folder, self._root / "held" / f"{len(self._durable)}"))
        return folder

    async def executor(self, work: Callable[[], T], /) -> T:
        """Run work on files (:class:`sbon_node.base.executors.Executor`); a full disk rejects all of it, even deletions."""

        def on_disk() -> T:
            if self.is_full:
                raise SbonError("disk-full", "no space for more", where=str(self.folder), hint="free space")
            return work()

        return await self.threads(on_disk)

    def crash(self) -> None:
        """Record the process as dead: its successor gets the folder as it is now."""
        before = self.folder
        self._generation += 1
        with _without_process():
            shutil.copytree(before, self.folder, symlinks=True, ignore=shutil.ignore_patterns("*-shm"))
            self._own.move(self.folder)
        self._connections.clear()
        self._unsynced = {name: Unsynced(self.folder / name, unsynced.count) for name, unsynced in self._unsynced.items()}

    def lose_power(self, survives: Survives) -> list[str]:
        """Lose power, after :meth:`crash` of all processes. The successor gets the surviving data; return the changed paths."""
        with _without_process():
            lost = [path for folder in self._durable for path in folder.lose_power(survives)]
            if survives != "all":
                index = self._root / f"{self._generation - 1}"
                lost += [name for name, unsynced in self._unsynced.items() if unsynced.lose(index / f"{name}-shm")]
        return lost

    def wipe(self) -> None:
        """Lose the data directory, after :meth:`crash` and the death of all engine processes; the successor's disk is empty."""
        self.is_full = False
        with _without_process():
            for name in self._shared:
                shutil.rmtree(self._root / "shared" / name)
            shutil.rmtree(self.folder)
            self._make()
            self._own.release()
            self._durable[1].release()
            self._own = Durable(self.folder, self._root / "held" / f"own-{self._generation}")
            self._durable[:2] = [self._own, Durable(self._root / "shared", self._root / "held" / f"shared-{self._generation}")]
        self._unsynced.clear()

    def sync(self, descriptor: int) -> None:
        path = synced_path(descriptor)
        for folder in self._durable:
            if folder.covers(path):
                folder.sync(path)

    def fill(self) -> None:
        """Leave no room: databases may not grow, and callers of ``is_full`` may not write."""
        self.is_full = True
        for connection in self._connections:
            self._limit(connection)

    def free(self) -> None:
        self.is_full = False
        for connection in self._connections:
            self._limit(connection)

    def opened(self, connection: WatchedConnection, path: Path) -> None:
        self._connections.append(connection)
        if path.parent == self.folder:
            connection.unsynced = self._unsynced.setdefault(path.name, Unsynced(path))
        if self.is_full:
            self._limit(connection)

    def _limit(self, connection: sqlite3.Connection) -> None:
        try:
            pages = connection.execute("PRAGMA page_count").fetchone()[0] if self.is_full else _UNLIMITED_PAGES
            connection.execute(f"PRAGMA max_page_count={max(1, pages)}")
        except sqlite3.ProgrammingError:  # closed meanwhile
            return


@contextmanager
def watched_disks(disks: Mapping[str, SimulatedDisk]) -> Iterator[None]:
    """Record on each disk the operations of its node's processes (``node#incarnation``), while the context lasts.

    These are the databases they open, the names they change, and their syncs. Dead processes change nothing more.
    """

    def connect(path: Any, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        disk = _disk_of_caller(disks)
        if disk is None:
            return cast(sqlite3.Connection, opened(path, *args, **kwargs))
        connection: WatchedConnection = opened(path, *args, factory=WatchedConnection, **kwargs)
        disk.opened(connection, Path(path))
        return connection

    opened: Any = sqlite3.connect
    with ExitStack() as stack:
        stack.callback(setattr, sqlite3, "connect", opened)
        sqlite3.connect = cast(Any, connect)
        for name in CALLS:
            call = getattr(os, name)
            stack.callback(setattr, os, name, call)
            setattr(os, name, _watched(disks, name, call))
        yield


def _watched(disks: Mapping[str, SimulatedDisk], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        process = current_process.get()
        if process is None:
            return call(*args, **kwargs)
        process.check_alive()
        disk = _disk_of_caller(disks)
        if disk is not None:
            disk.on_call()
            process.check_alive()
        # A sync would wait for the real disk.
        return disk.sync(*args) if disk is not None and name == "fsync" else call(*args, **kwargs)

    return watched


def _disk_of_caller(disks: Mapping[str, SimulatedDisk]) -> SimulatedDisk | None:
    process = current_process.get()
    return disks.get(process.name.split("#")[0]) if process is not None and process.alive else None


@contextmanager
def _without_process() -> Iterator[None]:
    """Return the disk for operations by no process of its node."""
    token = current_process.set(None)
    try:
        yield
    finally:
        current_process.reset(token)


# -- The part of a sqlite database in WAL mode that survives a power loss: transactions up to the last synced one -----

# With ``synchronous`` FULL or more, sqlite syncs a transaction and all before it. A checkpoint syncs the frames that it copies.

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
