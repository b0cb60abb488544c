"""A disk that loses unsynced data with the power: bytes since their file's sync, names since their folder's.

:class:`Durable` keeps the durable state of one folder, and restores the folder as a restarted machine sees it.
:class:`ForgetfulDisk` is a folder with such a state, where power may be lost before any call of this process.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

Survives = Literal["synced", "names", "all"]
"""The surviving data: only synced data; also names of files whose content is lost; or all, as after a kill."""

CALLS = ("fsync", "replace", "rename", "link", "unlink", "mkdir", "rmdir")
"""Functions of ``os`` that change names or sync."""
DATABASES = (".db", ".db-wal", ".db-shm", ".db-journal")
"""Endings of files that sqlite syncs itself (:mod:`sbon_lab.simulation.faults.disk`). Links are ignored too."""
_link = os.link


class PowerLostError(BaseException):
    """The power is lost. A ``BaseException``, so that no error handler catches it."""


class Durable:
    """The content of the folder ``root`` that survives a power loss; at first, all of it.

    Every file that was synced, or has a name in a synced folder, has a link in the folder ``copies``, so that its inode number
    is not used again. Folders have their paths relative to ``root`` as keys.
    """

    def __init__(self, root: Path, copies: Path) -> None:
        self.root, self._copies = root, copies
        self._content: dict[int, bytes] = {}
        self._names: dict[str, dict[str, int]] = {}
        self._numbers: set[int] = set()
        self._trust_all()

    def covers(self, path: str) -> bool:
        return f"{path}/".startswith(f"{self.root}/")

    def sync(self, path: str) -> None:
        """Record a file's bytes, or a folder's names, as durable."""
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            entries = list(_entries(path))
            self._names[self._relative(path)] = {entry.name: entry.inode() for entry in entries}
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    self._hold(entry.inode(), entry.path)
        elif not path.endswith(DATABASES):
            self._hold(status.st_ino, path)
            with open(path, "rb") as file:
                self._content[status.st_ino] = file.read()

    def move(self, root: Path) -> None:
        """Continue with this copy of the folder; unsynced data of the original is unsynced in the copy."""
        numbers: dict[int, int] = {}
        for folder in _folders(str(self.root)):
            for entry in _entries(folder):
                numbers[entry.inode()] = (root / self._relative(entry.path)).stat().st_ino
        self._names = {
            folder: {name: numbers.get(inode, inode) for name, inode in names.items()} for folder, names in self._names.items()
        }
        self._content = {numbers.get(inode, inode): content for inode, content in self._content.items()}
        self.root = root
        for folder in _folders(str(root)):
            for entry in _entries(folder):
                if entry.is_file(follow_symlinks=False):
                    self._hold(entry.inode(), entry.path)

    def lose_power(self, survives: Survives) -> list[str]:
        """Restore the folder as a restarted machine sees it; return the changed paths."""
        before = self._present()
        after = before
        if survives != "all":
            after = {}
            self._collect("", "", survives, after)
            for entry in list(_entries(self.root)):
                shutil.rmtree(entry.path) if entry.is_dir() else os.unlink(entry.path)
            for path, content in after.items():
                (self.root / path).mkdir() if content is None else (self.root / path).write_bytes(content)
        self._trust_all()
        return sorted(path for path in {**before, **after} if before.get(path, 0) != after.get(path, 0))

    def release(self) -> None:
        """Forget all durable state."""
        self._names.clear()
        self._content.clear()
        self._numbers.clear()
        shutil.rmtree(self._copies, ignore_errors=True)

    def _collect(self, shown: str, folder: str, survives: Survives, content: dict[str, bytes | None]) -> None:
        """Collect the durable content of ``folder``, by its present name; ``shown`` is its name afterwards."""
        real_folder = self.root / folder
        present = {entry.name: entry for entry in _entries(real_folder)} if real_folder.is_dir() else {}
        inodes = {name: entry.inode() for name, entry in present.items()} if survives == "names" else self._names.get(folder, {})
        for name, inode in inodes.items():
            path, entry = os.path.join(folder, name), present.get(name)
            if path in self._names or (entry is not None and entry.inode() == inode and entry.is_dir()):
                content[os.path.join(shown, name)] = None
                self._collect(os.path.join(shown, name), path, survives, content)
            else:
                content[os.path.join(shown, name)] = self._content.get(inode, b"")

    def _present(self) -> dict[str, bytes | None]:
        return {
            self._relative(entry.path): None if entry.is_dir() else Path(entry.path).read_bytes()
            for folder in _folders(str(self.root))
            for entry in _entries(folder)
        }

    def _trust_all(self) -> None:
        self.release()
        self._copies.mkdir(parents=True)
        for folder in _folders(str(self.root)):
            self.sync(folder)
            for entry in _entries(folder):
                if not entry.is_dir():
                    self.sync(entry.path)

    def _relative(self, path: str) -> str:
        return path[len(str(self.root)) + 1 :]

    def _hold(self, inode: int, path: str) -> None:
        if inode not in self._numbers:
            self._numbers.add(inode)
            _link(path, f"{self._copies}/{inode}", follow_symlinks=False)


def synced_path(descriptor: int) -> str:
    """Return the path of a descriptor that is synced."""
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _entries(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_symlink() and not entry.name.endswith(DATABASES):
                yield entry


def _folders(root: str) -> Iterator[str]:
    yield root
    for entry in _entries(root):
        if entry.is_dir():
            yield from _folders(entry.path)


class ForgetfulDisk:
    """A folder ``root`` whose names are durable at first; ``calls`` counts changes of files or names, and syncs."""

    def __init__(self, root: Path) -> None:
        self.root, self.calls = root, 0
        self.lost_at: int | None = None
        self._durable = Durable(root, root.with_name(f"{root.name}.held"))

    @contextmanager
    def watched(self) -> Iterator[None]:
        with ExitStack() as stack:
            for name in CALLS:
                call = getattr(os, name)
                stack.callback(setattr, os, name, call)
                setattr(os, name, self._before(self._synced if name == "fsync" else call))
            yield

    def lose_power(self, survives: Survives) -> None:
        self._durable.lose_power(survives)
        self._durable.release()

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.lost_at is not None and self.calls >= self.lost_at:
                raise PowerLostError
            return call(*args, **kwargs)

        return counted

    def _synced(self, descriptor: int) -> None:
        """Replace a sync, which would wait for the real disk."""
        path = synced_path(descriptor)
        if self._durable.covers(path):
            self._durable.sync(path)
