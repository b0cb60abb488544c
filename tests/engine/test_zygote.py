"""Forks in the place of Python processes: what a launcher is given the fork has, and as one ends so does the other."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sbon_node.engine.spark import zygote
from tests.live.world import wait_for

PROGRAM = """
import os, sys
print(sys.argv[1:], os.environ["GIVEN"], os.getcwd(), "pyspark.worker" in sys.modules, __name__)
print(sys.stdin.read().upper(), file=sys.stderr)
print(os.getpid(), flush=True)
match sys.argv[1]:
    case "wait":
        import time
        time.sleep(600)
    case "fail":
        raise ValueError("as it should")
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """With the program, and a socket that is found there."""
    folder = tmp_path_factory.mktemp("zygote")
    (folder / "program.py").write_text(PROGRAM)
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A zygote, which the last tests end."""
    process = zygote.start(Path("zygote.sock"), {**os.environ, "PYTHONPATH": str(folder)})
    wait_for((folder / "zygote.sock").exists, "the zygote listens")
    yield process
    process.kill()
    process.wait()


def launched(folder: Path, *arguments: str, module: str = "program") -> subprocess.Popen[str]:
    given = {"GIVEN": "a value", "SBON_ZYGOTE": "zygote.sock", "SBON_PYTHON": sys.executable, "PYTHONPATH": str(folder)}
    return subprocess.Popen(
        [zygote.LAUNCHER, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **given},
    )


@pytest.mark.parametrize("code", [0, 3])
def test_a_fork_has_what_its_launcher_was_given(running: object, folder: Path, code: int) -> None:
    launcher = launched(folder, str(code), "b c")
    told, errors = launcher.communicate("words")
    assert told.splitlines()[0] == f"{[str(code), 'b c']} a value {folder} True __main__"
    assert (errors, launcher.returncode) == ("WORDS\n", code)


def test_code_that_is_imported_already_runs_all_the_same(running: object, folder: Path) -> None:
    launcher = launched(folder, "pyspark.worker", module="pyspark.daemon")
    told, errors = launcher.communicate("")  # its port, and the end of its input ends it
    assert (len(told) > 0, errors) == (True, "")


def test_other_users_may_not_connect(running: object, folder: Path) -> None:
    assert (folder / "zygote.sock").stat().st_mode & 0o777 == 0o600


def test_an_exception_is_reported_as_by_python(running: object, folder: Path) -> None:
    launcher = launched(folder, "fail")
    _, errors = launcher.communicate("")
    assert errors.splitlines()[-1] == "ValueError: as it should"
    assert launcher.returncode == 1


def test_a_fork_ends_with_its_launcher_and_the_others_stay(running: object, folder: Path) -> None:
    forks = [_waiting(folder), _waiting(folder)]
    forks[0][0].kill()
    forks[0][1].wait()
    assert forks[1][1].is_running()
    forks[1][1].kill()
    assert forks[1][0].wait() == 128 + signal.SIGKILL


def test_forks_come_of_a_single_thread(running: subprocess.Popen[bytes], folder: Path) -> None:
    launched(folder, "0").communicate("")
    assert psutil.Process(running.pid).num_threads() == 1


def test_nonsense_is_refused_and_the_next_is_served(running: object, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect("zygote.sock")
        stranger.sendall(b"\xff\xff\xff\xff")
        assert stranger.recv(4) == b""
    launcher = launched(folder, "0")
    launcher.communicate("")
    assert launcher.returncode == 0


def test_a_zygote_ends_with_its_standard_input(running: subprocess.Popen[bytes]) -> None:
    assert running.stdin is not None
    running.stdin.close()
    assert running.wait() == 0


def test_without_a_zygote_the_launcher_is_python_itself(folder: Path) -> None:
    (folder / "zygote.sock").unlink(missing_ok=True)
    launcher = launched(folder, "4")
    told, errors = launcher.communicate("words")
    assert told.splitlines()[0] == f"['4'] a value {folder} False __main__"
    assert (errors.splitlines()[0].startswith("no zygote"), launcher.returncode) == (True, 4)


def _waiting(folder: Path) -> tuple[subprocess.Popen[str], psutil.Process]:
    """A launcher, and its fork, which waits."""
    launcher = launched(folder, "wait")
    assert launcher.stdin is not None
    assert launcher.stdout is not None
    launcher.stdin.close()
    launcher.stdout.readline()
    return launcher, psutil.Process(int(launcher.stdout.readline()))
