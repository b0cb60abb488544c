"""The overlay from Python: typed rows, each once; named wrong arguments; other tasks continue."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import sbon
from sbon import connect, connect_async, follower, model
from sbon.schema import Tables
from sbon.synchronous import run
from sbon_node.api.encoding import encode
from sbon_protocol.api.columns import Column
from sbon_protocol.api.delivery import Rows
from sbon_protocol.api.plan import Plan
from sbon_protocol.api.queries import QueryProgress, Unanswered
from sbon_protocol.errors import SbonError
from tests.api.scripted_node import WAIT
from tests.cli.commands import FINISHED, frame

SCHEMA = (Column("x", "bigint"), Column("name", "string"))
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False, None],
    "tinyint": [-128, 127, None],
    "bigint": [-(2**63), 2**63 - 1, None],
    "float": [0.5, -math.inf, None],
    "double": [1e300, math.inf, None],
    "string": ["", 'nöte "\n', None],
    "binary": [b"", b"\x00\xff", None],
    "date": [date(1969, 12, 31), date(2024, 2, 29), None],
    "timestamp": [datetime(1970, 1, 1, tzinfo=UTC), datetime(2013, 6, 1, 12, 30, 0, 123456, tzinfo=UTC), None],
    "decimal(20,3)": [Decimal("12345678901234567.125"), Decimal("-0.001"), None],
}


@pytest.fixture
def planned(node: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scripted node, whose query has a plan with the frames' schema."""
    plan = Plan(text="select 1", sources=(), operators=(), outputs=(), schema=SCHEMA)
    told = node.query

    async def query(query_id: str) -> Any:
        return msgspec.structs.replace(await told(query_id), plan=plan)

    monkeypatch.setattr(node, "query", query)
    return node


@pytest.mark.parametrize("type_", VALUES)
def test_values_are_what_they_were_before_the_api_wrote_them_as_json(type_: str) -> None:
    values = VALUES[type_]
    frame = Rows(stream="o", number=1, columns=("v",), rows=tuple((v,) for v in values), watermark_ms=0, delay_ms=0)
    sent = msgspec.json.decode(encode(frame), type=model.Rows)
    assert Tables((model.Column("v", type_),)).of(sent).column("v").to_pylist() == values


ENDLESS = QueryProgress(rows_in=1, rows_out=None, read_share=None, endless=("clicks at paris",))
DIVIDED = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012 in 1 / n"


def test_numbers_that_are_none_are_none() -> None:
    frame = Rows(stream="o", number=1, columns=("v",), rows=((math.nan,),), watermark_ms=0, delay_ms=0)
    sent = msgspec.json.decode(encode(frame), type=model.Rows)
    assert math.isnan(Tables((model.Column("v", "double"),)).of(sent).column("v").to_pylist()[0])


@pytest.mark.parametrize("rows, columns", [((("a",),), ("v",)), (((1,),), ("w",))])
def test_a_frame_that_is_not_of_the_schema_is_refused(rows: Any, columns: tuple[str, ...]) -> None:
    wrong = model.Rows(stream="o", number=7, columns=columns, rows=rows, watermark_ms=0, delay_ms=0)
    with pytest.raises(SbonError, match="frame 7 is not what was planned"):
        Tables((model.Column("v", "bigint"),)).of(wrong)


def test_rows_come_as_dicts_tables_and_frames(api: str, planned: Any) -> None:
    planned.script = [[frame(1, 1, 2), frame(2), frame(3, 3), FINISHED]] * 3
    with connect(api) as overlay:
        query = overlay.sql("select 1", strategy="relaxation", max_delay_ms=80.0)
        assert (planned.submitted[0].strategy, planned.submitted[0].max_delay_ms) == ("relaxation", 80.0)
        assert list(query) == [{"x": i, "name": f"r{i}"} for i in (1, 2, 3)]
        assert planned.acknowledged[-1] == {"o1": 3}
        table = overlay.query("q1").to_arrow()
        assert table.schema == pa.schema([("x", pa.int64()), ("name", pa.string())])
        assert table.column("x").to_pylist() == [1, 2, 3]
        assert overlay.query("q1").to_pandas()["name"].tolist() == ["r1", "r2", "r3"]


