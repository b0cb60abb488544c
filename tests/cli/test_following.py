"""``sbon submit`` and ``sbon query follow`` against a node on a real port: each row once, whatever breaks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from itertools import count, groupby, pairwise
from typing import Any

import msgspec
import pytest

from sbon import follower
from sbon.model import Finished, Rows
from sbon_cli.client import Client
from sbon_cli.commands.queries import follow
from sbon_protocol.api import delivery
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.queries import Progress, QueryInfo, SinkInfo, SinkSpec
from sbon_protocol.api.streams import SourceInfo
from sbon_protocol.errors import SbonError
from tests.cli.commands import FINISHED, frame, on_a_terminal, run
from tests.live.world import wait_for

CLOSED = delivery.Finished(state="stopped")
ENDED = Finished(state="stopped")


def reading(stream: str, name: str, state: str = "running", **counts: int) -> SourceInfo:
    source = SourceDeclaration(stream=stream, name=name, node="london", connector="http")
    return SourceInfo(source=source, state=state, **counts)


def test_submit_prints_rows_as_ndjson_and_acknowledges_them(api: str, node: Any) -> None:
    node.script = [[frame(1, 1, 2), frame(2), frame(3, 3), FINISHED]]
    result = run(api, "submit", "select 1")
    assert result.exit_code == 0
    assert [json.loads(line) for line in result.stdout.splitlines()] == [{"x": i, "name": f"r{i}"} for i in (1, 2, 3)]
    assert node.acknowledged[-1] == {"o1": 3}
    assert result.stderr.splitlines() == ["q1 runs, rows arrive at a", "q1 finished: 3 rows"]


def test_many_frames_cost_few_acknowledgements(api: str, node: Any) -> None:
    node.script = [[*(frame(number, number) for number in range(1, 1001)), FINISHED]]
    started = time.monotonic()
    assert run(api, "query", "follow", "q1").exit_code == 0
    numbers = [told["o1"] for told in node.acknowledged]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 1000
    assert len(numbers) <= (time.monotonic() - started) / follower.ACKNOWLEDGE_PAUSE_S + 2


def test_a_refused_acknowledgement_is_made_again(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "ACKNOWLEDGE_RETRY_S", 0.0)
    node.refuse_acknowledgements = [SbonError("disk-full", "no space for more"), SbonError("not-received", "not yet")]
    node.script = [[frame(1, 1), FINISHED]]
    result = run(api, "query", "follow", "q1")
    assert (result.exit_code, node.acknowledged) == (0, [{"o1": 1}])
    assert result.stderr.count("cannot acknowledge rows yet: no space for more") == 1


def test_numbers_that_came_while_others_were_sent_are_sent_next() -> None:
    due = follower.Unacknowledged()
    for stream, number in (("o1", 1), ("o2", 4)):
        due.written(stream, number)
    sent = dict(due.numbers)
    due.written("o1", 2)
    due.sent(sent)
    assert due.numbers == {"o1": 2}


def test_detaching_acknowledges_all_printed_rows(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "ACKNOWLEDGE_PAUSE_S", 60.0)
    printed: list[int] = []

    def interrupted(writer: object, written: Rows) -> None:
        """The second frame comes in the pause after the acknowledgement of the first one."""
        if written.number > 2:
            raise KeyboardInterrupt
        wait_for(lambda: written.number == 1 or node.acknowledged, "the first frame is acknowledged")
        printed.append(written.number)

    monkeypatch.setattr("sbon_cli.commands.queries.rows.NdjsonWriter.__call__", interrupted)
    node.script = [[*(frame(number, number) for number in (1, 2, 3)), FINISHED]]
    assert run(api, "query", "follow", "q1").exit_code == 130
    assert (printed, node.acknowledged[-1]) == ([1, 2], {"o1": 2})


SILENT_CONSUMER = SbonError("consumer-unreachable", "the rows arrive at b, which does not answer", hint="start b again")
SILENT_HOST = SbonError("host-unreachable", "q1.o1 is at b, which does not answer", hint="start b again")
SILENT_HOLDER = SbonError("holder-unreachable", "the query's record is at b, which does not answer", hint="start b again")


@pytest.mark.parametrize("command", [("query", "follow", "q1"), ("submit", "select 1", "--consumer", "b")])
def test_rows_that_arrive_at_another_node_are_followed_at_the_node_asked(api: str, node: Any, command: tuple[str, ...]) -> None:
    """The API of the other node is not needed."""
    node.consumer, node.consumer_api = "b", "127.0.0.1:1"
    node.script = [[frame(1, 1, 2), FINISHED]]
    result = run(api, *command)
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)
    assert node.acknowledged[-1] == {"o1": 1}


@pytest.mark.parametrize("silent", [SILENT_CONSUMER, SILENT_HOST, SILENT_HOLDER], ids=lambda error: error.code)
def test_a_node_of_the_query_that_does_not_answer_is_an_unreachable_node(api: str, node: Any, silent: SbonError) -> None:
    node.script = [[silent]]
    result = run(api, "query", "follow", "q1", "--rm")
    assert (result.exit_code, result.stdout, node.stopped) == (3, "", ["q1"])
    assert result.stderr.splitlines()[-1] == "  hint: start b again"


def test_a_follower_waits_for_a_consumer_once_it_has_followed(api: str, node: Any) -> None:
    node.script = [[frame(1, 1)], [SILENT_CONSUMER], [frame(1, 1), frame(2, 2), FINISHED]]
    result = run(api, "query", "follow", "q1")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)


def test_rows_are_aligned_lines_for_people(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    node.script = [[frame(1, 1, 22), FINISHED]]
    assert run(api, "submit", "select 1").stdout.splitlines() == [" x  name", " 1  r1", "22  r22"]


def test_values_neither_shift_columns_nor_control_the_terminal(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    rows = (("日本", 1234567.891), ("a\x1b[2J\nb", 0.1 + 0.2))
    node.script = [[delivery.Rows(stream="o1", number=1, columns=("x", "y"), rows=rows, watermark_ms=0, delay_ms=3), FINISHED]]
    said = run(api, "submit", "select 1").stdout.splitlines()
    assert said == ["x                      y", "日本         1234567.891", "a\\x1b[2J\\nb          0.3"]


def test_following_survives_lost_connections_without_loss_or_repetition(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "PAUSES_S", (0.0,))
    node.script = [
        [frame(1, 1), frame(1, 7, stream="o2"), None],
        [SbonError("already-followed", "the old connection is still there")],
        [SbonError("not-followable", "the sink is not open yet")],
        [frame(1, 1), frame(2, 2), FINISHED],
    ]
    result = run(api, "query", "follow", "q1")
    assert result.exit_code == 0
    assert [json.loads(line)["x"] for line in result.stdout.splitlines()] == [1, 7, 2]
    assert node.after == [{}, *[{"o1": 1, "o2": 1}] * 3]
    assert "lost the node" in result.stderr


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_the_reason_for_missing_rows_is_printed_once_from_the_record(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "ROWLESS_S", 0.05)
    node.reason = "no answer from b"
    node.script = [[frame(1, 1), 1.0, frame(2, 2), FINISHED]]
    result = run(api, "query", "follow", "q1")
    assert result.exit_code == 0
    assert result.stderr.count("no rows for 0 s: no answer from b") == 1
    node.reason, node.script = "", [[frame(1, 1), 1.0, frame(2, 2), FINISHED]]
    assert "no rows" not in run(api, "query", "follow", "q1").stderr


def test_a_source_without_rows_is_reported(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "ROWLESS_S", 0.05)
    node.sources = (reading("m1", "london", rows=3), reading("m6", "jfk"), reading("m7", "paris", state="idle"))
    node.script = [[1.0, frame(2, 2), FINISHED]]
    assert "no rows for 0 s: source m6/jfk at london has had no rows yet\n" in run(api, "query", "follow", "q1").stderr


def test_a_wait_for_a_file_reports_why_no_rows_arrive(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "ROWLESS_S", 0.05)
    answered, asked = node.query, list[str]()

    async def query(query_id: str) -> Any:
        asked.append(query_id)
        node.reason, node.state = ("", "finished") if len(asked) > 4 else ("source m6 at london: there is no file x", "running")
        return await answered(query_id)

    monkeypatch.setattr(node, "query", query)
    result = run(api, "submit", "select 1", "--to", "/x.csv", "--follow")
    assert result.exit_code == 0
    assert result.stderr.count("s: source m6 at london: there is no file x\n") == 1


@pytest.mark.parametrize(
    "command", [("query", "follow", "q1"), ("submit", "select 1"), ("submit", "select 1", "--to", "x.csv", "--follow")]
)
def test_unreadable_rows_are_reported_at_the_end(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    node.sources = (reading("m1", "london", rows=2, bad=5, too_large=2), reading("m2", "jfk", bad=1), reading("m3", "jfk"))
    node.state = "finished"
    node.script = [[frame(1, 1), FINISHED]]
    result = run(api, *command)
    assert result.exit_code == 0
    on_a_terminal(monkeypatch)
    assert result.stderr.splitlines()[-3:-1] == [
        "7 rows of m1 at london could not be read since it was attached; see sbon stream show m1",
        "1 row of m2/jfk at london could not be read since it was attached; see sbon stream show m2",
    ]
    assert "7 rows of m1 at london could not be read" in run(api, "query", "show", "q1").stdout


@pytest.mark.parametrize(
    "command", [("query", "follow", "q1"), ("submit", "select 1"), ("submit", "select 1", "--to", "x.csv", "--follow")]
)
def test_skipped_rows_are_reported_at_the_end(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    answered = node.query

    async def query(query_id: str) -> QueryInfo:
        info = await answered(query_id)
        return msgspec.structs.replace(info, operators=tuple(msgspec.structs.replace(o, skipped=3) for o in info.operators))

    monkeypatch.setattr(node, "query", query)
    node.state = "finished"
    node.script = [[frame(1, 1), FINISHED]]
    result = run(api, *command)
    assert (result.exit_code, result.stderr.splitlines()[-2]) == (
        0,
        "3 rows were skipped because expressions raised errors; see sbon query show q1",
    )


def test_a_follower_beside_others_has_a_sink_of_its_own_and_removes_it(api: str, node: Any) -> None:
    node.sink = SinkSpec(kind="file", options={"path": "/srv/x.csv"})
    node.sinks.shown = (SinkInfo(id="sink2", node="a", sink=SinkSpec(), state="running", begins_after=1200, temporary=True),)
    beside = [msgspec.structs.replace(frame(number, number), sink="sink2") for number in (1, 2)]
    node.script = [[beside[0], None], [beside[1], FINISHED]]
    result = run(api, "query", "follow", "q1")
    assert [json.loads(line)["x"] for line in result.stdout.splitlines()] == [1, 2]
    assert node.followed == ["any", "sink2"]
    assert set(node.acknowledged_sinks) == {"sink2"}
    assert node.sinks.removed == [("q1", "sink2")]
    assert "q1 has another reader: followed beside it as sink2, after the first 1,200 rows" in result.stderr
    assert "q1 finished: 2 rows" in result.stderr


def test_a_sink_that_was_added_for_followers_stays(api: str, node: Any) -> None:
    node.script = [[msgspec.structs.replace(frame(1, 1), sink="sink3"), FINISHED]]
    assert run(api, "query", "follow", "q1", "--sink", "sink3").exit_code == 0
    assert (node.followed, node.sinks.removed) == (["sink3"], [])


def test_neither_rows_that_come_seldom_nor_a_reader_that_takes_its_time_are_silence(api: str, node: Any) -> None:
    node.reason = "no answer from b"
    said, seldom = list[str](), count(step=15)
    node.script = [[frame(1, 1), frame(2, 2), frame(3, 3), CLOSED]]
    assert follow.Follower(Client(api), "q1", notice=said.append, now=lambda: next(seldom)).run() == ENDED
    now = 0.0

    def write(rows: Rows) -> None:
        nonlocal now
        time.sleep(0.5)  # the node says meanwhile that it lives
        now += 15.0

    node.script = [[frame(1, 1), 0.3, frame(2, 2), CLOSED]]
    assert follow.Follower(Client(api), "q1", write, said.append, now=lambda: now).run() == ENDED
    assert said == []


def test_without_reports_no_record_is_requested(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "ROWLESS_S", 0.0)
    answered, asked = node.query, list[str]()

    async def query(query_id: str) -> Any:
        asked.append(query_id)
        return await answered(query_id)

    monkeypatch.setattr(node, "query", query)
    node.script = [[0.3, frame(1, 1), FINISHED], [1.5, frame(1, 1), FINISHED]]
    follow.Follower(Client(api), "q1").run()
    assert asked == []
    follow.Follower(Client(api), "q1", notice=lambda text: None).run()
    assert asked


def test_only_comments_are_idle(api: str, node: Any) -> None:
    heard: list[object] = []
    node.script = [[frame(1, 1), frame(2, 2), 0.5, frame(3, 3), CLOSED]]
    for event in Client(api).rows("q1", idle=lambda: heard.append("idle")):
        if isinstance(event, Rows):
            heard.append(event.number)
    assert [what for what, _ in groupby(heard)] == [1, 2, "idle", 3]


def test_silence_is_checked_ever_less_often_and_reported_when_the_reason_changes() -> None:
    now, said, asked = 0.0, list[str](), list[float]()
    reasons = {9: "no answer from b", 18: "no answer from b", 36: "", 72: "no answer from b"}

    def ask() -> str:
        asked.append(now)
        return reasons.get(int(now), "o1 at c: its engine starts")

    silence = follow.Silence(ask, said.append, lambda: now)
    for second in range(3_600):
        now = float(second)
        silence.lasts()
    assert asked[:5] == [9, 18, 36, 72, 144]
    assert max(later - earlier for earlier, later in pairwise(asked)) == follow.LONGEST_ROWLESS_S
    assert said == [
        "no rows for 9 s: no answer from b",
        "no rows for 72 s: no answer from b",
        "no rows for 144 s: o1 at c: its engine starts",
    ]
    silence.broken()
    now += follow.ROWLESS_S
    silence.lasts()
    assert said[-1] == "no rows for 9 s: o1 at c: its engine starts"


def test_a_query_that_ended_meanwhile_is_reported_from_its_record(api: str, node: Any) -> None:
    node.state = "stopped"
    node.script = [[SbonError("not-followable", "no sink")]]
    result = run(api, "query", "follow", "q1")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "q1 stopped: 0 rows" in result.stderr


def test_the_record_of_a_query_with_a_sink_has_the_count_of_rows(api: str, node: Any) -> None:
    node.state, node.sink = "stopped", SinkSpec(kind="file", options={"path": "/srv/rows.csv"})
    node.script = [[SbonError("not-followable", "no sink")]]
    result = run(api, "query", "follow", "q1")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == ["q1 stopped: 3 rows delivered to file"]


@pytest.mark.parametrize(
    "sink, told",
    [(SinkSpec(), "q1 finished: 2 rows"), (SinkSpec(kind="file", options={}), "q1 finished: 2 rows")],
)
def test_a_query_whose_record_is_away_at_its_end_has_ended_well(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch, sink: SinkSpec, told: str
) -> None:
    answered, asked = node.query, list[str]()

    async def query(query_id: str) -> Any:
        asked.append(query_id)
        if len(asked) > 1:
            raise SbonError("holder-unreachable", "no answer from b, which holds q1")
        return await answered(query_id)

    monkeypatch.setattr(node, "query", query)
    node.sink, node.script = sink, [[frame(1, 1, 2), FINISHED]]
    result = run(api, "query", "follow", "q1")
    assert (result.exit_code, len(asked), result.stderr.splitlines()) == (0, 2, [told])


def test_a_failed_query_is_code_1(api: str, node: Any) -> None:
    node.script = [[frame(1, 1), Finished(state="failed", reason="o1 at b: disk full")]]
    result = run(api, "query", "follow", "q1")
    assert result.exit_code == 1
    assert "q1 failed: o1 at b: disk full" in result.stderr


def test_a_sink_that_was_closed_is_asked_about_at_the_record(api: str, node: Any) -> None:
    node.state = "failed"
    node.script = [[frame(1, 1), Finished(state="stopped")]]
    result = run(api, "query", "follow", "q1")
    assert result.exit_code == 1
    assert "q1 failed" in result.stderr


def test_someone_else_follows_already(api: str, node: Any) -> None:
    node.script = [[SbonError("already-followed", "somebody follows q1 already")]]
    result = run(api, "query", "follow", "q1")
    assert result.exit_code == 1
    assert "somebody follows q1 already" in result.stderr


@pytest.mark.parametrize("tied, stopped", [((), []), (("--rm",), ["q1"])])
def test_ctrl_c_detaches_and_with_rm_stops(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch, tied: tuple[str, ...], stopped: list[str]
) -> None:
    def interrupted(writer: object, written: Rows) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sbon_cli.commands.queries.rows.NdjsonWriter.__call__", interrupted)
    node.script = [[frame(1, 1), FINISHED]]
    result = run(api, "submit", "select 1", *tied)
    assert result.exit_code == 130
    assert node.stopped == stopped
    assert node.acknowledged == []


def test_ctrl_c_before_a_query_is_accepted_says_where_to_look(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(client: object, submission: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("sbon_cli.client.Client.submit", interrupted)
    result = run(api, "submit", "select 1")
    assert (result.exit_code, result.stdout) == (130, "")
    assert "interrupted before the query was accepted" in result.stderr
    assert "sbon query list" in result.stderr


def test_a_stop_that_is_not_answered_is_given_up_and_the_query_is_named(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node gives signs of life, and its answer waits for another node; the command asks once."""

    async def stop(query_id: str) -> None:
        node.stopped.append(query_id)
        await asyncio.Event().wait()

    def interrupted(writer: object, written: Rows) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(node, "stop_query", stop)
    monkeypatch.setattr("sbon_cli.commands.queries.rows.STOP_S", 2.0)
    monkeypatch.setattr("sbon_cli.commands.queries.rows.NdjsonWriter.__call__", interrupted)
    node.script = [[frame(1, 1), FINISHED]]
    result = run(api, "submit", "select 1", "--rm")
    assert (result.exit_code, node.stopped) == (130, ["q1"])
    last = "cannot stop q1: no answer within 2 s; q1 may still run; to stop it: sbon query stop q1"
    assert result.stderr.splitlines()[-1] == last


