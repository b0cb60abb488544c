"""A node that accepts connections and answers nothing, as a stopped process does, is unreachable within seconds."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from sbon import SbonError, connect, connect_async, http
from sbon.async_http import AsyncHttp
from sbon.http import Http
from sbon.submitting import submitted
from sbon.synchronous import SynchronousTransport
from sbon.synchronous import run as run_to_the_end
from sbon_cli.terminal import waiting
from tests.addresses import own_host
from tests.cli.commands import run

SAID = r"takes connections, but has answered nothing for 0\.[39] s"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands wait as programs do that connect with ``silent_s=0.3``."""
    monkeypatch.setattr(Http.__init__, "__defaults__", (0.3,))


@pytest.fixture
def frozen() -> Iterator[str]:
    """The API of such a node."""
    with socket.create_server((own_host(), 0)) as server:
        host, port = server.getsockname()
        yield f"http://{host}:{port}"


COMMANDS = [
    ("members",),
    ("query", "stop", "q"),
    ("explain", "SELECT 1"),
    ("submit", "SELECT 1"),
    ("drain", "--dry-run"),
    ("doctor",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_ends(frozen: str, command: tuple[str, ...]) -> None:
    result = run(frozen, *command)
    assert (result.exit_code, bool(re.search(SAID, result.stderr))) == (3, True)


@pytest.mark.parametrize("command, signs", [(("members",), 1), (("submit", "SELECT 1"), 3)], ids=["members", "submit"])
def test_a_submission_is_given_up_later_than_a_question(command: tuple[str, ...], signs: int) -> None:
    with socket.create_server((own_host(), 0)) as server:
        server.settimeout(0.0)
        host, port = server.getsockname()
        assert run(f"http://{host}:{port}", *command).exit_code == 3
        accepted = 0
        with suppress(BlockingIOError):
            while True:
                server.accept()[0].close()
                accepted += 1
        assert accepted == 1 + signs


async def test_a_program_gets_an_error(frozen: str) -> None:
    with pytest.raises(SbonError, match=SAID):
        connect(frozen, silent_s=0.3)
    with pytest.raises(SbonError, match=SAID):
        await connect_async(frozen, silent_s=0.3)


async def test_a_program_says_how_long_a_node_may_be_silent(frozen: str) -> None:
    said = r"has answered nothing for 0\.6 s"
    with pytest.raises(SbonError, match=said):
        connect(frozen, silent_s=0.6)
    with pytest.raises(SbonError, match=said):
        await connect_async(frozen, silent_s=0.6)
    for wrong in (0, -1, "12", None, 120.0):
        with pytest.raises(SbonError, match=r"silent_s: a finite int or float above 0 and below 120 is needed, not "):
            connect(frozen, silent_s=wrong)  # type: ignore[arg-type]


async def test_a_submission_is_not_given_up_before_its_signs_are_missing(frozen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though an event stream in which nothing comes for so long counts as lost."""
    monkeypatch.setattr(http, "LOST_AFTER_S", 0.1)
    said = r"has answered nothing for 0\.9 s.*; it may have accepted the query"
    with pytest.raises(SbonError, match=said):
        run_to_the_end(submitted(SynchronousTransport(Http(frozen, 0.3)), {"sql": "SELECT 1"}))
    with pytest.raises(SbonError, match=said):
        await submitted(AsyncHttp(frozen, 0.3), {"sql": "SELECT 1"})


async def test_a_node_that_lives_may_be_slow(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer takes longer than the longest silence of a frozen one, and it gives signs of life meanwhile."""
    monkeypatch.setattr(Http.__init__, "__defaults__", (1.0,))
    quick = node.query

    async def slow(query_id: str) -> Any:
        await asyncio.sleep(1.5)
        return await quick(query_id)

    monkeypatch.setattr(node, "query", slow)
    assert run(api, "query", "show", "q1").exit_code == 0
    assert (await (await connect_async(api, silent_s=1.0)).query("q1")).id == "q1"


def test_a_pipe_reads_what_is_waited_for(frozen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "enabled", True)
    monkeypatch.setattr(waiting, "SLOW_S", 0.1)
    assert run(frozen, "members").stderr.splitlines()[0] == f"waiting: GET /v1/members at {frozen}"
