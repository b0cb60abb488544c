"""A query's progress: a line in ``show``, a bar on a terminal, and regular lines elsewhere."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from sbon_cli.commands.queries import progress
from sbon_cli.commands.queries.progress import Bar, progress_text, short_text
from sbon_cli.commands.queries.query import show_query
from sbon_protocol.api.operators import OperatorStats
from sbon_protocol.api.queries import OperatorInfo, QueryInfo, QueryProgress
from tests.cli.commands import FINISHED, frame, lines, run

HALF = QueryProgress(rows_in=1204, rows_out=310, read_share=0.453, rows_in_s=120.4, rows_out_s=9.6, lag_ms=2100, left_s=40.2)
ENDLESS = QueryProgress(rows_in=1, rows_out=None, read_share=None, endless=("clicks at paris",))
TOLD = "45 % of the sources read, 1,204 rows in, 310 rows out, 120 rows/s in, 10 rows/s out, lag 2.1 s, about 40 s left"


@pytest.fixture
def progressing(node: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    answered = node.query
    node.progress = HALF

    async def query(query_id: str) -> Any:
        return msgspec.structs.replace(await answered(query_id), progress=node.progress)

    monkeypatch.setattr(node, "query", query)
    return node


def test_unknown_values_are_shown_as_unknown() -> None:
    assert progress_text(HALF) == TOLD
    assert progress_text(ENDLESS) == "no end: clicks at paris, 1 row in, rows not known out"
    unknown = msgspec.structs.replace(ENDLESS, endless=(), rows_out=0)
    assert progress_text(unknown) == "share of the sources read: unknown, 1 row in, 0 rows out"
    assert short_text(HALF) == "45 %, 40 s left, 1,204 rows in, 310 out, 120 rows/s in, lag 2.1 s"
    assert short_text(ENDLESS) == "no end, 1 row in"


def test_show_tells_how_far_a_query_is(api: str, progressing: Any) -> None:
    assert run(api, "query", "show", "q1").stdout.splitlines()[1] == TOLD
    assert lines(run(api, "query", "show", "q1", "--json").stdout)[0]["progress"]["read_share"] == 0.453


def test_a_bar_has_a_share_where_there_is_one() -> None:
    screen = io.StringIO()
    bar = Bar(Console(file=screen, force_terminal=True, width=80, color_system=None))
    bar.show(HALF)
    bar.show(ENDLESS)
    bar.close()
    bar.show(HALF)
    shown = screen.getvalue()
    assert short_text(HALF) in shown
    assert "no end, 1 row in" in shown


def test_a_follower_without_a_terminal_prints_progress_now_and_then_unless_quiet(
    api: str, progressing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.05)
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    for command, told in (
        (("query", "follow", "q1"), True),
        (("submit", "select 1"), True),
        (("submit", "-q", "select 1"), False),
    ):
        progressing.script = [[frame(1, 1), 0.5, FINISHED]]
        result = run(api, *command)
        assert (result.exit_code, lines(result.stdout)) == (0, [{"x": 1, "name": "r1"}])
        assert (f"q1: {TOLD}\n" in result.stderr) is told


def test_a_node_that_does_not_tell_is_no_error(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.05)
    node.script = [[frame(1, 1), 0.3, FINISHED]]
    assert run(api, "query", "follow", "q1").exit_code == 0


@pytest.mark.parametrize(
    "under_way_s, told",
    [(249.8, "running: o0 ahead; 250 s on a batch of 180,079 rows"), (0.4, "running: o0 ahead "), (None, "running: o0 ahead ")],
)
def test_a_long_batch_is_reported(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch, under_way_s: float | None, told: str
) -> None:
    answered = node.query

    async def query(query_id: str) -> QueryInfo:
        info = await answered(query_id)
        stats = OperatorStats(under_way_s=under_way_s, under_way_rows=180_079)
        return msgspec.structs.replace(
            info, operators=tuple(msgspec.structs.replace(o, reason="o0 ahead", stats=stats) for o in info.operators)
        )

    monkeypatch.setattr(node, "query", query)
    said = run(api, "query", "show", "q1").stdout
    assert told in said
    assert ("on a batch" in said) == (under_way_s is not None and under_way_s > 1)


@pytest.mark.parametrize("query_reason", ["o1 at b: division by zero", "stopped by hand"])
def test_an_operator_repeats_no_reason_of_its_query(capsys: pytest.CaptureFixture[str], query_reason: str) -> None:
    operator = OperatorInfo(id="o1", node="b", fragment="SELECT 1", state="failed", reason="division by zero")
    show_query(QueryInfo(id="q", sql="SELECT 1", state="failed", reason=query_reason, operators=(operator,)))
    shown = capsys.readouterr().out
    assert shown.startswith(f"q failed ({query_reason})")
    assert shown.count("division by zero") == 1
