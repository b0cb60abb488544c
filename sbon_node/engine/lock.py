"""The lock on a folder of checkpoints, against writes by a second engine process or an orphaned JVM."""

import fcntl
import os
import time
from pathlib import Path

from sbon_protocol.errors import SbonError

RETRY_S = 0.05


def take_lock(folder: Path, wait_s: float) -> int:
    """Lock the folder; return the descriptor that holds the lock.

    A process that inherits the descriptor holds the lock as well; the lock is free when all of them have ended. Creates the
    folder if need be. Raises :class:`SbonError` ``checkpoint-in-use`` where another process holds it for ``wait_s`` seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                os.close(lock)
                raise SbonError(
                    "checkpoint-in-use",
                    "another engine process, or the JVM of one, holds these checkpoints",
                    where=str(folder),
                    hint="it ends when its node does; stop it, or give each node a data directory of its own",
                ) from error
            time.sleep(RETRY_S)
        else:
            return lock