def test_rows_in_work_are_not_acknowledged(api: str, planned: Any) -> None:
    planned.script = [[frame(1, 1), frame(2, 2), FINISHED]]
    tables = connect(api).query("q1").tables()
    assert [next(tables).num_rows, next(tables).num_rows] == [1, 1]
    tables.close()
    assert planned.acknowledged == [{"o1": 1}]


def test_a_query_that_fails_says_why(api: str, planned: Any) -> None:
    planned.script = [[frame(1, 1), msgspec.structs.replace(FINISHED, state="failed", reason="no more memory")]]
    with pytest.raises(SbonError, match="no more memory") as failed:
        connect(api).query("q1").to_arrow()
    assert failed.value.code == "query-failed"


@pytest.mark.parametrize(
    "reason, message, hint",
    [
        (f"o1: {DIVIDED} (sbon submit --on-error skip, or null, continues after such rows)", f"o1: {DIVIDED}", 'on_error="skip"'),
        (DIVIDED, DIVIDED, 'on_error="skip"'),
        ("no more memory", "no more memory", "info()"),
    ],
)
def test_a_query_that_fails_says_what_to_do(api: str, planned: Any, reason: str, message: str, hint: str) -> None:
    planned.script = [[msgspec.structs.replace(FINISHED, state="failed", reason=reason)]]
    with pytest.raises(SbonError) as failed:
        connect(api).query("q1").to_arrow()
    assert failed.value.message == message
    assert hint in failed.value.hint


@pytest.mark.parametrize(
    "goal_options, message",
    [
        ({"stratgy": "opb"}, r"there is no field 'stratgy' \(did you mean strategy\?\)"),
        ({"max_delay": "80ms"}, r"there is no field 'max_delay' \(did you mean max_delay_ms\?\)"),
        ({"max_delay_ms": "80ms"}, "max_delay_ms: must be a number or nothing, and is text: milliseconds, 5000 for 5 s"),
        ({"join_window_ms": "10s"}, "join_window_ms: must be a whole number or nothing, and is text: milliseconds"),
    ],
)
def test_wrong_arguments_are_named(api: str, node: Any, goal_options: dict[str, Any], message: str) -> None:
    with pytest.raises(SbonError, match=message):
        connect(api).sql("select 1", **goal_options)
    assert node.submitted == []


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a stream": (lambda overlay: overlay.stream(5), "^name: a text is needed, not int"),
    "a dropped stream": (lambda overlay: overlay.drop_stream(None), "^name: a text is needed, not NoneType"),
    "a pushed stream": (lambda overlay: overlay.push(5, [{"n": 1}]), "^stream: a text is needed, not int"),
    "a stream of a source": (lambda overlay: overlay.attach(5, "http"), "^stream: a text is needed, not int"),
    "a source": (lambda overlay: overlay.detach("flights", 5), "^source: a text is needed, not int"),
    "a query": (lambda overlay: overlay.query(b"q1"), "^query_id: a text is needed, not bytes"),
    "a schema": (lambda overlay: overlay.create_stream("s", {"ts": "timestamp"}), "schema: a text is needed, not dict"),
    "a result": (lambda overlay: overlay.create_stream(5, as_="SELECT 1"), "name: a text is needed, not int"),
    "a path": (lambda overlay: overlay.request("GET", 5), "path: a text is needed, not int"),
    "an option": (lambda overlay: overlay.sql("SELECT 1", name=object()), "^name: no JSON: object is no type of it"),
    "an option of a source": (lambda overlay: overlay.attach("f", "http", keys={1j}), "^keys: no JSON: complex is no type of it"),
    "a body": (lambda overlay: overlay.request("POST", "/v1/doctor", 1j), "^request: no JSON: complex is no type of it"),
}


