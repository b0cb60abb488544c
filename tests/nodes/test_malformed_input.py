"""Malformed datagrams at a whole node: it counts each one, and logs them at a limited rate."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.process import Process
from sbon_node.net.transport import Address
from sbon_protocol import datagram
from sbon_protocol.messages import Packet
from tests.nodes.clusters import in_cluster

STRANGER = Address("10.9.9.9", 7400)
LINES, PERIOD_S = 5, 10.0
"""As many lines of each kind in such a time, at most."""
FOREIGN = datagram.pack(Packet(cluster="another"))


@pytest.fixture(autouse=True)
def _warnings_are_heard(_quiet_logs: None) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


def test_a_flood_of_bad_datagrams_is_counted_and_makes_few_lines(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        stranger = cluster.network.transport(Process("stranger#1"), "stranger", STRANGER.host)
        endpoint = await stranger.open_datagrams(STRANGER, lambda payload, sender, stamp: None)
        node = cluster.at("a")

        async def flood(payload: bytes, count: int, seconds: float) -> list[tuple[str, int]]:
            """The lines it makes, and the count each tells."""
            with capture_logs() as lines:
                for _ in range(count):
                    endpoint.send(payload, node.address)
                    await cluster.sleep(seconds / count)
                await cluster.sleep(0.5)  # the last ones arrive
            assert {line["peer"] for line in lines} <= {str(STRANGER)}
            return [(line["event"], line["total"]) for line in lines]

        def counted(kind: str) -> int:
            return node.daemon.context.counters.snapshot().get(kind, 0)

        lines = await flood(b"\x00\xffnot ours", 1000, PERIOD_S - 1)
        assert lines == [("datagram-malformed", number) for number in range(1, LINES + 1)]
        assert counted("datagram-malformed") == 1000

        assert await flood(FOREIGN, 3, 0.1) == [
            ("datagram-wrong-cluster", number) for number in (1, 2, 3)
        ]  # has a share of its own
        await cluster.sleep(PERIOD_S)
        lines = await flood(b"", 50, 1.0)
        assert lines == [("datagram-malformed", 1000 + number) for number in range(1, LINES + 1)]
        assert (counted("datagram-malformed"), counted("datagram-wrong-cluster")) == (1050, 3)

    in_cluster(tmp_path, "ab", test)
