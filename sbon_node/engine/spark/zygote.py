"""Fork server for Spark's Python processes: forks start in milliseconds with imports done, and share its pages.

Spark starts a process for every reader of a stream, and some more, as ``python -m MODULE``, and each would spend half a second
of a core and a hundred megabytes on imports. Spark starts a launcher instead (``launch.sh``, ``launch.py``). It sends its
arguments, environment and standard streams to the zygote, which forks, and returns the fork's exit. A zygote ends when its
standard input closes.

Forking needs a single thread, so the imported libraries must not start threads of their own (:data:`QUIET`).
"""

import gc
import importlib
import marshal
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

SOCKET_VARIABLE, PYTHON_VARIABLE = "SBON_ZYGOTE", "SBON_PYTHON"
"""Variables with the zygote's socket, and with the Python of its forks."""
LAUNCHER = Path(__file__).with_name("launch.sh")
"""The program that Spark starts instead of that Python."""
QUIET = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
PRELOADED = (
    "encodings.idna",
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "sbon_node.engine.spark.operators.source",
)
TASK_BYTES = 2**20
"""An environment larger than this is refused."""
TAKEN = b"+"
"""The answer to an accepted task."""
PATIENCE_S = 5.0
"""Time to receive the rest of a task."""


class Task(NamedTuple):
    """A launcher's task: ``-m MODULE ARGUMENT …``."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str


def start(path: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a zygote that listens at ``path``; it ends when its standard input is closed."""
    command = [sys.executable, "-m", __name__, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=sys.stderr, stderr=sys.stderr, env={**environment, **QUIET})


class Zygote:
    """The fork server. It listens from the start, so that early launchers wait for the imports."""

    def __init__(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        Path(path).chmod(0o600)  # Any client runs code as this user.
        self._listener.listen(128)
        self._selector = selectors.DefaultSelector()
        self._ended, ended = socket.socketpair()
        for end in (self._ended, ended):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(ended.fileno(), warn_on_full_buffer=False)
        self._own = (self._listener, self._ended, ended)
        self._launchers: dict[int, socket.socket] = {}
        """Launchers by the id of the process forked for them."""

    def run(self) -> None:
        """Serve until standard input ends."""
        for module in PRELOADED:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()
        for source in (0, self._listener, self._ended):
            self._selector.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._ended:
                    self._ended.recv(4096)
                    self._reap()
                elif key.data in self._launchers:
                    os.kill(key.data, signal.SIGTERM)  # Its launcher was killed.
                    self._forget(key.data)

    def _accept(self) -> None:
        """Serve a launcher; one that is not served becomes the process itself."""
        streams: list[int] = []
        launcher = None
        try:
            launcher, _ = self._listener.accept()
            task = _received(launcher, streams)
            child = os.fork()
        except (OSError, EOFError, ValueError, TypeError) as error:
            print(f"a launcher is not served: {error}", file=sys.stderr, flush=True)
            if launcher is not None:
                launcher.close()
        else:
            if not child:
                self._become(task, streams, launcher)
            self._launchers[child] = launcher
            self._selector.register(launcher, selectors.EVENT_READ, child)
            with suppress(OSError):  # A killed launcher; the selector reports it.
                launcher.sendall(TAKEN)
        finally:
            for stream in streams:
                os.close(stream)

    def _become(self, task: Task, streams: list[int], launcher: socket.socket) -> NoReturn:
        """Become, in the fork, the process that the launcher replaces."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for channel in (*self._own, *self._launchers.values(), launcher):
            channel.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        code = 1
        try:
            code = _run(task)
        except BaseException:  # noqa: BLE001 - as the interpreter itself tells of it
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while self._launchers:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            if child in self._launchers:
                code = os.waitstatus_to_exitcode(status)
                try:
                    self._launchers[child].sendall(b"%d\n" % (code if code >= 0 else 128 - code))
                except OSError:
                    print(f"nobody asks how {child} has ended", file=sys.stderr, flush=True)
                self._forget(child)

    def _forget(self, child: int) -> None:
        launcher = self._launchers.pop(child)
        self._selector.unregister(launcher)
        launcher.close()


def _received(launcher: socket.socket, streams: list[int]) -> Task:
    """Return the task; add its descriptors to ``streams`` in any case."""
    until_s = time.monotonic() + PATIENCE_S
    launcher.settimeout(PATIENCE_S)
    task, received, _, _ = socket.recv_fds(launcher, 4, 3)
    streams += received
    length = int.from_bytes(task, "big")
    if len(streams) != 3 or not 0 < length <= TASK_BYTES:
        raise ValueError(f"{len(streams)} streams and {length} bytes")
    task = b""
    while len(task) < length:
        launcher.settimeout(max(0.001, until_s - time.monotonic()))
        if not (more := launcher.recv(length - len(task))):
            raise EOFError("half a task")
        task += more
    launcher.settimeout(None)
    return Task(*marshal.loads(task))


def _run(task: Task) -> int:
    """Run the module as the interpreter would, and return its exit code.

    It keeps the zygote's search path, since Spark's own would put its zipped copy first.
    """
    os.environ.clear()
    os.environ.update(task.environment)
    os.chdir(task.folder)
    _, module, *arguments = task.arguments
    sys.argv = [module, *arguments]
    sys.modules.pop(module, None)  # It runs under another name, and nothing else imports it.
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    Zygote(sys.argv[1]).run()
