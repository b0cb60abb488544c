"""An engine that is full is replaced by a fresh one between batches: no operator fails, and each row comes out once."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from pathlib import Path

import pytest

from sbon_node.engine.interface import Footprint
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import too_full
from sbon_node.model.frames import Frame
from tests.engine.test_restarts import bench, row
from tests.engine.toy_port import ToyPort

SETTINGS = EngineSettings(replace_threads=100, replace_descriptors=200, replace_heap_percent=80)


@pytest.mark.parametrize(
    "found, named",
    [
        ((100, 200, 409.6), ""),
        ((101, 200, 0.0), "101 threads"),
        ((1, 201, 0.0), "201 descriptors"),
        ((1, 1, 415.0), "81 % of the heap"),
    ],
)
def test_the_limit_that_is_passed_is_named(found: tuple[int, int, float], named: str) -> None:
    threads, descriptors, heap_mb = found
    reason = too_full(Footprint(threads=threads, descriptors=descriptors, heap_mb=heap_mb, max_heap_mb=512.0), SETTINGS)
    assert reason.startswith(named) if named else not reason


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_rows_come_out_once_through_replacements(tmp_path: Path) -> None:
    """The engine process leaves ten threads of each batch, so a fresh one comes every ten to twenty."""
    async with bench(tmp_path, replace_threads=100, footprint_s=0.05, replace_every_s=0.0, max_restarts=0) as it:
        busy, idle = await it.start("busy"), await it.start("idle")
        number = 0
        while it.engine.replacements < 2:
            await busy.feed(row(number, "slow" if number % 5 == 0 else ""))
            await busy.wait_seen(number)
            number += 1
        for port in (busy, idle):
            await port.feed(row(number), ended=True)

        assert (await busy.wait_ended())["n"].to_pylist() == list(range(number + 1))
        assert (await idle.wait_ended())["n"].to_pylist() == [number]
        assert it.engine.replacement_s > 0
        assert it.engine.starts == it.engine.replacements + 1
        for name in ("busy", "idle"):
            assert not it.states.count(name, "failed"), it.states.told[name]


class CountingPort(ToyPort):
    """Counts how often each frame is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[int] = Counter()

    async def fetch(self, position: int, after_frame: int, upto_frame: int) -> list[Frame]:
        self.reads.update(range(after_frame + 1, upto_frame + 1))
        return await super().fetch(position, after_frame, upto_frame)


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_a_replacement_waits_for_the_batch_under_way(tmp_path: Path) -> None:
    """It would be run twice otherwise, which costs time."""
    async with bench(tmp_path, replace_threads=100, footprint_s=0.05, replace_every_s=0.0) as it:
        port = CountingPort()
        await it.instantiate("busy", port)
        number = 0
        while it.engine.replacements < 2:
            await port.feed(row(number, "brief"))
            await port.wait_seen(number)
            number += 1
        assert port.reads == Counter(range(1, number + 1))


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_replacements_keep_their_distance(tmp_path: Path) -> None:
    async with bench(tmp_path, replace_threads=100, footprint_s=0.02, replace_every_s=3600.0) as it:
        port = await it.start("busy")
        number = 0
        while it.engine.replacements < 1 or number < 60:
            await port.feed(row(number))
            await port.wait_seen(number)
            number += 1
        await asyncio.sleep(0.2)
        assert it.engine.replacements == 1


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_a_fresh_engine_works_before_it_is_replaced(tmp_path: Path) -> None:
    """However long its start takes."""
    async with bench(tmp_path, replace_threads=100, footprint_s=0.02, replace_every_s=1.0) as it, asyncio.TaskGroup() as group:
        port = await it.start("busy")

        async def feed() -> None:
            for number in itertools.count():
                await port.feed(row(number))
                await port.wait_seen(number)

        feeding = group.create_task(feed())
        await it.states.wait("busy", "starting", 3)
        times = {state: [] for state, _ in it.states.told["busy"]}
        for (state, _), at_s in zip(it.states.told["busy"], it.states.at_s["busy"], strict=True):
            times[state].append(at_s)
        assert times["starting"][2] - times["running"][1] > 0.9
        feeding.cancel()


async def test_an_operator_stopped_amid_a_replacement_stays_stopped(tmp_path: Path) -> None:
    async with bench(tmp_path, replace_threads=100, footprint_s=0.02, replace_every_s=0.0) as it:
        port, other = await it.start("stopped"), await it.start("other")
        for number in range(12):
            await port.feed(row(number))
            await port.wait_seen(number)
        await it.states.wait("stopped", "starting", 2)
        await it.engine.destroy("stopped")
        await other.feed(row(1), ended=True)
        assert (await other.wait_ended())["n"].to_pylist() == [1]
        assert it.states.told["stopped"][-1] == ("stopped", "")