def test_rows_that_nobody_acknowledges_do_not_hold_up_a_stop(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node gives signs of life, and its answer waits for another node; the command asks once."""
    asked: list[dict[str, int]] = []

    async def acknowledge(query_id: str, numbers: dict[str, int], sink: str = "", word: str = "") -> None:
        asked.append(numbers)
        await asyncio.Event().wait()

    def interrupted(writer: object, written: Rows) -> None:
        if written.number > 1:
            wait_for(lambda: asked, "the first frame is acknowledged")
            raise KeyboardInterrupt

    monkeypatch.setattr(node, "acknowledge", acknowledge)
    monkeypatch.setattr("sbon.synchronous.CLOSE_S", 0.2)
    monkeypatch.setattr("sbon_cli.commands.queries.rows.NdjsonWriter.__call__", interrupted)
    node.script = [[frame(1, 1), frame(2, 2), FINISHED]]
    result = run(api, "submit", "select 1", "--rm")
    assert (result.exit_code, node.stopped, asked) == (130, ["q1"], [{"o1": 1}])


NO_QUERY, NO_ANSWER = SbonError("unknown-query", "there is no query 'q1'"), SbonError("no-majority", "b is silent")
INTERRUPTED = "interrupted before the query was accepted"


@pytest.mark.parametrize(
    "tied, answer, told",
    [
        ((), NO_QUERY, [f"{INTERRUPTED}; it does not stay"]),
        (("--rm",), NO_QUERY, [INTERRUPTED, "q1 does not stay"]),
        (
            ("--rm",),
            NO_ANSWER,
            [INTERRUPTED, "cannot stop q1: b is silent; q1 may still run; to stop it: sbon query stop q1"],
        ),
    ],
    ids=["untied", "given up", "unknown"],
)
def test_ctrl_c_before_a_query_is_accepted_says_once_whether_it_stays(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch, tied: tuple[str, ...], answer: SbonError, told: list[str]
) -> None:
    def interrupted(client: object, submission: object) -> Iterator[Progress]:
        yield Progress(step="placing", message="placing 1 operator", query="q1")
        raise KeyboardInterrupt

    async def stop(query_id: str) -> None:
        raise answer

    monkeypatch.setattr("sbon_cli.client.Client.submit", interrupted)
    monkeypatch.setattr(node, "stop_query", stop)
    result = run(api, "submit", "select 1", *tied)
    assert (result.exit_code, result.stderr.splitlines()) == (130, told)
