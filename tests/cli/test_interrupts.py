"""Ctrl-C while rows are written: what has arrived is written whole and counted, and the next follower begins after it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.api.scripted_node import WAIT
from tests.cli.commands import frame, hearing_ctrl_c

ROWS = 20_000
"""More than a pipe holds."""


@contextmanager
def writing(api: str, node: Any, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command in the middle of a frame: its reader does not read on."""
    node.script = [[frame(1, *range(ROWS))]]
    command = [sys.executable, "-m", "sbon_cli.main", "--node", api, *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, preexec_fn=hearing_ctrl_c
    ) as process:
        assert process.stdout is not None
        try:
            assert json.loads(process.stdout.readline()) == {"x": 0, "name": "r0"}
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    "arguments, said, stopped",
    [
        (("submit", "select 1", "--rm"), f"stopped q1 after {ROWS:,} rows", ["q1"]),
        (("query", "follow", "q1"), f"detached after {ROWS:,} rows", []),
    ],
)
def test_a_frame_half_written_is_finished_and_counted(
    api: str, node: Any, arguments: tuple[str, ...], said: str, stopped: list[str]
) -> None:
    with writing(api, node, *arguments) as process:
        process.send_signal(signal.SIGINT)
        rest, told = process.communicate(timeout=60)
        assert process.returncode == 130
        assert [json.loads(line)["x"] for line in rest.splitlines()] == list(range(1, ROWS))
        assert said in told.decode()
    assert node.acknowledged[-1] == {"o1": 1}
    assert node.stopped == stopped


def test_a_second_ctrl_c_does_not_wait_and_tells_what_was_written(api: str, node: Any) -> None:
    with writing(api, node, "query", "follow", "q1") as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # two at once would be one
        process.send_signal(signal.SIGINT)
        rest, told = process.communicate(timeout=60)
    assert process.returncode == 130
    written = rest.count(b"\n")
    assert 0 < written < ROWS - 1
    assert b"Traceback" not in told
    assert b"detached after 0 rows" not in told
    assert node.acknowledged == []


@pytest.mark.one_part_per_commit("signals to commands with a query", parts=2)
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", [("sql", "-c", "SELECT 1"), ("submit", "SELECT 1", "--rm")])
def test_a_terminal_that_is_closed_stops_the_query_that_was_tied_to_it(
    api: str, node: Any, command: tuple[str, ...], signum: signal.Signals
) -> None:
    node.script = [[frame(1, 7), WAIT]]
    process = subprocess.Popen([sys.executable, "-m", "sbon_cli.main", "--node", api, *command], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["x"] == 7
        process.send_signal(signum)
        assert process.wait(60) == 128 + signum
    assert node.stopped == ["q1"]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_stops_a_tied_query_whose_rows_go_elsewhere(api: str, node: Any, tmp_path: Path, signum: signal.Signals) -> None:
    tied = ("submit", "SELECT 1", "--rm", "--follow", "--to", str(tmp_path / "rows.csv"))
    command = [sys.executable, "-m", "sbon_cli.main", "--node", api, *tied]
    with subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=hearing_ctrl_c) as process:
        assert process.stderr is not None
        assert b"q1 runs" in process.stderr.readline()
        shown = len(node.shown)
        while len(node.shown) == shown:
            time.sleep(0.05)
        process.send_signal(signum)
        process.stderr.read()
        assert process.wait(60) == (130 if signum == signal.SIGINT else 128 + signum)
    assert node.stopped == ["q1"]


@pytest.mark.parametrize(
    "command, signum",
    [
        (("submit", "SELECT 1", "--rm"), signal.SIGTERM),
        (("submit", "SELECT 1", "--rm", "--follow", "--to", "rows.csv"), signal.SIGINT),
        (("sql", "-c", "SELECT 1"), signal.SIGHUP),
    ],
)
def test_a_signal_before_the_answer_stops_a_query_that_may_run(
    api: str, node: Any, command: tuple[str, ...], signum: signal.Signals
) -> None:
    """The node may accept the query in the moment in which the command ends; no later signal can stop it then."""
    node.withholds = True
    line = [sys.executable, "-m", "sbon_cli.main", "--node", api, *command]
    with subprocess.Popen(line, stderr=subprocess.PIPE, preexec_fn=hearing_ctrl_c) as process:
        assert process.stderr is not None
        assert b"waiting: placing 1 operator" in process.stderr.readline()
        process.send_signal(signum)
        process.stderr.read()
        assert process.wait(60) == (130 if signum == signal.SIGINT else 128 + signum)
    assert node.stopped == ["q1"]
