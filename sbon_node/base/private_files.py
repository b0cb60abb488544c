"""Private files: only the node's user may read its rows, queries and data about other hosts.

The umask makes everything private that the node's process and its engine write. Results of sinks in a folder that others may read
are the exception: they get the permissions that the user's own umask gives.
"""

import os
import stat
from pathlib import Path

import structlog

log = structlog.get_logger()

UMASK = 0o077
_OTHERS = 0o077
_user_umask: int | None = None


def keep_private() -> None:
    """Restrict new files of this process and its children to their user."""
    global _user_umask
    before = os.umask(UMASK)
    _user_umask = before if _user_umask is None else _user_umask


def make_private(folder: Path) -> None:
    """Create the folder, or remove others' permissions from an existing folder and its content. Raises ``OSError``.

    The folder comes last, so that the next start repairs an interruption by a kill. Files of other users stay unchanged; links
    are not followed.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not stat.S_IMODE(folder.stat().st_mode) & _OTHERS:
        return
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            _close(Path(place) / name)
    if not _close(folder):
        log.warning("folder-open-to-others", folder=str(folder), hint="it is another user's; take their rights away")


def publish(path: Path) -> None:
    """Let others read a result in a shared folder, as far as the user's umask allows."""
    if _user_umask is not None and stat.S_IMODE(path.absolute().parent.stat().st_mode) & _OTHERS:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~_user_umask)


def _close(path: Path) -> bool:
    try:
        found = path.lstat()
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & _OTHERS:
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    return True
