"""A query's result as a source: rows and the sink's position are stored together, under the result's own watermark."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sbon_lab.simulation.loop import run
from sbon_node.base.clock import Clock
from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.connectors.sources.result import ResultOptions, ResultPosition, ResultSource
from sbon_node.connectors.sources.runner import SourceRunner
from sbon_node.model.frames import Frame
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.errors import SbonError
from tests.connectors.source_worlds import SCHEMA, SOURCE, STREAM, at, rows_of


class Result:
    """The source and its runner over an outbox in a folder, as often as they are started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def start(self, *, opens: bool = True) -> None:
        self.outbox = Outbox(self.folder / "outbox.db", StreamSettings())
        self.source = ResultSource(ResultOptions(query="q-1"))
        self.runner = SourceRunner(
            SOURCE,
            STREAM,
            self.source,
            outbox=self.outbox,
            clock=Clock(),
            settings=ConnectorSettings(),
            dead_letters=self.folder / "dead-letters",
        )
        self.task = asyncio.get_running_loop().create_task(self.runner.run())
        while opens and not self.source.is_open:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        self.outbox.close()

    async def put(self, times: list[int], frame: int, watermark_ms: int, *, finished: bool = False) -> None:
        rows = pa.RecordBatch.from_pydict({"ts": at([*times]), "n": times}, SCHEMA)
        position = ResultPosition(delivery=DeliveryPosition(streams={"q-1.o1": frame}, rows=frame, finished=finished))
        await self.source.put(rows, watermark_ms, position)

    def frames(self) -> list[Frame]:
        return self.outbox.read(SOURCE.id, 0, 2**40)


def virtually(test: Callable[[], Awaitable[None]]) -> None:
    async def main(loop: Any, rng: Any) -> None:
        await test()

    run(main, seed=1, max_time_s=1e6)


def test_no_row_is_late_and_the_watermark_is_that_of_the_result(tmp_path: Path) -> None:
    """By its event times alone, the second row would be two seconds behind a stream whose delay is one."""

    async def main() -> None:
        result = Result(tmp_path)
        await result.start()
        await result.put([10_000], 1, 4_000)
        await result.put([7_999, 5_000], 2, 5_000)
        await result.put([], 3, 20_000)
        await result.put([], 4, 20_000)
        assert [row["n"] for row in rows_of(result.frames())] == [10_000, 7_999, 5_000]
        assert [frame.watermark_ms for frame in result.frames()] == [4_000, 5_000, 20_000]
        assert (result.runner.counts.rows, result.runner.counts.late) == (3, 0)
        await result.stop()

    virtually(main)


def test_the_position_is_that_of_the_stored_rows_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        result = Result(tmp_path)
        await result.start()
        await result.put([1_000], 1, 1_000)
        lost = asyncio.create_task(result.put([2_000], 2, 2_000))
        await asyncio.sleep(0)
        await result.stop()
        with pytest.raises(SbonError) as caught:
            await lost
        assert caught.value.code == AWAY
        await result.start()
        assert result.source.at.delivery.streams == {"q-1.o1": 1}
        await result.put([2_000], 2, 2_000)
        assert [row["n"] for row in rows_of(result.frames())] == [1_000, 2_000]
        await result.put([], 3, 3_000, finished=True)
        await asyncio.wait([result.task])
        assert result.runner.state == "ended"
        assert result.frames()[-1].ended
        await result.stop()

    virtually(main)


def test_a_result_that_is_not_whole_fails_and_does_not_end(tmp_path: Path) -> None:
    async def main() -> None:
        result = Result(tmp_path)
        await result.start()
        await result.put([1_000], 1, 1_000)
        result.source.fail("the query q-1 is over", SCHEMA)
        for _ in range(2):
            await asyncio.wait([result.task])
            assert (result.runner.state, result.frames()[-1].ended) == ("failed", False)
            assert "the query q-1 is over" in result.runner.reason
            await result.stop()
            await result.start(opens=False)
        await result.stop()

    virtually(main)
