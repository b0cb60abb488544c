"""A link whose host is lost, or comes back, tries again at once, however long it has been pausing."""

from __future__ import annotations

import asyncio
import random

from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_node.base.clock import Clock
from sbon_node.net.transport import Address
from sbon_node.streams.links.link import paused
from sbon_protocol.errors import SbonError

HERE, THERE = Address("10.0.0.1", 7400), Address("10.0.0.2", 7400)


class Host:
    """Where membership says that the host is; an exception while it is away."""

    def __init__(self) -> None:
        self.at: Address | SbonError = HERE

    def locate(self) -> Address:
        if isinstance(self.at, SbonError):
            raise self.at
        return self.at


async def pause(clock: Clock, host: Host, later: Address | SbonError | None) -> tuple[bool, float]:
    """Pause for 4 s, with news of the host after 1 s; return whether it was cut short, and how long it lasted."""
    began_s = clock.now()
    waiting = asyncio.ensure_future(paused(clock, host.locate, 4.0))
    await clock.sleep(1.0)
    host.at = later or host.at
    changed = await waiting
    return changed, clock.now() - began_s


def test_news_of_the_host_end_a_pause() -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        host, clock = Host(), loop.clock()
        assert await pause(clock, host, None) == (False, 4.0)
        dead = SbonError("node-away", "the node 'b' is dead", where="node")
        for news in (dead, HERE, THERE):
            changed, lasted_s = await pause(clock, host, news)
            assert changed
            assert 1.0 <= lasted_s < 1.2
        assert await pause(clock, host, THERE) == (False, 4.0)

    run(main, seed=1, max_time_s=100.0)
