"""Commands run in this process, and a node's messages to the follower of a query."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sbon_cli.main import sbon
from sbon_protocol.api.delivery import Finished, Rows


def run(api: str, *arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(sbon, ["--node", api, *arguments], input=stdin)


def hearing_ctrl_c() -> None:
    """For a process about to start: where these tests run in the background, it would inherit that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def lines(text: str) -> list[Any]:
    """The values of JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def frame(number: int, *values: int, stream: str = "o1") -> Rows:
    rows = tuple((v, f"r{v}") for v in values)
    return Rows(stream=stream, number=number, columns=("x", "name"), rows=rows, watermark_ms=0, delay_ms=3)


FINISHED = Finished(state="finished")


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too simple for colours; tests/cli/test_main.py runs a command on a real one."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda stream: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "200")
