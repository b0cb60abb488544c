"""Operators start again or fail after a process dies: with real processes, and an engine process that needs no Spark."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sbon_node.base.clock import Clock
from sbon_node.engine.lock import take_lock
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_node.engine.spark.messages import Done, Start
from sbon_node.engine.spark.running import GOOD_BATCHES
from sbon_node.engine.spark.supervisor import EngineLostError, Patience
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from sbon_protocol.errors import BrokenInvariantError, SbonError
from tests.engine.scripted_engine import LATE_S
from tests.engine.states import PATIENCE_S, States
from tests.engine.toy_port import ToyPort

SCHEMA = (Column("n", "bigint"), Column("act", "string"))


class Bench:
    """An engine with a scripted engine process, and its operators."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.states = folder, States()
        chosen = EngineSettings(restart_s=0.01, jit="c1", **settings)
        self.engine = SparkEngine(chosen, folder, Clock.real(), self.states, module="tests.engine.scripted_engine")

    async def start(self, name: str, fragment: str = "") -> ToyPort:
        port = ToyPort()
        await self.instantiate(name, port, fragment)
        return port

    async def instantiate(self, name: str, port: ToyPort, fragment: str = "", checkpoint: str = "") -> None:
        inputs = (InputSpec(stream="in", node="n", schema=SCHEMA),)
        spec = OperatorSpec(id=name, query="q", fragment=fragment, inputs=inputs, schema=SCHEMA)
        folder = self.folder / "operators" / (checkpoint or name)
        folder.mkdir(parents=True, exist_ok=True)
        await self.engine.instantiate(spec, port, folder)

    async def amid_batches(self, *names: str) -> None:
        """Wait until each of the operators has a batch under way."""
        async with asyncio.timeout(PATIENCE_S):
            while not all(self.engine._running[name].has_open_batch() for name in names):  # noqa: ASYNC110
                await asyncio.sleep(0.005)


@asynccontextmanager
async def bench(folder: Path, **settings: Any) -> AsyncIterator[Bench]:
    made = Bench(folder, **settings)
    try:
        yield made
    finally:
        await made.engine.close()


def row(number: int, act: str = "") -> pa.Table:
    return pa.table({"n": pa.array([number], pa.int64()), "act": [act]})


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_whose_rows_kill_the_engine_is_quarantined_alone(tmp_path: Path) -> None:
    """The others are amid a batch whenever the engine dies."""
    async with bench(tmp_path, max_kills=2, max_restarts=0) as it:
        busy = [await it.start(f"busy.{i}") for i in range(3)]
        idle, poison = await it.start("idle"), await it.start("poison")
        await poison.feed(row(0, "kill"))
        number = 0
        while not it.states.count("poison", "quarantined"):
            for port in busy:
                await port.feed(row(number, "slow"))
            await busy[0].wait_seen(number)
            number += 1

        reason = await it.states.wait("poison", "quarantined")

        assert "it has killed the engine 2 times, at last: the engine's JVM died" in reason
        assert "stop its query, or raise engine.heap_mb" in reason
        for name, port in [("busy.0", busy[0]), ("busy.1", busy[1]), ("busy.2", busy[2]), ("idle", idle)]:
            await port.feed(row(number), ended=True)
            rows = await port.wait_ended()
            assert rows["n"].to_pylist() == ([number] if port is idle else list(range(number + 1)))
            assert not it.states.count(name, "failed")
        assert poison.rows_visible() == 0
        assert it.engine.recovery_s > 0
        starts = it.engine.starts
        await it.engine.destroy("poison")
        assert it.states.told["poison"][-1] == ("stopped", "")
        assert it.engine.starts == starts <= 5, "one death by chance, one of several side by side, two alone"


