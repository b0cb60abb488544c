"""``sbon submit`` in a pipe while the node is slow to accept a query: it says what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sbon_protocol.api.queries import Accepted, Progress, Submission
from tests.cli.commands import run

STARTING = "reading the query; the engine analyses it, which has to start first: that takes some seconds"


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_a_slow_submission_says_in_a_pipe_what_it_waits_for(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(submission: Submission) -> AsyncIterator[Progress | Accepted]:
        await asyncio.sleep(1.0)
        yield Progress(step="parsing", message=STARTING)
        await asyncio.sleep(1.0)
        yield Accepted(query=await node.query("q1"))

    monkeypatch.setattr(node, "submit", slow)
    monkeypatch.setattr("sbon_cli.terminal.waiting.SLOW_S", 0.3)
    result = run(api, "submit", "select 1", "--no-follow")
    assert result.stdout == "q1\n"
    told = result.stderr.splitlines()
    assert told[:2] == [f"waiting: no answer of the node at {api} yet", f"waiting: {STARTING}"]
    assert told[2].startswith("q1 runs")
    assert run(api, "submit", "select 1", "--no-follow", "--quiet").stderr == ""


def test_a_quick_submission_says_nothing_of_waiting(api: str) -> None:
    assert "waiting" not in run(api, "submit", "select 1", "--no-follow").stderr
