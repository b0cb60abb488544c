"""Ends what a killed test run leaves behind: daemons, their engines and servers.

Each process of the run inherits a variable of the environment. A guardian process, started by the run outside of its session,
looks now and then whether the run lives. If it has died, the guardian kills all processes with that variable. A run that ends
by itself ends its guardian first.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

VARIABLE = "TEST_RUN_MARK"
POLL_S = 0.5
ROUNDS = 20
"""Rounds of killing, for processes that others start meanwhile."""


class Guardian:
    """The guardian of this process and of all that it starts from now on."""

    def __init__(self) -> None:
        mark = os.environ[VARIABLE] = secrets.token_hex(8)
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), mark]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        os.environ.pop(VARIABLE, None)


def marked(mark: str) -> list[int]:
    """Return the processes of this user whose environment has the mark."""
    wanted, found = f"{VARIABLE}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def guard(parent: int, mark: str) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    for _ in range(ROUNDS):
        for process in marked(mark):
            try:
                os.kill(process, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(POLL_S)


if __name__ == "__main__":
    guard(int(sys.argv[1]), sys.argv[2])