async def test_an_engine_that_dies_without_operators_is_idle_and_starts_when_needed(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.engine.start()
        assert it.engine.engine_pid is not None
        os.kill(it.engine.engine_pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            while it.engine.status == "running":
                await Clock.real().sleep(0.01)
        assert it.engine.status == "idle"
        port = await it.start("good")
        assert it.engine.status == "running"
        await port.feed(row(1), ended=True)
        assert (await port.wait_ended())["n"].to_pylist() == [1]


async def test_an_engine_that_does_not_start_has_failed_though_it_has_no_operators(tmp_path: Path) -> None:
    (tmp_path / "operators").write_text("no folder")
    async with bench(tmp_path) as it:
        with pytest.raises(SbonError, match="ended with code 1"):
            await it.engine.start()
        assert it.engine.status.startswith("failed: ")


async def test_an_engine_that_is_late_without_operators_is_idle(tmp_path: Path) -> None:
    """Nothing would start it again, and nobody lacks it."""
    async with bench(tmp_path, start_timeout_s=0.01, start_timeout_max_s=PATIENCE_S) as it:
        with pytest.raises(SbonError, match="was not ready within"):
            await it.engine.start()
        assert it.engine.status == "idle"
        while it.engine.status != "running":
            with suppress(SbonError):
                await it.engine.start()


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_two_that_kill_the_engine_are_both_quarantined(tmp_path: Path) -> None:
    async with bench(tmp_path, max_kills=2) as it:
        good, *poison = [await it.start(name) for name in ("good", "poison.0", "poison.1")]
        for port in poison:
            await port.feed(row(0, "kill"))
        for i in range(2):
            assert "JVM died" in await it.states.wait(f"poison.{i}", "quarantined")
        await good.feed(row(1), ended=True)
        assert (await good.wait_ended())["n"].to_pylist() == [1]


async def test_an_end_that_comes_again_fails_the_operator(tmp_path: Path) -> None:
    async with bench(tmp_path, max_restarts=2) as it:
        port = await it.start("ends")
        await port.feed(row(7, "end"))
        assert await it.states.wait("ends", "failed") == "ended 3 times, at last: row 7 said so"


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_good_batches_make_earlier_ends_forgotten(tmp_path: Path) -> None:
    async with bench(tmp_path, max_restarts=2) as it:
        port = await it.start("chance")
        for number in range(6 * GOOD_BATCHES):
            await port.feed(row(number, "" if number % GOOD_BATCHES else "end once"))
            await port.wait_seen(number)
        await port.feed(None, ended=True)
        assert (await port.wait_ended())["n"].to_pylist() == list(range(6 * GOOD_BATCHES))
        assert not it.states.count("chance", "failed")
        stats = it.engine.stats("chance")
        assert (stats.rows_in, stats.rows_out) == (6 * GOOD_BATCHES, 6 * GOOD_BATCHES), "what was read twice counts once"
        assert stats.rows_out_s is not None
        assert stats.rows_out_s > 0


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_an_engine_killed_from_outside_fails_no_operator(tmp_path: Path) -> None:
    async with bench(tmp_path, max_restarts=0) as it:
        port = await it.start("idle")
        for number in range(4):
            await port.feed(row(number))
            await port.wait_seen(number)
            assert it.engine.engine_pid is not None
            os.kill(it.engine.engine_pid, signal.SIGKILL)
            await it.states.wait("idle", "running", number + 2)
        await port.feed(None, ended=True)
        assert (await port.wait_ended())["n"].to_pylist() == [0, 1, 2, 3]


async def test_an_end_before_the_start_is_answered_is_kept(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        port = await it.start("early", fragment="1 2 3")
        await port.feed(row(0), ended=True)
        assert (await port.wait_ended())["n"].to_pylist() == [0]
        await it.states.wait("early", "running", 4)
        assert it.states.count("early", "running") == 4


@pytest.mark.parametrize("error", [SbonError("fenced", "epoch 1 is over"), BrokenInvariantError("never written")])
async def test_a_refused_commit_is_the_operators_failure(tmp_path: Path, error: Exception) -> None:
    async with bench(tmp_path) as it:
        port = await it.start("refused")
        port.commit_refusal = error
        await port.feed(row(0))
        assert str(error) in await it.states.wait("refused", "failed")


async def test_a_commit_waits_for_room_and_says_so(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        port = await it.start("full")
        port.commit_refusal = SbonError("disk-full", "no space for more frames")
        await port.feed(row(0), ended=True)
        assert await it.states.wait("full", "running", 2) == "no space for more frames"
        port.commit_refusal = None
        assert (await port.wait_ended())["n"].to_pylist() == [0]
        assert it.states.told["full"][-1] == ("running", "")


async def test_conflicting_operators_are_refused(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.start("one")
        with pytest.raises(SbonError) as refusal:
            await it.instantiate("two", ToyPort(), checkpoint="one")
        assert refusal.value.code == "checkpoint-in-use"
        with pytest.raises(SbonError) as refusal:
            await it.instantiate("two", ToyPort(), checkpoint="deep/er")
        assert refusal.value.code == "checkpoint-elsewhere"
        await it.start("two")


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_an_engine_that_is_late_gets_more_time_at_the_next_try(tmp_path: Path) -> None:
    """The engine's own start is late, too, where the machine is busy: then the operator's first start is refused."""
    refused, limit_s = [], LATE_S / 2.5
    async with bench(tmp_path, start_timeout_s=limit_s, start_timeout_max_s=2 * PATIENCE_S) as it:
        while not it.states.count("late", "running"):
            port = ToyPort()
            try:
                await it.instantiate("late", port, "late")
            except SbonError as error:
                refused.append(error.message)
            else:
                await it.states.wait("late", "running")
        reasons = [*refused, *(reason for state, reason in it.states.told["late"] if state == "starting" and reason)]
        assert reasons
        for reason in reasons:
            assert reason.endswith(f"within {limit_s:g} s; the next try has {2 * limit_s:g} s")
            limit_s *= 2
        await port.feed(row(0))
        await port.wait_seen(0)


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_an_engine_that_does_not_answer_writes_where_it_hangs(tmp_path: Path) -> None:
    async with bench(tmp_path, start_timeout_s=5.0, start_timeout_max_s=PATIENCE_S) as it:
        hangs = OperatorSpec(id="hangs", query="q", fragment="hang", inputs=(), schema=SCHEMA)
        start = Start(spec=hangs, checkpoint=str(tmp_path / "operators" / "hangs"), run=1, fsync=False)
        (tmp_path / "operators").mkdir()
        while it.engine.status != "running":
            with suppress(SbonError):  # It may be late.
                await it.engine.start()
        with pytest.raises(EngineLostError, match="no answer to start"):
            await it.engine._supervisor.command(start, Done)
        written = (tmp_path / "engine.log").read_text()
        assert "scripted_engine.py" in written
        assert "in __init__" in written


def test_the_time_for_a_start_is_bounded() -> None:
    patience = Patience(100.0, 300.0)
    assert [patience.exhausted().partition(";")[2] for _ in range(3)] == [
        " the next try has 200 s",
        " the next try has 300 s",
        " the machine may be too slow or too busy, see engine.start_timeout_max_s",
    ]


async def killed_amid_batches(it: Bench, ports: dict[str, ToyPort]) -> list[str]:
    """Kill the engine amid batches of all; return for which others each was shown to wait, once all have committed them."""
    for port in ports.values():
        await port.feed(row(0, "slow"))
    assert it.engine.engine_pid is not None
    await it.amid_batches(*ports)
    os.kill(it.engine.engine_pid, signal.SIGKILL)
    for port in ports.values():
        await port.wait_seen(0)
    shown = [(name, reason.partition("; it waits until ")[2]) for name in ports for _, reason in it.states.told[name]]
    first = {name: waits.partition(" has ")[0] for name, waits in reversed(shown) if waits}
    return [f"{name}: {waits}" for name, waits in first.items()]


async def test_operators_start_side_by_side_after_a_death(tmp_path: Path) -> None:
    """They wait for each other only beyond what two cores and the heap allow."""
    async with bench(tmp_path) as it:
        assert await killed_amid_batches(it, {name: await it.start(name) for name in ("one", "two", "three", "four")}) == []


async def test_operators_show_for_which_others_they_wait(tmp_path: Path) -> None:
    async with bench(tmp_path, master="local[1]") as it:
        ports = {name: await it.start(name) for name in ("unread", "one", "two")}
        ports["unread"].awaited = False
        assert await killed_amid_batches(it, ports) == ["unread: one or two"]


async def test_no_death_counts_against_one_of_several_that_start(tmp_path: Path) -> None:
    """They have had a batch under way at two deaths, so each starts alone, and only then one of them is the cause."""
    async with bench(tmp_path, max_kills=1) as it:
        good, poison = await it.start("good"), await it.start("poison")
        await good.feed(row(0, "slow"))
        await it.amid_batches("good")
        await poison.feed(row(0, "kill"))
        await it.states.wait("poison", "quarantined")
        await good.feed(row(1))
        await good.wait_seen(1)
        assert not it.states.count("good", "quarantined")
        assert it.engine.starts == 4, "one death by chance, one of both side by side, one of the poison alone"


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_an_operator_destroyed_while_it_starts_leaves_nothing_though_the_engine_dies_too(tmp_path: Path) -> None:
    async with bench(tmp_path) as it:
        await it.start("other")
        starting = asyncio.create_task(it.instantiate("late", ToyPort(), "hang"))
        await it.states.wait("late", "starting")
        async with asyncio.timeout(PATIENCE_S):
            while not (tmp_path / "operators" / "late.hangs").exists():  # noqa: ASYNC110 - another process makes the file
                await asyncio.sleep(0.01)
        destroyed = asyncio.create_task(it.engine.destroy("late"))
        assert it.engine.engine_pid is not None
        os.kill(it.engine.engine_pid, signal.SIGKILL)
        with pytest.raises(SbonError) as refusal:
            await starting
        assert refusal.value.code == "operator-stopped"
        await destroyed
        await it.states.wait("other", "running", 2)
        assert "keep late" not in {task.get_name() for task in asyncio.all_tasks()}
        assert it.states.told["late"] == [("starting", ""), ("stopped", "")]
        await it.start("late")


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_an_operator_given_up_while_it_starts_leaves_no_folder(tmp_path: Path) -> None:
    """Its destruction is asked for again, since the first request was given up; both wait for the engine."""
    async with bench(tmp_path) as it:
        starting = asyncio.create_task(it.instantiate("late", ToyPort(), "late"))
        await it.states.wait("late", "starting")
        async with asyncio.timeout(PATIENCE_S):
            while not it.engine._running["late"].run:  # noqa: ASYNC110 - until the engine process starts it
                await asyncio.sleep(0.01)
        first = asyncio.create_task(it.engine.destroy("late"))
        await asyncio.sleep(0.05)
        first.cancel()
        await it.engine.destroy("late")
        shutil.rmtree(tmp_path / "operators" / "late")
        with pytest.raises(SbonError) as refusal:
            await starting
        assert refusal.value.code == "operator-stopped"
        await it.engine.footprint()
        assert not (tmp_path / "operators" / "late").exists()
        await it.start("late")


async def test_an_operator_is_given_up_at_once_while_the_engine_itself_starts(tmp_path: Path) -> None:
    (tmp_path / "operators").mkdir()
    async with bench(tmp_path) as it:
        lock = take_lock(tmp_path / "operators", 1.0)
        try:
            starting = asyncio.create_task(it.instantiate("late", ToyPort()))
            await it.states.wait("late", "starting")
            await asyncio.sleep(0.05)
            await it.engine.destroy("late")
            assert it.engine.status == "starting"
            shutil.rmtree(tmp_path / "operators" / "late")
            with pytest.raises(SbonError) as refusal:
                await starting
            assert refusal.value.code == "operator-stopped"
        finally:
            os.close(lock)
        await it.engine.footprint()
        assert not (tmp_path / "operators" / "late").exists()
        assert it.states.told["late"] == [("starting", ""), ("stopped", "")]


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_an_operator_whose_start_breaks_an_invariant_leaves_nothing(tmp_path: Path) -> None:
    class BrokenPort(ToyPort):
        def recover(self, committed: int | None) -> None:
            raise BrokenInvariantError("offsets of another operator")

    async with bench(tmp_path) as it:
        with pytest.raises(BrokenInvariantError):
            await it.instantiate("broken", BrokenPort())
        await it.start("broken")
