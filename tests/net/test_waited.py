"""The stamp of a datagram that had to wait in its socket is of its arrival, not of when this process got round to it."""

from __future__ import annotations

import asyncio
import time

import pytest

from sbon_node.clock import Clock
from sbon_node.net import waited
from sbon_node.net.counters import Counters
from sbon_node.net.settings import NetSettings
from sbon_node.net.sockets import SocketTransport
from sbon_node.net.transport import Address
from tests.addresses import own_host

LATE_S = 0.3


async def stamps_of_three(port: int) -> list[float]:
    """How late each of three datagrams is, by its stamp; the loop stands still while the second and third are under way."""
    clock = Clock.real()
    transport = SocketTransport(clock, NetSettings(), Counters(clock.now))
    late: list[float] = []
    sent: list[float] = []
    target = await transport.open_datagrams(
        Address(own_host(1), port), lambda payload, sender, stamp: late.append(stamp - sent[payload[0]])
    )
    source = await transport.open_datagrams(Address(own_host(2), port), lambda *_: None)
    try:
        for number in range(3):
            sent.append(source.send(bytes([number]), target.local))
            if number:
                time.sleep(LATE_S)  # noqa: ASYNC251
            while len(late) <= number:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    finally:
        source.close()
        target.close()
    return late


async def test_what_waits_in_the_socket_keeps_the_stamp_of_its_arrival() -> None:
    assert all(-1e-5 < late < LATE_S / 2 for late in (await stamps_of_three(4701))[1:])


async def test_a_step_of_the_wall_clock_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour back or forth: the stamp is then of when it was read, never in the future or the far past."""
    real = time.time
    for port, step_s in ((4702, 3600.0), (4703, -3600.0)):
        monkeypatch.setattr(waited.time, "time", lambda step_s=step_s: real() + step_s)
        late = await stamps_of_three(port)
        assert all(LATE_S * 0.9 <= seconds < 3600 for seconds in late[1:])
