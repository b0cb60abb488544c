"""Tasks that are due at one instant run in an order that the seed draws, and the same seed gives the same order."""

from __future__ import annotations

import asyncio
import random

from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_lab.simulation.threads import SimulatedThreads


def _orders(seeds: range, *, permute: bool = True) -> list[str]:
    return [run(_wakes_five, seed=seed, permute=permute) for seed in seeds]


async def _wakes_five(loop: VirtualLoop, rng: random.Random) -> str:
    order = ""

    async def waiter(name: str) -> None:
        nonlocal order
        await event.wait()
        order += name

    event = asyncio.Event()
    tasks = [loop.create_task(waiter(name)) for name in "abcde"]
    await asyncio.sleep(1)
    event.set()
    await asyncio.wait(tasks)
    return order


def test_tasks_woken_at_one_instant_run_in_an_order_drawn_from_the_seed() -> None:
    orders = _orders(range(20))
    assert orders == _orders(range(20))
    assert len(set(orders)) > 10
    assert set(_orders(range(3), permute=False)) == {"abcde"}


def test_timers_due_at_one_instant_run_in_an_order_drawn_from_the_seed() -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> list[int]:
        fired: list[int] = []
        for number in range(5):
            loop.call_at(1.0, fired.append, number)
        loop.call_at(0.5, fired.append, 9)
        await asyncio.sleep(2)
        return fired

    orders = [run(main, seed=seed, permute=True) for seed in range(10)]
    assert all(order[0] == 9 and sorted(order[1:]) == [0, 1, 2, 3, 4] for order in orders)
    assert len({tuple(order) for order in orders}) > 5


def test_plain_callbacks_keep_their_order_and_precede_the_tasks_woken_with_them() -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> list[str]:
        did: list[str] = []

        async def waiter() -> None:
            await future
            did.append("task")

        future: asyncio.Future[None] = loop.create_future()
        tasks = [loop.create_task(waiter()) for _ in range(2)]
        await asyncio.sleep(1)
        future.set_result(None)
        for number in range(3):
            loop.call_soon(did.append, f"{number}")
        await asyncio.wait(tasks)
        return did

    for seed in range(10):
        assert run(main, seed=seed, permute=True) == ["0", "1", "2", "task", "task"]


def test_work_in_a_thread_takes_time_that_others_use() -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> tuple[int, float]:
        threads, overtaken = SimulatedThreads(random.Random(1)), 0

        for _ in range(40):
            done: list[str] = []
            work = loop.create_task(threads(lambda done=done: done.append("work")))  # type: ignore[misc]
            await asyncio.sleep(0)
            done.append("other")
            await work
            overtaken += done[0] == "other"
        threads.slow_s, threads.slow_until = 1.0, loop.time() + 100
        began = loop.time()
        for _ in range(10):
            await threads(lambda: None)
        return overtaken, loop.time() - began

    overtaken, slow_s = run(main, seed=1)
    assert 5 < overtaken < 35
    assert 3 < slow_s < 20


def test_work_ends_even_if_its_caller_is_cancelled_but_not_if_the_process_is_dead() -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> list[str]:
        threads, done = SimulatedThreads(random.Random(1)), []
        threads.slow_s, threads.slow_until = 1.0, 1e9
        task = loop.create_task(threads(lambda: done.append("ended")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return done

    assert run(main, seed=1) == ["ended"]
