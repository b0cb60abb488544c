"""Real servers of others for tests: PostgreSQL and Mosquitto, each on a loopback address of this process, started, killed and
started again as tests want it. Tests install nothing: ``make test-servers`` does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, Self

import pytest

from tests.addresses import own_host

PATIENCE_S = 120.0
USER, PASSWORD = "sbon_test", "s3cret/@:word"


def program(name: str, places: Sequence[str] = ("/usr/sbin", "/usr/local/sbin")) -> str:
    """Return the path of a server's program; skip the test where there is none, or fail it in continuous integration."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name), reverse=True)
    found = shutil.which(name, path=os.pathsep.join([*map(str, versions), os.environ.get("PATH", ""), *places]))
    return found or missing(name)


def missing(name: str) -> NoReturn:
    message = f"{name} is not installed: make test-servers installs it"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


class Server:
    """A process that is killed and started again on the same address and folder."""

    def __init__(self, command: list[str], folder: Path, ready: Callable[[], bool], user: str | None = None) -> None:
        self._command, self.folder, self._ready, self._user = command, folder, ready, user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        groups = {"group": self._user, "extra_groups": []} if self._user else {}
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(  # type: ignore[call-overload]
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=self._user, start_new_session=True, **groups
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._ready():
            ended = self._process.poll()
            assert ended is None, f"it ended with {ended}: {(self.folder / 'log').read_text(errors='replace')[-2000:]}"
            assert time.monotonic() < deadline, "it never became ready"
            time.sleep(0.05)

    def kill(self, signum: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signum)
            self._process.wait(PATIENCE_S)
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Postgres(Server):
    """A server with one database, ``postgres``, whose superuser is :data:`USER`."""

    def __init__(self, number: int = 20) -> None:
        initdb = program("initdb")
        postgres = program("postgres")
        psql = program("psql")
        self.host, self.port = own_host(number), 15432
        folder = Path(tempfile.mkdtemp(prefix="sbon-postgres-"))
        user = "postgres" if os.geteuid() == 0 else None
        if user:
            shutil.chown(folder, user, user)
        words = folder / "words"
        words.write_text(PASSWORD)
        words.chmod(0o644)
        folder.chmod(0o755)
        made = subprocess.run(
            [initdb, "-D", str(folder / "data"), "-U", USER, "-A", "scram-sha-256", f"--pwfile={words}", "-E", "UTF8", "-N"],
            capture_output=True,
            text=True,
            user=user,
            env={**os.environ, "LC_ALL": "C"},
            cwd="/",
        )
        assert made.returncode == 0, made.stderr
        self._psql = [psql, "-h", self.host, "-p", str(self.port), "-U", USER, "-d", "postgres", "-X", "-q", "-t", "-A", "-c"]
        command = [postgres, "-D", str(folder / "data"), "-h", self.host, "-p", str(self.port), "-k", "", "-F"]
        super().__init__(command, folder, lambda: self._ask("SELECT 1").returncode == 0, user)

    def url(self, password: str = "") -> str:
        secret = f":{password}" if password else ""
        return f"postgres://{USER}{secret}@{self.host}:{self.port}/postgres"

    def sql(self, text: str) -> list[list[str]]:
        """Rows of texts; NULL is empty."""
        done = self._ask(text)
        assert done.returncode == 0, done.stderr
        return [line.split("|") for line in done.stdout.splitlines()]

    def _ask(self, text: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PGPASSWORD": PASSWORD, "PGCONNECT_TIMEOUT": "10", "PGTZ": "UTC"}
        return subprocess.run([*self._psql, text], capture_output=True, text=True, env=environment, cwd="/")


class Mosquitto(Server):
    """A broker that asks for the password, and keeps sessions and messages over a kill."""

    def __init__(self, number: int = 30) -> None:
        mosquitto, passwd = program("mosquitto"), program("mosquitto_passwd")
        self.host, self.port = own_host(number), 11883
        folder = Path(tempfile.mkdtemp(prefix="sbon-mosquitto-"))
        subprocess.run([passwd, "-c", "-b", str(folder / "words"), USER, PASSWORD], check=True, capture_output=True)
        lines = [f"listener {self.port} {self.host}", "allow_anonymous false", f"password_file {folder / 'words'}"]
        lines += ["persistence true", f"persistence_location {folder}/", "autosave_on_changes true", "autosave_interval 1"]
        lines += ["max_queued_messages 0", "user root"] if os.geteuid() == 0 else ["max_queued_messages 0"]
        (folder / "conf").write_text("\n".join(lines) + "\n")
        super().__init__([mosquitto, "-c", str(folder / "conf")], folder, self._listens)

    @property
    def url(self) -> str:
        return f"mqtt://{USER}@{self.host}:{self.port}"

    def _listens(self) -> bool:
        import socket

        try:
            socket.create_connection((self.host, self.port), timeout=5).close()
        except OSError:
            return False
        return True
