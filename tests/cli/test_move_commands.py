"""Commands that move an operator: progress, refusal, cancellation and interruption."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sbon.model import Moving
from sbon_protocol.api.moves import MoveProgress
from sbon_protocol.api.queries import MoveInfo
from tests.cli.commands import run


def test_moving_an_operator(api: str) -> None:
    *steps, moved = run(api, "query", "migrate", "q1", "b0", "--to", "paris", "--json").stdout.splitlines()
    assert [json.loads(step)["step"] for step in steps] == ["copying", "copying", "following"]
    assert json.loads(moved)["node"] == "paris"
    shown = run(api, "query", "migrate", "q1", "b0", "--to", "paris")
    assert shown.stdout == "b0 runs at paris: 1.0 kB of state copied, 0.25 s without rows\n"
    assert shown.stderr == "copying: 512 B of 1.0 kB\nfollowing: 3 frames behind\n"
    stopped = run(api, "query", "migrate", "q1", "b0", "--to", "paris", "--how", "stop")
    assert stopped.stderr.startswith("stopping\ncopying")
    refused = run(api, "query", "migrate", "q1", "b0", "--to", "full")
    assert refused.exit_code == 1
    assert "0.05 cores free" in refused.stderr


def test_cancelling_a_move(api: str) -> None:
    assert run(api, "query", "migrate", "q1", "b0", "--cancel").stdout == "cancelled: b0 goes on at b\n"
    assert json.loads(run(api, "query", "migrate", "q1", "b0", "--cancel", "--json").stdout)["node"] == "b"
    late = run(api, "query", "migrate", "q1", "committed", "--cancel")
    assert (late.exit_code, "it is too late" in late.stderr) == (1, True)
    for wrong in ((), ("--cancel", "--to", "paris")):
        assert run(api, "query", "migrate", "q1", "b0", *wrong).exit_code == 2


def test_ctrl_c_of_a_move_says_how_to_watch_and_cancel_it(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(client: object, *_: str) -> Any:
        yield Moving(step="copying")
        raise KeyboardInterrupt

    monkeypatch.setattr("sbon_cli.client.Client.move_operator", interrupted)
    result = run(api, "query", "migrate", "q1", "b0", "--to", "paris")
    assert result.exit_code == 130
    told = " ".join(result.stderr.split())
    assert "the move goes on" in told
    assert "sbon query show q1;" in told
    assert "sbon query migrate q1 b0 --cancel" in told


def test_a_move_under_way_is_shown(api: str, node: Any) -> None:
    node.move = MoveInfo(target="paris", step="copying", progress=MoveProgress(copied_bytes=512, total_bytes=1024))
    assert "running: moves b -> paris, copying: 512 B of 1.0 kB" in run(api, "query", "show", "q1").stdout
