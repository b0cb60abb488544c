"""The lock on a node's checkpoints, between real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbon_node.engine.lock import take_lock
from sbon_protocol.errors import SbonError

HOLDER = """
import subprocess, sys
from pathlib import Path
from sbon_node.engine.lock import take_lock
lock = take_lock(Path(sys.argv[1]), 60.0)
heir = subprocess.Popen(["sleep", "600"], pass_fds=[lock], stdout=subprocess.DEVNULL) if sys.argv[2] == "with-heir" else None
print(heir.pid if heir else 0, flush=True)
sys.stdin.read()
"""
"""An engine process as far as the lock goes; its heir is what the JVM is to an engine process."""


class Holder:
    def __init__(self, folder: Path, kind: str = "alone") -> None:
        command = [sys.executable, "-c", HOLDER, str(folder), kind]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.heir = int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    made: list[Holder] = []
    yield made
    for holder in made:
        holder.kill()


def is_refused(folder: Path) -> bool:
    try:
        os.close(take_lock(folder, 0.2))
    except SbonError as error:
        return error.code == "checkpoint-in-use"
    return False


def test_a_second_host_is_refused_until_the_first_is_killed(tmp_path: Path, holders: list[Holder]) -> None:
    holders.append(Holder(tmp_path / "operators"))
    assert is_refused(tmp_path / "operators")
    assert not is_refused(tmp_path / "others")
    holders[0].kill()
    assert not is_refused(tmp_path / "operators")


def test_the_jvm_of_a_killed_host_still_holds_it(tmp_path: Path, holders: list[Holder]) -> None:
    holders.append(Holder(tmp_path, "with-heir"))
    holders[0].kill()
    assert is_refused(tmp_path)
    os.kill(holders[0].heir, signal.SIGKILL)
    os.close(take_lock(tmp_path, 60.0))


def test_a_successor_waits_for_it(tmp_path: Path, holders: list[Holder]) -> None:
    holders.append(Holder(tmp_path))
    command = [sys.executable, "-c", HOLDER, str(tmp_path), "alone"]
    successor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert is_refused(tmp_path)
    holders[0].kill()
    assert successor.communicate("")[0] == "0\n"
    assert successor.returncode == 0
