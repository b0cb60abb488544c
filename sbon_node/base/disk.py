"""File access with named errors and atomic replacement: a kill leaves the old file or the new."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sbon_protocol.errors import SbonError

PROBE_BYTES = 65_536
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Raise the system's errors as :class:`SbonError` ``disk-full`` (may be retried later) or ``disk-error``."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            free = free_text(path.parent) if error.errno == errno.ENOSPC else ""
            raise SbonError("disk-full", f"no space for more{free}", where=str(path), hint="free space") from error
        reason = f"cannot be used: {error.strerror or str(error)}"
        raise SbonError("disk-error", reason, where=str(path), hint="check the disk and its rights") from error


def free_text(folder: Path) -> str:
    """Return ``: 1.2 MB free`` for the disk of a folder; empty if it is unknown."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return ""
    return f": {disk.f_bavail * disk.f_frsize / 1e6:,.1f} MB free"


def is_full(folder: Path) -> bool:
    """Say whether a new file in the folder cannot take some bytes: SQLite calls that an I/O error, as it does a broken disk."""
    path = folder / f"room.{os.getpid()}.new"
    try:
        try:
            with open(path, "wb", opener=no_link) as file:
                file.write(bytes(PROBE_BYTES))
        finally:
            path.unlink(missing_ok=True)
    except OSError as error:
        return error.errno in _FULL
    return False


def replace(path: Path, content: bytes) -> None:
    """Store ``content`` durably under ``path``, all of it or none."""
    staged = path.with_name(path.name + ".new")
    _write(staged, content)
    os.replace(staged, path)
    sync_path(path.parent)


def create(path: Path, content: bytes, mark: str) -> None:
    """Store ``content`` under ``path``, all of it or none; raise ``FileExistsError`` if the path exists.

    The name is durable after :func:`sync_path`. ``mark`` separates concurrent callers.
    """
    staged = path.with_name(f"{path.name}.{mark}.new")
    try:
        _write(staged, content)
        os.link(staged, path)
    finally:
        staged.unlink(missing_ok=True)


def no_link(path: str, flags: int) -> int:
    """Open a file; fail if the path is a symbolic link."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def sync_path(path: Path) -> None:
    """Make a file's content, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb", opener=no_link) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
