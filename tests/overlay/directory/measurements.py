"""Four simulated nodes that are asked to measure the ways between them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.overlay.directory.measuring import Outcome, Pair
from sbon_node.overlay.directory.settings import DirectorySettings
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.space.settings import SpaceSettings
from sbon_protocol.errors import SbonError
from sbon_protocol.measuring import MeasureRtt
from tests.nodes.clusters import ask, in_cluster

RTT_MS: dict[Pair, float] = {
    ("a", "b"): 20.0,
    ("a", "c"): 90.0,
    ("a", "d"): 160.0,
    ("b", "c"): 75.0,
    ("b", "d"): 180.0,
    ("c", "d"): 230.0,
}
Test = Callable[[SimulatedCluster], Awaitable[None]]


def one_way_s(a: str, b: str) -> float:
    return RTT_MS.get((min(a, b), max(a, b)), 0.0) / 2000


def measuring(tmp_path: Path, test: Test, *, quiet: bool = False, **settings: Any) -> None:
    """On ``abcd``; ``settings`` are the directory's; if ``quiet``, no node probes for a minute."""
    config = msgspec.structs.replace(CONFIG, directory=DirectorySettings(**settings))
    if quiet:
        rarely = SpaceSettings(probe_interval_s=3600.0)
        config = msgspec.structs.replace(config, membership=MembershipSettings(probe_interval_s=60.0), space=rarely)
    in_cluster(tmp_path, "abcd", test, configs=dict.fromkeys("abcd", config), latency=one_way_s)


async def measured(cluster: SimulatedCluster, at: str, *pairs: str, max_age_s: float | None = None) -> dict[Pair, Outcome]:
    """``pairs`` of one-letter names; measured in the process of the node asked."""
    wanted = [(pair[0], pair[1]) for pair in pairs]
    directory = cluster.at(at).daemon.context.directory
    found: dict[Pair, Outcome] = await ask(cluster, at, directory.measure(wanted, max_age_s=max_age_s))
    return found


async def refused(cluster: SimulatedCluster, at: str, *pairs: str, **how: Any) -> SbonError:
    with pytest.raises(SbonError) as refusal:
        await measured(cluster, at, *pairs, **how)
    return refusal.value


def pings_of(cluster: SimulatedCluster, name: str) -> int:
    return cluster.network.traffic(name).kinds.get("ping", 0)


def count_asked(cluster: SimulatedCluster, name: str) -> list[tuple[str, ...]]:
    """The targets of each call the node gets from now on."""
    server = cluster.at(name).daemon.context.server
    served, calls = server._handlers["measure-rtt"], []

    async def counted(call: MeasureRtt, caller: Any) -> Any:
        calls.append(call.targets)
        return await served(call, caller)

    server.handle(MeasureRtt, counted)
    return calls
