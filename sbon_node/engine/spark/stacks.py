"""Stacks of an engine process that does not answer, for its log: without them, nobody could say of what it hung."""

from __future__ import annotations

import faulthandler
import os
import signal
from contextlib import suppress

ASKED = signal.SIGUSR1
WRITING_S = 1.0
"""Ample time for both processes to write."""


def write_when_asked() -> None:
    """Let the engine process write the stacks of its threads to its log whenever it is asked."""
    faulthandler.register(ASKED, all_threads=True)


def ask(engine_pid: int, jvm_pid: int) -> None:
    """Ask the engine process and its JVM for the stacks of their threads."""
    for pid, asked in ((engine_pid, ASKED), (jvm_pid, signal.SIGQUIT)):
        with suppress(ProcessLookupError):
            os.kill(pid, asked)
