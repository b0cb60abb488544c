"""Folders that sources may read and sinks may write; any client may name a file."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from sbon_protocol.errors import SbonError

ANYWHERE = ("/",)


def check_within(path: str, roots: Sequence[str]) -> None:
    """Raise ``outside-roots`` for a path that, with links followed, lies in none of the folders.

    The error does not reveal whether the file exists. Raises ``bad-option`` for no path (a NUL, an unknown user).
    """
    try:
        resolved = Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise SbonError("bad-option", f"{path!r} is no path: {error}", where="options.path") from error
    if _root_of(resolved, roots) is None:
        raise _outside(path, roots)


def open_within(path: str | Path, roots: Sequence[str], flags: int) -> int:
    """Open a path below a permitted folder and return the descriptor.

    Each step opens relative to the permitted folder and follows no link created after the path was resolved. Raises
    ``outside-roots``, and ``OSError``.
    """
    target = Path(path).expanduser().resolve()
    root = _root_of(target, roots)
    if root is None:
        raise _outside(str(path), roots)
    steps = target.relative_to(root).parts
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for step in steps[:-1]:
            inner = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        if not steps:
            return os.dup(folder)
        return os.open(steps[-1], flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _outside(str(path), roots) from error
        raise
    finally:
        os.close(folder)


class OpenFolder:
    """A folder held by its descriptor: ``path`` leads to it even after renames."""

    _fd = -1

    def __init__(self, folder: Path, roots: Sequence[str]) -> None:
        """Open the folder; raise the errors of :func:`open_within`."""
        self._fd = open_within(folder, roots, os.O_RDONLY | os.O_DIRECTORY)
        self.path = Path(f"/proc/self/fd/{self._fd}")

    def close(self) -> None:
        """Close the descriptor; further calls do nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def _root_of(target: Path, roots: Sequence[str]) -> Path | None:
    resolved = (Path(root).expanduser().resolve() for root in roots)
    return next((root for root in resolved if target.is_relative_to(root)), None)


def _outside(path: str, roots: Sequence[str]) -> SbonError:
    message = f"{path} is in no folder that this node lets others use"
    hint = f"it lets them use {', '.join(roots) or 'none'}; --data-roots names others when the node is started"
    return SbonError("outside-roots", message, where="options.path", hint=hint)