@pytest.mark.parametrize("argument", WRONG)
async def test_arguments_of_a_wrong_type_are_named(api: str, node: Any, argument: str) -> None:
    call, message = WRONG[argument]
    with pytest.raises(SbonError, match=message) as refused:
        call(connect(api))
    assert (refused.value.code, bool(refused.value.hint)) == ("bad-request", True)
    with pytest.raises(SbonError, match=message):
        await call(await connect_async(api))
    assert [node.submitted, node.attached, node.declared, node.stopped] == [[]] * 4


@pytest.mark.parametrize("address", [5, None, b"http://127.0.0.1:7480", ["http://127.0.0.1:7480"]])
async def test_an_address_that_is_no_text_is_named(address: Any) -> None:
    said = f"api: a text is needed, not {type(address).__name__}"
    for kind in (connect, sbon.Client):
        with pytest.raises(SbonError, match=said):
            kind(address)
    with pytest.raises(SbonError, match=said):
        await connect_async(address)
    with pytest.raises(SbonError, match="is not the URL of a node's API") as refused:
        connect("ftp://paris")
    assert (refused.value.code, refused.value.where) == ("bad-address", "api")


NO_COUNTS: list[Any] = [2.5, Decimal("5"), "3", 0, -1, math.nan]


@pytest.mark.parametrize("rows", NO_COUNTS, ids=repr)
async def test_rows_are_counted_in_whole_numbers(api: str, planned: Any, rows: Any) -> None:
    query, again = connect(api).query("q1"), await (await connect_async(api)).query("q1")
    said = re.escape(f"rows: a whole number above 0 is needed, not {rows!r}")
    with pytest.raises(SbonError, match=said) as refused:
        query.to_arrow(rows=rows)
    with pytest.raises(SbonError, match=said):
        await again.to_pandas(rows=rows)
    assert (refused.value.code, planned.followed) == ("bad-request", [])


def test_paths_and_numbers_of_numpy_are_values_of_requests(api: str, node: Any) -> None:
    overlay = connect(api)
    overlay.attach("flights", "file", path=Path("/srv/flights.csv"))
    assert node.attached[0].options == {"path": "/srv/flights.csv"}
    overlay.sql("SELECT 1", max_delay_ms=np.float64(80), join_window_ms=np.int64(5000))
    assert (node.submitted[0].max_delay_ms, node.submitted[0].join_window_ms) == (80.0, 5000)


def test_an_absent_node_is_reported_at_once() -> None:
    with pytest.raises(SbonError) as refused:
        connect("http://127.0.0.1:1")
    assert refused.value.code == "node-unreachable"


def test_an_address_whose_name_cannot_be_resolved_is_named_as_such() -> None:
    with pytest.raises(
        SbonError, match=r"no node answers at http://no-such-host.invalid:7480: its name cannot be resolved: "
    ) as refused:
        connect("http://no-such-host.invalid:7480")
    assert refused.value.code == "node-unreachable"


async def test_other_tasks_run_while_rows_are_awaited(api: str, planned: Any) -> None:
    planned.script = [[frame(1, 1), frame(2, 2), FINISHED]]
    overlay = await connect_async(api)
    query = await overlay.sql("select 1")
    assert [row["x"] async for row in query] == [1, 2]
    assert [member.name for member in await overlay.members()] == ["a", "b"]
    assert (await query.query_usage()).query == "q1"
    assert (await query.move("b0", "paris")).node == "paris"
    assert (await query.cancel_move("b0")).node == "b"
    assert (await query.add_sink(model.SinkSpec(kind="blackhole"), consumer="paris", begin="now")).id == "sink2"
    assert (await query.remove_sink("sink2")).id == "sink2"


