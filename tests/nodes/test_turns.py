"""Turns of clients that wait for the planner, in virtual time."""

from __future__ import annotations

import asyncio
import random

from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_node.base.clock import Clock
from sbon_node.planning.process.planner import Turns


def test_a_busy_client_waits_behind_itself() -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> list[str]:
        turns, order = Turns(Clock()), list[str]()

        async def take(client: str, seconds: float) -> None:
            async with turns.turn(client):
                await asyncio.sleep(seconds)
                order.append(client)

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(take("busy", 1.0))
            await asyncio.sleep(0.5)
            for _ in range(3):
                group.create_task(take("other", 0.6))
        return order

    assert run(main, seed=1) == ["busy", "other", "other", "busy", "other", "busy", "busy"]
