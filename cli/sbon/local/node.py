"""The process of one node of a local cluster."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from sbon_protocol.errors import SbonError

from ..client import Client
from ..connection import Connection, connect
from ..model import Reason
from .processes import MARK

PORT, API_PORT = 7400, 7480
DAEMON = ("-m", "sbon_cli.main", "node")
"""Arguments of Python for the command that runs a node."""
SECRETS = "SBON_SECRET_"
"""Beginning of the environment variables for sources and sinks; nodes inherit these, but no other ``SBON_`` variables."""

LACKING = ("low-disk", "data-dir")
"""Codes of reasons against readiness that do not pass by themselves."""

_ERROR, _HINT = re.compile("^error: (.+)", re.MULTILINE | re.IGNORECASE), re.compile("^  hint: (.+)", re.MULTILINE)
_EXCEPTION = re.compile(r'^  File ".*\n(?:[ {].*\n|\n)*(.+)', re.MULTILINE)
"""The cause of a node's end in its log, to which JVMs write, too: an error with a hint below it, else a traceback's exception."""

_OTHERS = 0o077
log = logging.getLogger(__name__)


class LocalNode:
    """The process of one node. Its API is at the URL ``api``; :meth:`connect` is the usual way to use it."""

    def __init__(self, name: str, host: str, folder: Path, arguments: Sequence[str], mark: str, *, tied: bool) -> None:
        self.name, self.host, self.folder = name, host, folder
        self.api = f"http://{host}:{API_PORT}"
        self.client = Client(self.api)
        self.log = folder / "log"
        self.arguments, self._mark, self._tied = tuple(arguments), mark, tied
        self._process: subprocess.Popen[bytes] | None = None
        self._lost, self._log_begins = False, 0

    @property
    def address(self) -> str:
        """Its address for other nodes, ``HOST:PORT``."""
        return f"{self.host}:{PORT}"

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def connect(self) -> Connection:
        """Connect to its API; raise ``node-unreachable``."""
        return connect(self.api)

    def start(self, inherited: Sequence[int] = (), *, replace: bool = False) -> None:
        """Start the process without waiting; it inherits these file descriptors.

        With ``replace``, it takes its name over from the node whose data directory it had, and which is lost.
        """
        assert not self.running, f"{self.name} runs"
        make_private(self.folder)
        flags = [*(("--until-stdin-closes",) if self._tied else ()), *(("--replace",) if replace or self._lost else ())]
        command = [sys.executable, *DAEMON, "--data-dir", str(self.data_dir), *self.arguments, *flags]
        command += ["--set", f"log.file={self.log}"]  # limited by log.file_bytes; also takes the first lines
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SBON_") or k.startswith(SECRETS)}
        environment[MARK] = self._mark
        with open(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            self._log_begins = log.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if self._tied else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                pass_fds=tuple(inherited),
            )

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until the node is ready.

        Raises ``node-failed`` with the reason if it ends or lacks something that waiting does not bring, and with the end of
        its log after the timeout.
        """
        deadline = time.monotonic() + timeout_s
        while (lacks := self._unready()) is not None:
            if lacks:
                message = f"{self.name} is not ready: {lacks.message}"
                raise SbonError("node-failed", message, where=str(self.data_dir), hint=lacks.hint)
            if not self.running or time.monotonic() > deadline:
                raise self.failure("is not ready")
            time.sleep(0.05)

    def _unready(self) -> Reason | Literal[False] | None:
        """Return None if it is ready; the reason against it if it has started, and False while it starts."""
        try:
            readiness = self.client.readiness()
        except SbonError as error:
            if error.code == "node-unreachable":
                return False
            raise
        if readiness.ready:
            return None
        lasting = [reason for reason in readiness.reasons if reason.weight == "unready" and reason.code in LACKING]
        return lasting[0] if lasting else False

    def failure(self, reason: str) -> SbonError:
        """Return the error of a process that has ended, with the cause that it has printed, or else of the ``reason``."""
        code, lines = self._process.poll() if self._process is not None else None, self.log_tail()
        if code is None or code < 0:
            message = f"{self.name} {reason}" if code is None else f"{self.name} was killed by signal {-code}"
            return SbonError("node-failed", message, where=str(self.log), details=lines)
        printed = "\n".join(lines)
        causes = (_ERROR.findall(printed) or _EXCEPTION.findall(printed))[-1:]
        hints = _HINT.findall(printed.rpartition(causes[0])[2])[:1] if _ERROR.search(printed) else []
        details = tuple(line for line in lines if _ERROR.sub(r"\1", _HINT.sub(r"\1", line)) not in (*causes, *hints))
        message = ": ".join([f"{self.name} ended with exit code {code}", *causes])
        return SbonError("node-failed", message, where=str(self.log), hint="".join(hints), details=details)

    def log_tail(self, lines: int = 10) -> tuple[str, ...]:
        """Return the last lines since its start; if the log was cut since, those that are left."""
        written = self.log.read_bytes() if self.log.exists() else b""
        begins = self._log_begins if self._log_begins <= len(written) else 0
        return tuple(written[begins:].decode(errors="replace").splitlines()[-lines:])

    def kill(self, signum: signal.Signals = signal.SIGKILL, *, wait_s: float = 60.0) -> None:
        """Send the signal to the daemon alone and wait until it is gone; its engine process notices by itself."""
        self.signal(signum)
        self.wait(wait_s)

    def signal(self, signum: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(signum)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Return the exit code; raise ``subprocess.TimeoutExpired``."""
        assert self._process is not None
        code = self._process.wait(timeout_s)
        if self._process.stdin is not None:
            self._process.stdin.close()
        return code

    def lose_data(self) -> None:
        """Delete the data of a killed node, which takes its name over from itself when it starts again.

        Its last processes may still write there.
        """
        while self.data_dir.exists():
            shutil.rmtree(self.data_dir, ignore_errors=True)
        self._lost = True

    def restart(self, timeout_s: float = 60.0) -> None:
        """Restart it on its data directory, ending it first if it runs, and wait until its API answers."""
        if self.running:
            self.kill(signal.SIGTERM)
        self.start()
        self.wait_ready(timeout_s)


def write_private(file: Path, content: bytes) -> None:
    """Replace the file as a whole, readable only by its user; raise ``data-dir`` on failure."""
    new = file.with_name(f"{file.name}.new")
    try:
        new.write_bytes(content)
        new.chmod(0o600)
        new.replace(file)
    except OSError as error:
        raise SbonError("data-dir", f"cannot be written: {error.strerror}", where=str(file)) from error


def make_private(folder: Path) -> None:
    """Create the folder, or remove others' permissions from an existing folder. Raises ``OSError``."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if not mode & _OTHERS:
        return
    try:
        folder.chmod(mode & ~_OTHERS)
    except PermissionError:
        log.warning("%s is another user's, and open to others", folder)
