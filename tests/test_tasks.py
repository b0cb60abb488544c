"""Tasks by name: a new task runs after its predecessor's end; none is lost or runs twice at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sbon_lab.simulation.loop import run
from sbon_node.base.tasks import Tasks, check_cancelled


def in_virtual_time(test: Callable[[Tasks, list[str]], Awaitable[None]]) -> list[str]:
    said: list[str] = []

    async def main() -> None:
        tasks = Tasks()
        await test(tasks, said)
        await tasks.close()

    run(lambda loop, rng: main(), seed=1)
    return said


async def slow_to_end(name: str, said: list[str]) -> None:
    said.append(f"{name} runs")
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(5)
        said.append(f"{name} has ended")


def test_a_new_one_runs_after_one_that_is_being_stopped() -> None:
    async def test(tasks: Tasks, said: list[str]) -> None:
        tasks.start("x", slow_to_end("first", said))
        await asyncio.sleep(1)
        stopping = asyncio.ensure_future(tasks.stop("x"))
        await asyncio.sleep(1)
        assert "x" not in tasks
        tasks.start("x", slow_to_end("second", said))
        assert "x" in tasks
        await stopping
        await asyncio.sleep(1)
        assert said == ["first runs", "first has ended", "second runs"]

    in_virtual_time(test)


def test_stopping_waits_for_all_of_a_name_and_cuts_no_clean_up_short() -> None:
    async def test(tasks: Tasks, said: list[str]) -> None:
        tasks.start("x", slow_to_end("first", said))
        await asyncio.sleep(1)
        one = asyncio.ensure_future(tasks.stop("x"))
        await asyncio.sleep(1)
        tasks.start("x", slow_to_end("second", said))
        await tasks.stop("x")
        assert said == ["first runs", "first has ended"]
        await one

    assert in_virtual_time(test) == ["first runs", "first has ended"]


@pytest.mark.filterwarnings("error")
def test_a_running_task_is_not_started_twice() -> None:
    async def test(tasks: Tasks, said: list[str]) -> None:
        tasks.start("x", slow_to_end("first", said))
        tasks.start("x", slow_to_end("second", said))
        await asyncio.sleep(1)
        await tasks.close()
        tasks.start("x", slow_to_end("third", said))
        assert said == ["first runs", "first has ended"]

    in_virtual_time(test)


@pytest.mark.filterwarnings("error")
def test_one_that_never_ran_leaves_no_coroutine_behind() -> None:
    async def test(tasks: Tasks, said: list[str]) -> None:
        tasks.start("x", slow_to_end("first", said))
        await asyncio.sleep(1)
        stopping = asyncio.ensure_future(tasks.stop("x"))
        await asyncio.sleep(1)
        tasks.start("x", slow_to_end("second", said))
        await asyncio.gather(stopping, tasks.stop("x"))
        assert said == ["first runs", "first has ended"]

    in_virtual_time(test)


def test_a_failed_clean_up_does_not_hide_that_a_task_is_cancelled() -> None:
    async def hidden(said: list[str]) -> None:
        try:
            try:
                await asyncio.Event().wait()
            finally:
                raise OSError("the disk is full")
        except OSError:
            check_cancelled()
        said.append("goes on")

    async def test(tasks: Tasks, said: list[str]) -> None:
        check_cancelled()
        tasks.start("x", hidden(said))
        await asyncio.sleep(1)
        await tasks.stop("x")
        assert "x" not in tasks

    assert in_virtual_time(test) == []
