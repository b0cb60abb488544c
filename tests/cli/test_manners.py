"""Rules of all commands: colours and progress on terminals only, standard input for ``-``, plain error messages."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pexpect
import pytest

from sbon_cli.main import main
from sbon_cli.terminal import waiting
from sbon_protocol.errors import SbonError
from tests.cli.commands import FINISHED, frame, lines, run
from tests.cli.shell.terminal import Terminal

SBON = (sys.executable, "-m", "sbon_cli.main")


def sbon(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SBON, *arguments], input=stdin, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_pipes_carry_no_colours_and_no_progress(api: str, node: Any) -> None:
    for command in (["members"], ["explain", "SELECT 1"], ["stream", "show", "none"], ["submit", "--no-follow", "SELECT 1"]):
        result = sbon("--node", api, *command)
        assert "\x1b" not in result.stdout + result.stderr, command
        assert "placing" not in result.stderr


def raw_on_a_terminal(api: str, **environment: str) -> str:
    """All that is written to a terminal."""
    child = pexpect.spawn(
        SBON[0],
        [*SBON[1:], "--node", api, "members"],
        env={**os.environ, "TERM": "xterm", **environment},
        encoding="utf-8",
        timeout=60,
    )
    child.expect(pexpect.EOF)
    return str(child.before)


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_no_color_is_obeyed_on_a_terminal(api: str) -> None:
    coloured = raw_on_a_terminal(api, SBON_API=api)
    plain = raw_on_a_terminal(api, NO_COLOR="1")
    assert "\x1b[" in coloured
    assert not any(f"\x1b[{code}m" in plain for code in range(30, 38))


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_a_terminal_shows_work_that_takes_longer_than_a_second(api: str, node: Any, tmp_path: Path) -> None:
    node.delay_s = 3.0
    terminal = Terminal(tmp_path, "--node", api, "members")
    terminal.until(f"GET /v1/members at {api}")
    shown = terminal.until("rtt ms")
    assert "GET /v1/members" not in shown
    assert terminal.end() == 0


def test_the_client_as_a_library_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
    for enabled in (False, True):
        monkeypatch.setattr(waiting, "enabled", enabled)
        with waiting.waiting("counting sheep"):
            deadline = time.monotonic() + 60
            while enabled and "sheep" not in screen.getvalue() and time.monotonic() < deadline:
                time.sleep(0.01)
        assert ("counting sheep" in screen.getvalue()) is enabled


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_a_dash_is_standard_input_wherever_a_text_is_taken(api: str, node: Any) -> None:
    assert lines(sbon("--node", api, "explain", "-", "--json", stdin="SELECT 7").stdout)[0]["query"] == ""
    assert node.asked[-1].sql == "SELECT 7"
    assert run(api, "explain", "placement", "-", stdin="SELECT 8").exit_code == 0
    assert node.asked[-1].sql == "SELECT 8"
    create = ("stream", "create", "s", "--schema", "-", "--event-time", "ts")
    assert run(api, *create, stdin="ts timestamp,\n x double\n").exit_code == 0
    assert [column.name for column in node.declared[-1].schema] == ["ts", "x"]
    wrong = sbon("config", "check", "-", stdin="[log]\nlevel = 'loud'\n")
    assert (wrong.returncode, "log.level" in wrong.stderr) == (2, True)
    shown = sbon("config", "show", "--json", "--config", "-", stdin="[log]\nlevel = 'debug'\n")
    assert {row["setting"]: row["value"] for row in lines(shown.stdout)}["log.level"] == "debug"


WRONG = [
    (("stream", "attach", "s", "--generator", "--rate", "fast"), "'fast' is not a number"),
    (("cluster", "up", "-n", "few"), "'few' is not a whole number"),
    (("cluster", "up", "--latency", "nosuch"), "latency: there is no file 'nosuch'\n  hint: give cities, or a file"),
    (("stream", "attach", "s", "--connector", "tail", "--option", "path=/a", "--option", "path=/b"), "path is given twice"),
    (("members", "--tag", "zone"), "'zone' is not KEY=VALUE"),
    (("members", "--state", "ill"), "'ill' is not one of"),
]


@pytest.mark.parametrize("arguments, said", WRONG)
def test_wrong_arguments_are_named(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sbon", *arguments])
    monkeypatch.setattr(waiting, "enabled", False)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_members_of_a_state_or_with_a_tag(api: str, node: Any) -> None:
    node.consumer, node.consumer_state = "b", "dead"
    assert [m["name"] for m in lines(run(api, "members", "--json", "--state", "dead").stdout)] == ["b"]
    assert [m["name"] for m in lines(run(api, "members", "--json", "--state", "dead", "--state", "alive").stdout)] == ["a", "b"]
    assert lines(run(api, "members", "--json", "--tag", "zone=eu").stdout) == []


def test_a_source_is_detached_by_its_node_or_its_name(api: str, node: Any) -> None:
    for flags in ((), ("--node", "a"), ("--name", "jfk"), ("--name", "jfk", "--node", "a")):
        assert run(api, "stream", "detach", "flights", *flags).exit_code == 0
    assert node.stopped == ["flights/jfk"] * 4
    for flags in (("--node", "b"), ("--name", "ewr")):
        result = run(api, "stream", "detach", "flights", *flags)
        assert (result.exit_code, "there is jfk at a" in result.stderr) == (1, True)
    assert len(node.stopped) == 4


@pytest.mark.parametrize("code", ["stream-in-use", "too-many-sources"])
def test_a_refused_detaching_says_why(api: str, node: Any, code: str) -> None:
    node.refuse_detach = SbonError(code, "flights is read by q1", hint="stop them first")
    result = run(api, "stream", "detach", "flights")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == ["error: flights is read by q1", "  hint: stop them first"]


def in_a_shell(api: str, command: str) -> subprocess.CompletedProcess[str]:
    """``sbon`` stands for itself in the command."""
    environment = {**os.environ, "SBON_API": api, "SBON": " ".join(SBON)}
    return subprocess.run(
        ["sh", "-c", command.replace("sbon", "$SBON")], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.one_part_per_commit("commands whose output is not writable", parts=6)
@pytest.mark.parametrize("command", ["sbon members", "sbon --help", "sbon sql -c 'SHOW MEMBERS'", "sbon submit 'SELECT 1'"])
@pytest.mark.parametrize("output, reason", [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")])
def test_unwritable_output_is_reported_in_a_line(api: str, node: Any, command: str, output: str, reason: str) -> None:
    node.script = [[frame(1, 7), FINISHED]]
    result = in_a_shell(api, f"{command} {output}")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == f"error: standard output: cannot be written: {reason}"
    assert "Traceback" not in result.stderr
    assert node.acknowledged == [], "the next follower gets them"


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_commands_run_without_standard_input_or_error(api: str) -> None:
    for closed in ("<&-", "2>&-", "<&- 2>&-"):
        assert [m["name"] for m in lines(in_a_shell(api, f"sbon members --json {closed}").stdout)] == ["a", "b"]
    assert in_a_shell(api, "sbon sql <&-").returncode == 0
