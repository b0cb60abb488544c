"""A node's disk: a real temporary folder, as the last process to die left it.

When the node's process is killed, the folder is copied and its successor gets the copy. So the dead can write nothing more that
anyone reads, whatever its clean-up does; what its user-space buffers held is lost and its open transaction is not there, just as
after a real kill; and no lock of the dead stands in the way. Folders named ``shared`` outlive the daemon instead, for the engine
host, a process of its own, may still be writing there.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from sbon_node.errors import SbonError
from sbon_node.simulation.process import current_process

T = TypeVar("T")

_UNLIMITED_PAGES = 2**30


class SimulatedDisk:
    def __init__(self, root: Path, shared: tuple[str, ...] = ("checkpoints",)) -> None:
        self._root = root
        self._generation = 1
        self._connections: list[sqlite3.Connection] = []
        self.is_full = False
        self.folder.mkdir(parents=True)
        for name in shared:
            (root / "shared" / name).mkdir(parents=True)
            (self.folder / name).symlink_to(root / "shared" / name)

    @property
    def folder(self) -> Path:
        """The folder of the living incarnation."""
        return self._root / f"{self._generation}"

    async def blocking(self, work: Callable[[], T], /) -> T:
        """Work on files (:class:`sbon_node.blocking.Blocking`); a full disk takes none, not even what would make room."""
        if self.is_full:
            raise SbonError("disk-full", "no room for more", where=str(self.folder), hint="free space")
        return work()

    def crash(self) -> None:
        """The process is dead: its successor gets the folder as it is now."""
        before = self.folder
        self._generation += 1
        shutil.copytree(before, self.folder, symlinks=True, ignore=shutil.ignore_patterns("*-shm"))
        self._connections.clear()

    def fill(self) -> None:
        """No room is left: databases may not grow, and whoever asks ``is_full`` may not write."""
        self.is_full = True
        for connection in self._connections:
            self._limit(connection)

    def free(self) -> None:
        self.is_full = False
        for connection in self._connections:
            self._limit(connection)

    def opened(self, connection: sqlite3.Connection) -> None:
        self._connections.append(connection)
        if self.is_full:
            self._limit(connection)

    def _limit(self, connection: sqlite3.Connection) -> None:
        try:
            pages = connection.execute("PRAGMA page_count").fetchone()[0] if self.is_full else _UNLIMITED_PAGES
            connection.execute(f"PRAGMA max_page_count={max(1, pages)}")
        except sqlite3.ProgrammingError:  # closed meanwhile
            return


@contextmanager
def watched_databases(disks: Mapping[str, SimulatedDisk]) -> Iterator[None]:
    """While it lasts, a database opened by a process is known to the disk of that process's node (``node#incarnation``), so that
    the disk can be full for it."""
    connect: Any = sqlite3.connect

    def watched(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        process = current_process.get()
        disk = disks.get(process.name.split("#")[0]) if process is not None and process.alive else None
        if disk is not None:
            disk.opened(connection)
        return connection

    sqlite3.connect = cast(Any, watched)
    try:
        yield
    finally:
        sqlite3.connect = connect
