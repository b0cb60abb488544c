"""The event streams of the HTTP API: submissions step by step, rows and their followers."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import aiohttp
import msgspec
import pytest

from sbon import endpoints
from sbon.model import Reader, Rows
from sbon_protocol.api.delivery import Finished
from sbon_protocol.api.queries import Accepted, Progress, QueryInfo, Submission
from sbon_protocol.errors import SbonError
from tests.api.async_client import AsyncClient
from tests.api.switched_node import SwitchedNode, rows


async def test_a_submission_reports_each_step(node: SwitchedNode, client: AsyncClient) -> None:
    query = QueryInfo(id="q1", sql="select 1", state="running")
    node.steps = [Progress(step="parsing", message="reading"), Accepted(query=query)]
    told = [event async for event in client.events(endpoints.submit(Submission(sql="select 1")))]
    assert [msgspec.to_builtins(event) for event in told] == [msgspec.to_builtins(step) for step in node.steps]
    assert node.submitted == [Submission(sql="select 1")]


@pytest.mark.parametrize("steps_before", [0, 1])
async def test_a_refused_submission_is_a_problem_at_once_or_at_the_end(
    node: SwitchedNode, client: AsyncClient, steps_before: int
) -> None:
    node.steps = [Progress(step="parsing", message="reading")] * steps_before
    node.steps.append(SbonError("no-capacity", "no node has capacity", details=("a: full", "b: full")))
    told: list[object] = []

    async def read_all() -> None:
        async for event in client.events(endpoints.submit(Submission(sql="select 1"))):
            told.append(event)

    with pytest.raises(SbonError) as refused:
        await read_all()
    assert (refused.value.code, refused.value.details) == ("no-capacity", ("a: full", "b: full"))
    assert len(told) == steps_before


async def test_rows_carry_ids_and_continue_after_the_last_id_seen(node: SwitchedNode, client: AsyncClient) -> None:
    node.events = [rows(1, (1,)), rows(2, (2,)), Finished(state="finished")]
    async with aiohttp.ClientSession(client.api) as session:
        node.more.set()
        text = await (await session.get("/v1/queries/q1/rows")).text()
        ids = [line[4:] for line in text.splitlines() if line.startswith("id: ")]
        assert [json.loads(i) for i in ids] == [{"s": 1}, {"s": 2}]
        again = await (await session.get("/v1/queries/q1/rows", headers={"Last-Event-ID": ids[0]})).text()
    assert [json.loads(x[6:])["number"] for x in again.splitlines() if x.startswith('data: {"event":"rows"')] == [2]
    assert node.after == [{}, {"s": 1}]


async def test_an_id_keeps_the_positions_of_all_streams(node: SwitchedNode, client: AsyncClient) -> None:
    node.events = [rows(2, (2,)), Finished(state="finished")]
    node.more.set()
    async with aiohttp.ClientSession(client.api) as session:
        text = await (await session.get("/v1/queries/q1/rows", headers={"Last-Event-ID": '{"s":1,"t":7}'})).text()
    assert [json.loads(line[4:]) for line in text.splitlines() if line.startswith("id: ")] == [{"s": 2, "t": 7}]


async def test_an_event_stream_shows_that_it_lives_and_ends_when_its_reader_goes(node: SwitchedNode, client: AsyncClient) -> None:
    async with aiohttp.ClientSession(client.api) as session:
        response = await session.get("/v1/queries/q1/rows")
        assert await response.content.readline() == b"event: reader\n"
        assert [await response.content.readline() for _ in range(3)][2] == b": alive\n"
        assert node.open_followers == 1
        response.close()
        await node.follower_gone.wait()
        assert node.open_followers == 0


async def test_each_reader_gets_a_word_of_its_own(node: SwitchedNode, client: AsyncClient) -> None:
    words = []
    for _ in range(2):
        node.events, events = [rows(1, (1,))], client.events(endpoints.rows("q1", {}))
        begun = await anext(events)
        assert isinstance(begun, Reader)
        assert isinstance(await anext(events), Rows)
        words.append(begun.word)
        await events.aclose()
        await node.follower_gone.wait()
    assert len({*words}) == 2
    assert all(len(word) == 32 for word in words)


async def test_one_follower_at_a_time(node: SwitchedNode, client: AsyncClient) -> None:
    node.events = [rows(1, (1,))]
    first = client.events(endpoints.rows("q1", {}))
    assert isinstance(await anext(first), Reader)
    assert await anext(first) == Rows(stream="s", number=1, columns=("x",), rows=((1,),), watermark_ms=0, delay_ms=1)
    with pytest.raises(SbonError, match="somebody follows"):
        await anext(client.events(endpoints.rows("q1", {})))
    await first.aclose()  # type: ignore[attr-defined]


async def test_row_values_in_json(node: SwitchedNode, client: AsyncClient) -> None:
    node.events = [
        rows(
            1,
            (datetime(2013, 1, 1, 5, 15, tzinfo=UTC),),
            (datetime(2013, 1, 1, 5, 15),),
            (date(2013, 1, 1),),
            (Decimal("12.30"),),
            (b"\x00\xff",),
            (float("nan"),),
            ([1.0, float("-inf")],),
            ({"k": float("inf")},),
            (2**60,),
            (None,),
        )
    ]
    events = client.events(endpoints.rows("q1", {}))
    await anext(events)
    frame = await anext(events)
    assert isinstance(frame, Rows)
    assert [row[0] for row in frame.rows] == [
        "2013-01-01T05:15:00Z",
        "2013-01-01T05:15:00",
        "2013-01-01",
        "12.30",
        "AP8=",
        "NaN",
        [1.0, "-Infinity"],
        {"k": "Infinity"},
        2**60,
        None,
    ]