async def test_a_task_that_is_given_up_leaves_its_socket_and_no_thread_behind(api: str, planned: Any) -> None:
    planned.script = [[frame(1, 1), WAIT], [frame(2, 2), FINISHED]]
    threads = threading.active_count()
    async with connect_async(api) as overlay:
        query = await overlay.query("q1")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(query.to_arrow(), 0.5)
        assert threading.active_count() == threads
        assert (await query.to_arrow()).column("x").to_pylist() == [1, 2]


async def test_rows_that_a_call_which_was_given_up_had_collected_are_the_first_of_the_next(api: str, planned: Any) -> None:
    """They are acknowledged: the node does not send them again."""
    planned.script = [[frame(1, 1), frame(2, 2), WAIT], [frame(3, 3), FINISHED], [FINISHED]]
    async with connect_async(api) as overlay:
        query = await overlay.query("q1")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(query.to_arrow(), 0.5)
        assert [row["x"] async for row in query] == [1, 2, 3]


@pytest.mark.parametrize("first", [lambda query: list(query), lambda query: query.to_pandas()], ids=["one by one", "at once"])
@pytest.mark.parametrize("second", [lambda query: list(query), lambda query: query.to_pandas()], ids=["one by one", "at once"])
def test_rows_that_have_been_taken_are_not_said_to_be_none(
    api: str, planned: Any, first: Callable[[Any], object], second: Callable[[Any], object]
) -> None:
    planned.script = [[frame(1, 1), frame(2, 2), FINISHED], [FINISHED]]
    query = connect(api).query("q1")
    assert len(first(query)) == 2  # type: ignore[arg-type]
    with pytest.raises(SbonError, match="the rows of this query have been taken") as refused:
        second(query)
    assert refused.value.code == "rows-taken"


async def test_all_rows_of_a_query_without_an_end_are_refused(api: str, planned: Any) -> None:
    planned.progress, planned.script = ENDLESS, [[frame(1, 1), FINISHED]]
    query, again = connect(api).query("q1"), await (await connect_async(api)).query("q1")
    said = r"q1: the query never has all of its rows; no end: clicks at paris \(take the next ones with rows="
    for collect in (query.to_arrow, query.to_pandas):
        with pytest.raises(SbonError, match=said) as refused:
            collect()
        assert refused.value.code == "query-not-over"
    with pytest.raises(SbonError, match=said):
        await again.to_arrow()
    assert planned.followed == []
    query.stop()
    assert query.to_arrow().num_rows == 1


async def test_the_next_rows_of_a_query_without_an_end_are_taken(api: str, planned: Any) -> None:
    """Rows of the last frame that were not asked for are the first of the next call; all of them are acknowledged."""
    planned.progress = ENDLESS
    planned.script = [[frame(1, 1, 2), frame(2, 3, 4), WAIT], [frame(3, 5), WAIT], [frame(4, 6), FINISHED]] * 2
    for query in (connect(api).query("q1"), await (await connect_async(api)).query("q1")):
        for rows, values, acknowledged in ((3, [1, 2, 3], 2), (1, [4], 2), (1, [5], 3), (9, [6], 4)):
            table = query.to_arrow(rows=rows)
            assert (table if isinstance(table, pa.Table) else await table).column("x").to_pylist() == values
            assert planned.acknowledged[-1] == {"o1": acknowledged}


@pytest.mark.parametrize("rest", [lambda query: query.to_pandas()["x"].tolist(), lambda query: [row["x"] for row in query]])
def test_rows_beyond_those_asked_for_are_not_lost_at_the_end(api: str, planned: Any, rest: Callable[[Any], list[int]]) -> None:
    planned.script = [[frame(1, 1, 2, 3), FINISHED], [FINISHED]]
    query = connect(api).query("q1")
    assert query.to_pandas(rows=2)["x"].tolist() == [1, 2]
    assert rest(query) == [3]
    with pytest.raises(SbonError, match="the rows of this query have been taken"):
        query.to_arrow(rows=1)


