"""The stamp of a datagram that had to wait in its socket is the time of its arrival, not the time at which it was read."""

from __future__ import annotations

import asyncio
import time
from statistics import median

import pytest

from sbon_node.base.clock import Clock
from sbon_node.net import sockets
from sbon_node.net.counters import Counters
from sbon_node.net.settings import NetSettings
from sbon_node.net.sockets import SocketTransport
from sbon_node.net.transport import Address
from tests.addresses import own_host

LATE_S = 0.3
DATAGRAMS = 6
"""Several, since a busy machine may stop the process for longer between sending and stamping."""


async def delays_by_stamp(port: int) -> list[float]:
    """Return each datagram's stamp minus the time it was sent; the loop stands still while all but the first are under way."""
    clock = Clock.real()
    transport = SocketTransport(clock, NetSettings(), Counters(clock.now))
    late: list[float] = []
    sent: list[float] = []
    target = await transport.open_datagrams(
        Address(own_host(1), port), lambda payload, sender, stamp: late.append(stamp - sent[payload[0]])
    )
    source = await transport.open_datagrams(Address(own_host(2), port), lambda *_: None)
    try:
        for number in range(DATAGRAMS):
            sent.append(source.send(bytes([number]), target.local))
            if number:
                time.sleep(LATE_S)  # noqa: ASYNC251
            while len(late) <= number:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    finally:
        source.close()
        target.close()
    return late[1:]


async def test_a_datagram_that_waits_in_the_socket_keeps_the_stamp_of_its_arrival() -> None:
    assert abs(median(await delays_by_stamp(4701))) < LATE_S / 2


@pytest.mark.one_part_per_commit("sockets", parts=6)
async def test_a_step_of_the_wall_clock_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour back or forth: the stamp is then of when it was read, never in the future or the far past."""
    real = time.time
    for port, step_s in ((4702, 3600.0), (4703, -3600.0)):
        monkeypatch.setattr(sockets.time, "time", lambda step_s=step_s: real() + step_s)
        assert all(LATE_S * 0.9 <= delay_s < 3600 for delay_s in await delays_by_stamp(port))
