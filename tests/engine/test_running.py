"""One operator at its node: how long its readers wait for news."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from sbon_node.clock import Clock
from sbon_node.engine.interface import Column, InputSpec, OperatorSpec
from sbon_node.engine.spark.running import Running
from sbon_node.streams.frame import InputOffset
from tests.engine.states import PATIENCE_S, States
from tests.engine.toy_port import ToyPort

SCHEMA = (Column("ts", "timestamp"),)
NOTHING = msgspec.to_builtins(InputOffset())


@pytest.mark.parametrize("event_time", ["ts", ""])
async def test_what_has_state_may_go_on_without_news_after_each_batch(tmp_path: Path, event_time: str) -> None:
    port = ToyPort()
    inputs = (InputSpec(stream="in", node="here", schema=SCHEMA, event_time=event_time),)
    spec = OperatorSpec(id="q.o1", query="q", fragment="SELECT ts FROM in0", inputs=inputs, schema=SCHEMA)
    running = Running(spec, port, tmp_path, Clock.real(), States(), fsync=False)
    running.arm()
    running.recover()

    async def poll(after: dict[str, Any]) -> dict[str, Any]:
        answer = await running.serve({"do": "poll", "position": 0, "after": after, "wait": 10 * PATIENCE_S})
        offset: dict[str, Any] = answer["offset"]
        return offset

    await port.feed(pa.table({"ts": [1]}))
    async with asyncio.timeout(PATIENCE_S):
        read = await poll(NOTHING)
        batch = {"do": "write", "batch": 0, "offsets": [read], "frames": [], "watermark_ms": 0, "ended": False, "batch_ms": 1.0}
        await running.serve(batch)
        if event_time:
            assert await poll(read) == read
        waiting = asyncio.create_task(poll(read))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await port.feed(pa.table({"ts": [2]}))
        assert (await waiting)["frame"] == 2