async def test_rows_beyond_those_asked_for_come_again_where_a_reader_left_off(api: str, planned: Any) -> None:
    """They are acknowledged: the node does not send them again."""
    planned.script = [[frame(1, 1, 2, 3), WAIT], [frame(1, 1, 2, 3), WAIT]]
    query, again = connect(api).query("q1"), await (await connect_async(api)).query("q1")
    assert [row["x"] for row in query.to_arrow(rows=np.int64(1)).to_pylist()] == [1]
    for row in query:
        assert row["x"] == 2
        break
    assert query.to_arrow(rows=2).column("x").to_pylist() == [2, 3]
    assert (await again.to_arrow(rows=1)).column("x").to_pylist() == [1]
    async with aclosing(again.tables()) as tables:
        assert (await anext(tables)).column("x").to_pylist() == [2, 3]
    assert (await again.to_arrow(rows=2)).column("x").to_pylist() == [2, 3]


@pytest.mark.parametrize("then, values", [([frame(1, 1), frame(2, 2), FINISHED], [2]), ([FINISHED], [])], ids=["more", "none"])
def test_rows_whose_acknowledgement_failed_do_not_come_twice(api: str, planned: Any, then: list[Any], values: list[int]) -> None:
    """The next call acknowledges them, also where it has no rows: without that the query would not end."""
    planned.script = [[frame(1, 1), WAIT], then]
    planned.refuse_acknowledgements = [SbonError("disk-full", "no space for more")] * 99
    query = connect(api).query("q1")
    assert query.to_arrow(rows=1).column("x").to_pylist() == [1]
    assert planned.acknowledged == []
    planned.refuse_acknowledgements = []
    assert query.to_arrow(rows=9).column("x").to_pylist() == values
    assert (planned.after, planned.acknowledged[0].keys()) == ([{}, {"o1": 1}], {"o1"})


async def test_a_restart_between_two_calls_is_survived_for_as_long_as_within_one(
    api: str, planned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "FIRST_PATIENCE_S", 0.0)
    starting = [SbonError("starting", "the node starts")]
    planned.script = [[frame(1, 1), WAIT], starting, starting, [frame(2, 2), WAIT]] * 2
    for query in (connect(api).query("q1"), await (await connect_async(api)).query("q1")):
        for value in (1, 2):
            table = query.to_arrow(rows=1)
            assert (table if isinstance(table, pa.Table) else await table).column("x").to_pylist() == [value]


def test_another_follower_is_not_waited_for_as_a_restart_is(api: str, planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "FIRST_PATIENCE_S", 0.0)
    taken = [SbonError("already-followed", "another follower reads the query")]
    planned.script = [[frame(1, 1), WAIT], taken, taken, [frame(2, 2), WAIT]]
    query = connect(api).query("q1")
    assert query.to_arrow(rows=1).num_rows == 1
    with pytest.raises(SbonError, match="another follower reads the query"):
        query.to_arrow(rows=1)


def test_a_query_without_rows_has_none_each_time(api: str, planned: Any) -> None:
    planned.script = [[FINISHED], [FINISHED]]
    query = connect(api).query("q1")
    assert [query.to_arrow().num_rows for _ in range(2)] == [0, 0]


async def test_a_closed_connection_says_that_it_is_closed(api: str, planned: Any) -> None:
    planned.script = [[frame(1, 1), FINISHED], [frame(1, 1), FINISHED]]
    with connect(api) as overlay:
        query = overlay.query("q1")
    async with connect_async(api) as other:
        again = await other.query("q1")
    calls: list[Callable[[], Any]] = [
        *(overlay.status, lambda: overlay.sql("select 1"), query.to_pandas, lambda: list(query), query.info),
        *(lambda: asyncio.run(other.status()), lambda: asyncio.run(again.to_arrow())),
    ]
    for call in calls:
        with pytest.raises(SbonError, match=f"the connection to {api} is closed") as refused:
            await asyncio.to_thread(call)
        assert refused.value.code == "connection-closed"


