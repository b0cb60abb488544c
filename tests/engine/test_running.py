"""One operator at its node: how long its readers wait for news."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

from sbon_node.base.backoff import Backoff
from sbon_node.base.clock import Clock
from sbon_node.engine.spark.messages import Begun, Fetch, Poll, Polled, Write
from sbon_node.engine.spark.running import End, Running
from sbon_node.model.frames import InputOffset
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from sbon_protocol.errors import SbonError
from tests.engine.states import PATIENCE_S, States
from tests.engine.toy_port import ToyPort

SCHEMA = (Column("ts", "timestamp"),)
WITH_STATE = OperatorSpec(
    id="q.o1",
    query="q",
    fragment="SELECT ts FROM in0",
    inputs=(InputSpec(stream="in", node="here", schema=SCHEMA, event_time="ts"),),
    schema=SCHEMA,
)


async def poll(running: Running, after: InputOffset) -> InputOffset:
    answer = await running.serve(Poll(operator="q.o1", position=0, after=after, wait_s=10 * PATIENCE_S))
    assert isinstance(answer, Polled)
    return answer.offset


def batch_after(read: InputOffset) -> Write:
    return Write(operator="q.o1", batch=0, offsets=(read,), frames=(), watermark_ms=0, ended=False, batch_ms=1.0)


@pytest.mark.parametrize("event_time", ["ts", ""])
async def test_an_operator_with_state_may_run_without_new_input_after_each_batch(tmp_path: Path, event_time: str) -> None:
    port = ToyPort()
    inputs = (InputSpec(stream="in", node="here", schema=SCHEMA, event_time=event_time),)
    spec = OperatorSpec(id="q.o1", query="q", fragment="SELECT ts FROM in0", inputs=inputs, schema=SCHEMA)
    running = Running(spec, port, tmp_path, Clock.real(), States(), backoff=Backoff(1.0, 30.0), fsync=False)
    running.arm()
    await running.recover()

    await running.serve(Begun(operator="q.o1", run=running.begin_run()))

    await port.feed(pa.table({"ts": [1]}))
    async with asyncio.timeout(PATIENCE_S):
        read = await poll(running, InputOffset())
        await running.serve(batch_after(read))
        if event_time:
            assert await poll(running, read) == read
        waiting = asyncio.create_task(poll(running, read))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await port.feed(pa.table({"ts": [2]}))
        assert (await waiting).frame == 2


async def test_a_new_operator_with_state_reads_once_spark_has_its_watermark(tmp_path: Path) -> None:
    """Spark would plan its first batch with a watermark of 1970, and drop earlier rows. However short its reader waits."""
    port = ToyPort()
    running = Running(WITH_STATE, port, tmp_path, Clock.real(), States(), backoff=Backoff(1.0, 30.0), fsync=False)
    running.arm()
    await running.recover()
    run = running.begin_run()
    await port.feed(pa.table({"ts": [1]}))
    async with asyncio.timeout(PATIENCE_S):
        early = Poll(operator="q.o1", position=0, after=InputOffset(), wait_s=0.01)
        waiting = asyncio.create_task(running.serve(early))
        await running.serve(Begun(operator="q.o1", run=run - 1))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await running.serve(Begun(operator="q.o1", run=run))
        answer = await waiting
        assert isinstance(answer, Polled)
        assert answer.offset.frame == 1


async def test_a_reader_gets_no_answer_from_a_run_that_ends_before_it_has_begun(tmp_path: Path) -> None:
    running = Running(WITH_STATE, ToyPort(), tmp_path, Clock.real(), States(), backoff=Backoff(1.0, 30.0), fsync=False)
    running.arm()
    await running.recover()
    running.begin_run()
    waiting = asyncio.create_task(poll(running, InputOffset()))
    await asyncio.sleep(0)
    running.end(End("engine-failed", "its process died"))
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(SbonError) as refusal:
            await waiting
    assert refusal.value.code == "operator-stopped"


async def test_a_running_batch_is_reported_with_its_input(tmp_path: Path) -> None:
    """Until its output is written: a batch that takes minutes is no standstill."""
    port = ToyPort()
    inputs = (InputSpec(stream="in", node="here", schema=SCHEMA),)
    spec = OperatorSpec(id="q.o1", query="q", fragment="SELECT ts FROM in0", inputs=inputs, schema=SCHEMA)
    running = Running(spec, port, tmp_path, Clock.real(), States(), backoff=Backoff(1.0, 30.0), fsync=False)
    running.arm()
    await running.recover()
    running.begin_run()
    assert running.current_stats().under_way_s is None
    await port.feed(pa.table({"ts": [1, 2, 3]}))
    async with asyncio.timeout(PATIENCE_S):
        read = await poll(running, InputOffset())
        planned = running.current_stats()
        assert planned.under_way_s is not None
        assert (planned.under_way_rows, planned.rows_in) == (0, 0)
        await running.serve(Fetch(operator="q.o1", position=0, after=0, upto=read.frame))
        fetched = running.current_stats()
        assert (fetched.under_way_rows, fetched.rows_in) == (3, 0)
        assert fetched.under_way_bytes > 0
        await running.serve(batch_after(read))
    done = running.current_stats()
    assert (done.under_way_s, done.under_way_rows, done.rows_in) == (None, 0, 3)
