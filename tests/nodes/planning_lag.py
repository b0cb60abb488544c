"""``python -m tests.nodes.planning_lag``: how late the event loop is while nasty texts are planned, in the planner process
and, for comparison, on the loop itself."""

from __future__ import annotations

import asyncio
import time

from sbon_lab.simulation.inline_planner import InlinePlanner
from sbon_node.base.clock import Clock
from sbon_node.planning.process.planner import ProcessPlanner
from sbon_node.planning.sql.settings import QuerySettings
from tests.nodes.test_planner import DOUBLING, NASTY, as_it_is, planned

EVERY_S = 0.005


async def late_ms(planner: ProcessPlanner | InlinePlanner, text: str) -> tuple[float, float, str]:
    """The longest delay of a timer, how long the text took (seconds), and what became of it."""
    worst = 0.0

    async def watch() -> None:
        nonlocal worst
        while True:
            asked = time.monotonic()
            await asyncio.sleep(EVERY_S)
            worst = max(worst, time.monotonic() - asked - EVERY_S)

    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0.02)
    begun = time.monotonic()
    found = await planned(planner, text, as_it_is)
    took_s = time.monotonic() - begun
    await asyncio.sleep(0.02)
    watching.cancel()
    return worst * 1000, took_s, found if isinstance(found, str) else f"{len(found.operators)} operators"


async def main() -> None:
    settings = QuerySettings()
    process, inline = ProcessPlanner(settings, Clock()), InlinePlanner(settings)
    print(f"{'text':28} {'chars':>6} {'process: late ms':>17} {'took s':>7} {'inline: late ms':>16}")
    try:
        for name, text in NASTY.items():
            late, took_s, outcome = await late_ms(process, text)
            on_loop = f"{(await late_ms(inline, text))[0]:16.0f}" if text != DOUBLING else f"{'minutes':>16}"
            print(f"{name:28} {len(text):6} {late:17.1f} {took_s:7.2f} {on_loop} {outcome}")
    finally:
        await process.close()


if __name__ == "__main__":
    asyncio.run(main())