@pytest.mark.parametrize(
    "taken",
    [lambda query: query.to_arrow().column("x").to_pylist(), lambda query: [row["x"] for row in query]],
    ids=["as a table", "row by row"],
)
def test_rows_that_an_interrupted_call_had_collected_are_the_first_of_the_next(
    api: str, planned: Any, monkeypatch: pytest.MonkeyPatch, taken: Callable[[Any], list[int]]
) -> None:
    planned.script = [[frame(1, 1), frame(2, 2), FINISHED], [FINISHED]]
    query = connect(api).query("q1")
    arrived = Tables.of

    def interrupted(tables: Tables, rows: model.Rows) -> pa.Table:
        if rows.number == 2 and planned.script:
            raise KeyboardInterrupt
        return arrived(tables, rows)

    with monkeypatch.context() as patched:
        patched.setattr(Tables, "of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            query.to_arrow()
    assert taken(query) == [1]


async def test_a_query_that_is_over_is_not_shown_as_it_was_before(api: str, planned: Any) -> None:
    """The record heard last tells of no rows, or of fewer."""
    planned.script = [[frame(1, 1), FINISHED], [frame(1, 1), FINISHED]]
    query, again = connect(api).query("q1"), await (await connect_async(api)).query("q1")
    assert "rows" in repr(query)
    assert (query.to_arrow().num_rows, (await again.to_arrow()).num_rows) == (1, 1)
    for shown in (repr(query), repr(again)):
        assert " q1 finished at a, 0 s ago" in shown


async def test_a_query_whose_rows_ended_in_a_failure_knows_that_it_failed(api: str, planned: Any) -> None:
    failed = msgspec.structs.replace(FINISHED, state="failed", reason="no more memory")
    planned.script = [[failed], [failed]]
    query, again = connect(api).query("q1"), await (await connect_async(api)).query("q1")
    with pytest.raises(SbonError, match="no more memory"):
        query.to_arrow()
    with pytest.raises(SbonError, match="no more memory"):
        await again.to_arrow()
    assert (query.state, again.state) == ("failed", "failed")


def test_a_program_ends_though_a_query_does_not(api: str, planned: Any) -> None:
    """In a process of its own: one that is stuck would stay."""
    planned.script = [[frame(1, 1), WAIT]]
    program = f"""
import asyncio
from sbon import connect_async

async def main():
    overlay = await connect_async({api!r})
    query = await overlay.query("q1")
    try:
        await asyncio.wait_for(query.to_arrow(), 0.5)
    except TimeoutError:
        print("timed out")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("timed out\n", "", 0)


async def test_a_query_in_a_block_is_stopped_at_its_end_unless_it_is_over(api: str, planned: Any) -> None:
    async with connect_async(api) as overlay:
        async with await overlay.sql("select 1") as query:
            assert query.state == "running"
        assert (planned.stopped, query.state) == (["q1"], "stopped")
    planned.state, planned.script = "running", [[FINISHED]]
    with connect(api) as blocking, blocking.sql("select 1") as over:
        assert list(over) == []
    assert (planned.stopped, over.state) == (["q1"], "finished")
    planned.state = "running"
    with connect(api) as blocking, blocking.sql("select 1") as endless:
        assert endless.state == "running"
    assert (planned.stopped, endless.state) == (["q1"] * 2, "stopped")


async def test_a_query_is_not_waited_for_longer_than_asked(api: str, planned: Any) -> None:
    planned.progress = ENDLESS
    query, again = connect(api).query("q1"), await (await connect_async(api)).query("q1")
    said = r"q1: the query is running after 0\.1 s; no end: clicks at paris \(wait again, or end it"
    with pytest.raises(SbonError, match=said) as refused:
        query.wait(timeout_s=0.1)
    assert (refused.value.code, planned.stopped) == ("query-not-over", [])
    with pytest.raises(SbonError, match=said):
        await again.wait(0.1)
    for wrong in (0, -1.0, "1", math.nan, Decimal("1")):
        with pytest.raises(SbonError, match="a finite int or float above 0 is needed, not ") as named:
            query.wait(wrong)
        assert named.value.where == "timeout_s"
    planned.state = "finished"
    assert (query.wait().state, (await again.wait(timeout_s=5)).state) == ("finished", "finished")


async def test_a_node_that_is_slow_to_tell_a_querys_state_is_not_waited_for_longer_either(
    api: str, planned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, again = connect(api).query("q1"), await (await connect_async(api)).query("q1")
    quick, planned.state = planned.query, "finished"

    async def slow(query_id: str) -> Any:
        await asyncio.sleep(2.0)
        return await quick(query_id)

    monkeypatch.setattr(planned, "query", slow)
    said = r"q1: the query is running after 0\.3 s \(wait again"
    with pytest.raises(SbonError, match=said) as refused:
        query.wait(timeout_s=0.3)
    assert refused.value.code == "query-not-over"
    with pytest.raises(SbonError, match=said):
        await again.wait(0.3)
    assert (query.wait(60).state, (await again.wait()).state) == ("finished", "finished")


async def test_a_refusal_ends_the_wait_for_a_query(api: str, planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(query_id: str) -> Any:
        raise SbonError("unknown-query", f"there is no query {query_id}")

    query, again = connect(api).query("q1"), await (await connect_async(api)).query("q1")
    monkeypatch.setattr(planned, "query", unknown)
    with pytest.raises(SbonError, match="there is no query q1"):
        query.wait(timeout_s=0.3)
    with pytest.raises(SbonError, match="there is no query q1"):
        await again.wait(0.3)


async def test_a_query_tells_its_state_and_how_old_that_is(api: str, planned: Any) -> None:
    query = connect(api).query("q1")
    assert repr(query) == "<Query q1 running, 3 rows at a, 0 s ago: SELECT * FROM flights>"
    planned.state, planned.reason = "failed", "no more memory"
    query.info()
    assert "q1 failed (no more memory), 3 rows" in repr(query)
    overlay = await connect_async(api)
    assert repr(await overlay.query("q1")).startswith("<AsyncQuery q1 failed")
    assert repr(overlay) == f"<AsyncConnection to {api}>"


async def test_a_table_without_any_column_of_the_stream_is_not_sent(api: str, node: Any) -> None:
    overlay, again = connect(api), await connect_async(api)
    wrong = pd.DataFrame({"time": [1], "late": [2.5]})
    said = r"rows: the rows have no column of flights \(its columns: ts, delay; those of the rows: time, late\)"
    with pytest.raises(SbonError, match=said) as refused:
        overlay.push("flights", wrong)
    assert refused.value.code == "missing-columns"
    with pytest.raises(SbonError, match=said):
        await again.push("flights", pa.Table.from_pandas(wrong).to_reader())
    assert node.pushed == []
    for rows in (wrong.rename(columns={"late": "delay"}), pa.table({"delay": [3], "time": ["9:00"]}).to_reader()):
        assert overlay.push("flights", rows).rows == 1
    assert overlay.push("flights", [{"time": 1}]).rows == 1
    assert node.pushed == [b'{"time":1,"delay":2.5}\n', b'{"delay":3,"time":"9:00"}\n', b'{"time":1}\n']
    assert node.described == ["flights"] * 2


async def test_streams_are_detached_and_dropped(api: str, node: Any) -> None:
    with connect(api) as overlay:
        overlay.detach("flights", "jfk")
        overlay.detach("flights")
        overlay.drop_stream("flights")
        assert overlay.stream("flights").sources[0].rows == 12
        assert overlay.request("GET", "/v1/status")["name"] == "a"
    async with connect_async(api) as again:
        await again.detach("flights")
        await again.drop_stream("flights")
        assert (await again.stream("flights")).entry.declaration.event_time == "ts"
    assert node.stopped == ["flights/jfk", "flights/a", "flights", "flights/a", "flights"]


async def test_a_stream_may_be_the_result_of_a_query(api: str, node: Any) -> None:
    wrong = {"schema": "ts timestamp", "event_time": "ts", "delay_ms": 1, "comment": "of more"}
    with connect(api) as overlay:
        made = await asyncio.to_thread(overlay.create_stream, "very_late", as_="SELECT ts FROM flights")
        for name, value in wrong.items():
            with pytest.raises(SbonError, match="leave out schema") as refused:
                overlay.create_stream("late", as_="SELECT ts FROM flights", **{name: value})
            assert refused.value.code == "bad-request"
    async with connect_async(api) as overlay:
        assert await overlay.create_stream("very_late", as_="SELECT ts FROM flights") == made
    assert [(one.name, one.sql, one.sink.kind, one.sink.options) for one in node.submitted] == [
        ("very-late", "SELECT ts FROM flights", "stream", {"stream": "very_late"})
    ] * 2
    assert not node.declared


async def test_the_nodes_of_a_list_that_did_not_answer_are_named(api: str, node: Any) -> None:
    node.unanswered = [Unanswered("new-york", "dead")]
    assert connect(api).queries().unanswered == (model.Unanswered("new-york", "dead"),)
    assert (await (await connect_async(api)).queries()).unanswered == (model.Unanswered("new-york", "dead"),)


async def test_rows_that_arrive_at_another_node_are_read_at_the_node_asked(api: str, planned: Any) -> None:
    planned.consumer, planned.consumer_api = "b", "127.0.0.1:1"
    planned.script = [[frame(1, 1), FINISHED], [frame(1, 1), FINISHED]]
    assert connect(api).query("q1").to_arrow().num_rows == 1
    assert (await (await (await connect_async(api)).query("q1")).to_arrow()).num_rows == 1


async def test_leaving_off_in_the_middle_lets_the_next_one_follow(api: str, planned: Any) -> None:
    planned.script = [[frame(1, 1), frame(2, 2), FINISHED], [frame(2, 2), FINISHED]]
    query = await (await connect_async(api)).query("q1")
    before = asyncio.all_tasks()
    async for table in query.tables():
        assert table.num_rows == 1
        break
    while asyncio.all_tasks() - before:  # noqa: ASYNC110  that the first one ends
        await asyncio.sleep(0.01)
    assert (await query.to_arrow()).num_rows == 1


def test_help_names_types_as_the_package_exports_them() -> None:
    assert str(inspect.signature(sbon.Client.create_stream)) == "(self, declaration: 'StreamDeclaration') -> 'StreamInfo'"
    signatures = [inspect.signature(method) for method in vars(sbon.Client).values() if hasattr(method, "__signature__")]
    assert (len(signatures) > 20, [one for one in signatures if "model." in str(one)]) == (True, [])


@pytest.mark.parametrize("blocking, asynchronous", [(sbon.Connection, sbon.AsyncConnection), (sbon.Query, sbon.AsyncQuery)])
def test_both_kinds_have_the_same_calls(blocking: type, asynchronous: type) -> None:
    def calls(kind: type) -> dict[str, list[str]]:
        methods = {name: one for name, one in inspect.getmembers(kind, callable) if not name.startswith("_")}
        return {name: [str(one) for one in inspect.signature(method).parameters.values()] for name, method in methods.items()}

    assert calls(blocking) == calls(asynchronous)


def test_a_blocking_call_that_would_wait_for_an_event_loop_is_refused() -> None:
    with pytest.raises(RuntimeError, match="waits for an event loop"):
        run(asyncio.sleep(0))


def test_every_exported_name_exists() -> None:
    assert all(hasattr(sbon, name) for name in sbon.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = sbon.nothing


def test_a_sink_is_no_text(api: str, node: Any) -> None:
    with connect(api) as overlay, pytest.raises(SbonError, match=r"to: a sink is no str .*SinkSpec\(kind=") as refused:
        overlay.sql("SELECT 1", to="rows.csv")  # type: ignore[arg-type]
    assert (refused.value.code, node.submitted) == ("bad-request", [])
