"""A node's log file stays within its bound, even if others append to it, and a full disk harms no logger."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import structlog

from sbon_node.base.logging import output
from sbon_node.base.logging.output import LogFile, LogSettings
from sbon_protocol.errors import SbonError

BOUND = 65_536


def test_a_log_beyond_its_bound_is_rotated_and_then_deleted(tmp_path: Path) -> None:
    path, aside = tmp_path / "log", tmp_path / "log.1"
    output.configure(LogSettings(file=str(path), file_bytes=BOUND))
    with path.open("ab", buffering=0) as starter:  # as the process that started the node has it open, for output before and after
        starter.write(b'{"number": -1}\n')
        largest = 0
        for number in range(3000):
            structlog.get_logger().info("told", number=number)
            largest = max(largest, path.stat().st_size)
        starter.write(b'{"number": 3000}\n')

    kept = [json.loads(line)["number"] for file in (aside, path) for line in file.read_text().splitlines()]
    assert largest <= BOUND
    assert aside.stat().st_size <= BOUND + 200
    assert kept == list(range(kept[0], 3001))
    assert kept[0] > 0


def test_a_log_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(SbonError, match="No such file") as refused:
        output.configure(LogSettings(file=str(tmp_path / "none" / "log")))
    assert refused.value.where == f"log.file {tmp_path / 'none' / 'log'}"


def test_lines_a_full_disk_does_not_take_are_counted(tmp_path: Path) -> None:
    file = LogFile(Path("/dev/full"), BOUND)
    for _ in range(3):
        print("lost", file=file, flush=True)
    with (tmp_path / "log").open("wb") as room:
        os.dup2(room.fileno(), file._file.fileno())
    print("kept", file=file, flush=True)
    assert (tmp_path / "log").read_text() == '{"event":"log-lines-lost","pieces":6}\nkept\n'
    file.close()
