"""Files: what their failures are called, and how a small one is replaced so that a kill leaves the old or the new."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sbon_node.errors import SbonError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Raises :class:`SbonError` ``disk-full`` (may be repeated later) or ``disk-error`` for the system's own."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise SbonError("disk-full", "no room for more", where=str(path), hint="free space") from error
        reason = error.strerror or str(error)
        raise SbonError(
            "disk-error", f"cannot be used: {reason}", where=str(path), hint="check the disk and its rights"
        ) from error


def replace(path: Path, content: bytes) -> None:
    """Stores ``content`` durably under ``path``, all of it or none."""
    _stage(path, content)
    os.replace(_staged(path), path)
    sync_folder(path.parent)


def create(path: Path, content: bytes) -> None:
    """As :func:`replace`, for a file that may not be there yet: raises ``FileExistsError``."""
    _stage(path, content)
    try:
        os.link(_staged(path), path)
    finally:
        os.unlink(_staged(path))
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes names in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _staged(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def _stage(path: Path, content: bytes) -> None:
    with open(_staged(path), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
