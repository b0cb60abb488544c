"""``sbon monitor`` as a process of its own, listening to a node on a real port."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any

import pytest

from sbon_cli.commands.nodes.monitor import line_of
from sbon_node.base.events import Listening, LogLine, Lost, MemberChanged, NodeEvent, OperatorChanged, QueryChanged
from tests.addresses import own_host
from tests.cli.commands import hearing_ctrl_c, run


@contextmanager
def monitoring(api: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    command = [sys.executable, "-m", "sbon_cli.main", "--node", api, "monitor", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hearing_ctrl_c
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        finally:
            process.kill()


def test_events_are_json_lines_in_a_pipe_until_ctrl_c(api: str, node: Any) -> None:
    with monitoring(api, "--events", "membership,logs", "--log-level", "warning") as (process, out):
        first = json.loads(out.readline())
        assert (first["event"], first["kinds"], first["level"]) == ("listening", ["logs", "membership"], "warning")
        for level in ("info", "error"):
            node.tell("logs", partial(LogLine, level=level, message=level, fields={"peer": "b"}))
        assert json.loads(out.readline()) == {
            "event": "logs",
            "node": "a",
            "at_ms": 0,
            "level": "error",
            "message": "error",
            "fields": {"peer": "b"},
        }
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert "Traceback" not in process.communicate()[1]


def test_it_listens_again_to_a_node_that_was_gone(api: str, node: Any) -> None:
    with monitoring(api) as (process, out):
        out.readline()
        node.cut_from_outside()
        assert json.loads(out.readline())["event"] == "listening"
        node.tell("logs", partial(LogLine, level="info", message="back"))
        assert json.loads(out.readline())["message"] == "back"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        (said,) = process.communicate()[1].splitlines()
        assert said.startswith("lost the node (")
        assert said.endswith("; trying again")


def test_a_node_that_was_never_there_ends_it_with_code_3() -> None:
    with socket.create_server((own_host(), 0)) as taken:
        host, port = taken.getsockname()
    result = run(f"http://{host}:{port}", "monitor")
    assert (result.exit_code, "no node answers" in result.stderr) == (3, True)


@pytest.mark.parametrize("arguments", [("--events", "weather"), ("--log-level", "loud")])
def test_an_unknown_kind_or_level_is_wrong_usage(api: str, arguments: tuple[str, ...]) -> None:
    result = run(api, "monitor", *arguments)
    assert result.exit_code == 2
    assert "weather" in result.stderr or "loud" in result.stderr


LINES: list[tuple[NodeEvent, str]] = [
    (Listening(node="a", at_ms=0, kinds=("logs",), level="info"), "00:00:00.000Z  listening   listening at a: logs"),
    (MemberChanged(node="a", at_ms=1500, member="b", change="updated", state="alive"), "b updated (alive)"),
    (
        OperatorChanged(
            node="a", at_ms=0, query="q", operator="q.o1", change="re-placed", host="b", was="c", strategy="hybrid", reason="less"
        ),
        "q.o1 re-placed at b from c by hybrid: less",
    ),
    (
        OperatorChanged(node="b", at_ms=0, query="q", operator="q.o1", change="moving", host="b", target="c"),
        "q.o1 moving at b to c",
    ),
    (
        OperatorChanged(node="b", at_ms=0, query="q", operator="q.o1", change="moved", host="c", was="b", target="c"),
        "q.o1 moved at c from b",
    ),
    (QueryChanged(node="a", at_ms=0, query="q", state="failed", consumer="a", reason="[disk] full"), r"q failed: [disk] full"),
    (LogLine(node="a", at_ms=0, level="error", message="lost", fields={"peer": "b", "s": 1.5}), "error lost peer=b s=1.5"),
    (Lost(node="a", at_ms=0, count=1234), "1,234 events were lost"),
]


@pytest.mark.parametrize("event, words", LINES, ids=lambda x: type(x).__name__)
def test_lines_for_people(event: NodeEvent, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    from sbon_cli.terminal.output import say

    say(line_of(event))
    assert words in capsys.readouterr().out


def test_a_reader_that_has_had_enough_ends_it_quietly(api: str, node: Any) -> None:
    with monitoring(api) as (process, out):
        out.readline()
        out.close()
        telling = threading.Event()

        def tell() -> None:
            while not telling.is_set():
                node.tell("logs", partial(LogLine, level="info", message="more"))
                time.sleep(0.02)

        teller = threading.Thread(target=tell)
        teller.start()
        try:
            assert process.wait(30) == 1
        finally:
            telling.set()
            teller.join()
        assert process.stderr is not None
        assert process.stderr.read() == ""
