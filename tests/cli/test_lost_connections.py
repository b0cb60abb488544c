"""A command or program whose node is silent for a while: what it submitted runs on, and is neither given up nor stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sbon import SbonError, connect, follower, submitting
from sbon_protocol.api.queries import Accepted, Progress, QueryInfo, SinkSpec, Submission
from tests.cli.commands import run

TO_FILE = ("submit", "select 1", "--to", "/data/out.csv", "--follow")
Querying = Callable[[str], Any]


@pytest.fixture
def cut_off(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection of each submission ends after its first step."""

    async def submit(submission: Submission) -> AsyncIterator[Progress | Accepted]:
        yield Progress(step="parsing", message="reading the query", query="q1")
        node.cut()
        await asyncio.Event().wait()

    monkeypatch.setattr(node, "submit", submit)


@pytest.mark.usefixtures("cut_off")
def test_an_accepted_query_is_known_though_its_connection_was_lost(api: str) -> None:
    result = run(api, "submit", "select 1", "--no-follow")
    assert (result.exit_code, result.stdout) == (0, "q1\n")
    with connect(api) as overlay:
        assert overlay.sql("select 1").id == "q1"


@pytest.mark.usefixtures("cut_off")
@pytest.mark.parametrize(
    "refusal, state, said",
    [
        (SbonError("unknown-query", "there is no query 'q1'"), "", "it has not accepted the query"),
        (None, "failed", "q1 is failed: the submission was given up"),
        (SbonError("holder-unreachable", "no answer from b"), "", "q1 may run"),
        (None, "placing", "q1 may run"),
    ],
)
def test_otherwise_the_error_says_what_is_known(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch, refusal: SbonError | None, state: str, said: str
) -> None:
    monkeypatch.setattr(submitting, "PATIENCE_S", 0.5)
    node.state, node.reason = state, "the submission was given up"
    answers(node, monkeypatch, lambda number, shown: refusal)
    result = run(api, "submit", "select 1")
    assert result.exit_code == 3
    assert said in " ".join(result.stderr.split())


def test_a_connection_lost_before_the_first_step_leaves_the_outcome_open(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def submit(submission: Submission) -> AsyncIterator[Progress | Accepted]:
        node.cut()
        yield Progress(step="parsing", message="reading the query", query="q1")

    monkeypatch.setattr(node, "submit", submit)
    result = run(api, "submit", "select 1")
    assert result.exit_code == 3
    assert "it may have accepted the query" in " ".join(result.stderr.split())


@pytest.mark.parametrize("code", ["holder-unreachable", "peer-unreachable", "no-majority", "node-unreachable", "unknown-query"])
@pytest.mark.parametrize("tied", [(), ("--rm",)], ids=["", "rm"])
def test_a_query_is_asked_for_again_where_no_answer_comes(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch, code: str, tied: tuple[str, ...]
) -> None:
    node.sink = SinkSpec(kind="file", options={"path": "/data/out.csv"})

    def refusal(number: int, shown: int) -> SbonError | None:
        if number == shown:
            node.state = "finished"
        return SbonError(code, "no answer from b", details=("b (alive)",)) if 1 < number < shown else None

    answers(node, monkeypatch, refusal, shown=4)
    result = run(api, *TO_FILE, *tied)
    assert (result.exit_code, node.stopped) == (0, [])
    assert "no answer from b); asking again" in result.stderr.replace("\n", " ")
    assert "q1 finished" in result.stderr


def test_in_the_end_it_says_what_may_still_run(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "PATIENCE_S", 0.0)
    silent = SbonError("holder-unreachable", "no answer from b")
    answers(node, monkeypatch, lambda number, shown: silent if number > 1 else None)
    result = run(api, *TO_FILE)
    assert (result.exit_code, node.stopped) == (3, [])
    assert "q1 may still run: sbon query show q1" in result.stderr


def test_a_query_that_does_not_exist_is_not_asked_for_again(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = SbonError("unknown-query", "there is no query 'q1'")
    answers(node, monkeypatch, lambda number, shown: unknown if number > 1 else None)
    result = run(api, *TO_FILE)
    assert result.exit_code == 1
    assert "asking again" not in result.stderr


def answers(
    node: Any, monkeypatch: pytest.MonkeyPatch, refusal: Callable[[int, int], SbonError | None], *, shown: int = 0
) -> None:
    """Let the node refuse to show its query, by the number of the question; the first one is that of the submission."""
    quick, questions = node.query, 0

    async def query(query_id: str) -> QueryInfo:
        nonlocal questions
        questions += 1
        error = refusal(questions, shown)
        if error is not None:
            raise error
        info: QueryInfo = await quick(query_id)
        return info

    monkeypatch.setattr(node, "query", query)
