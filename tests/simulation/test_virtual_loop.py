"""Virtual time: order, determinism, bounds, and no way out into the real world."""

from __future__ import annotations

import asyncio
import itertools
import random
import time

import pytest

from sbon_lab.simulation.loop import DeadlockError, RealWorldError, VirtualLoop, VirtualTimeError, run
from sbon_lab.simulation.process import KilledError, Process


def test_an_hour_passes_at_once_and_clocks_agree() -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> tuple[float, int]:
        clock = loop.clock()
        before = clock.wall_ms()
        await clock.sleep(3600)
        return clock.now(), clock.wall_ms() - before

    started = time.perf_counter()
    assert run(main, seed=1) == (3600.0, 3_600_000)
    assert time.perf_counter() - started < 60


def test_timers_fire_in_order_of_time() -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> list[int]:
        fired: list[int] = []
        for number, delay in enumerate((2.0, 1.0, 1.5, 0.0)):
            loop.call_later(delay, fired.append, number)
        await asyncio.sleep(3)
        return fired

    assert run(main, seed=1) == [3, 1, 2, 0]


def test_a_deadlock_names_who_waits_where() -> None:
    async def waits_for_godot() -> None:
        await asyncio.get_running_loop().create_future()

    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        await waits_for_godot()

    with pytest.raises(DeadlockError, match=r"test_virtual_loop.py:\d+ in .*waits_for_godot"):
        run(main, seed=1)


async def _sleep_for_ever(pause_s: float = 10.0) -> None:
    await asyncio.sleep(pause_s)
    await _sleep_for_ever(pause_s)


async def _spin() -> None:
    for _ in itertools.count():
        await asyncio.sleep(0)


async def _thread() -> None:
    await asyncio.to_thread(print)


async def _name() -> None:
    await asyncio.get_running_loop().getaddrinfo("example", 1)


async def _socket() -> None:
    await asyncio.open_connection("127.0.0.1", 9)


@pytest.mark.parametrize(
    "body, error",
    [
        (_sleep_for_ever, VirtualTimeError),
        (_spin, VirtualTimeError),
        (_thread, RealWorldError),
        (_name, RealWorldError),
        (_socket, RealWorldError),
    ],
)
def test_real_sockets_and_threads_are_refused_under_virtual_time(body, error) -> None:  # type: ignore[no-untyped-def]
    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        await body()

    with pytest.raises(error):
        run(main, seed=1, max_time_s=100, turns_a_second=10_000)


def test_a_killed_process_does_nothing_more() -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> tuple[list[str], bool]:
        did: list[str] = []

        async def child(process: Process) -> None:
            await asyncio.sleep(2)
            did.append("child after")

        async def work(process: Process) -> None:
            held = asyncio.create_task(child(process))
            did.append("before")
            await asyncio.sleep(1)
            process.kill()
            try:
                process.check_alive()
            finally:
                assert isinstance(held, asyncio.Task)

        process = Process("node1#1")
        process.on_kill(lambda: did.append("killed"))
        task = process.start(work(process))
        await asyncio.wait([task])
        await asyncio.sleep(5)
        return did, task.cancelled()

    assert run(main, seed=1) == (["before", "killed"], True)
    assert issubclass(KilledError, asyncio.CancelledError)


def test_an_unawaited_error_is_noted_unless_its_process_is_dead() -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> list[str]:
        async def fails() -> None:
            raise ValueError("lost")

        alive, dead = Process("a#1"), Process("b#1")
        tasks = [alive.start(fails()), dead.start(fails())]
        await asyncio.sleep(1)
        dead.kill()
        tasks.clear()
        await asyncio.sleep(1)
        return loop.unhandled

    (line,) = run(main, seed=1)
    assert line.startswith("a#1/")
    assert "lost" in line
