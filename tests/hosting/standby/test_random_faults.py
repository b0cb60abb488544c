"""Replicated operators under drawn faults, of which some take a host's disk away: every row comes out once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.faults.plan import Action, AtTime, Fault
from sbon_protocol.api.durability import HOT, REPLICATED, Durability
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_recovery import CHECKS, replicated
from tests.nodes.clusters import state_of
from tests.nodes.test_moved_operators import FILTER, WINDOWS

HOSTS = "cdef"
GENTLE: tuple[Action, ...] = (
    "kill",
    "kill-engine",
    "orphan",
    "pause",
    "cut",
    "cut-one-way",
    "partition",
    "disk-full",
    "slow-disk",
)
ROWS = 1600
APART_S = 45.0
"""Time between two losses of a disk: what was lost must be at two nodes again."""


def drawn(rng: random.Random) -> list[Fault]:
    """Three losses of disks, and lesser faults around them."""
    faults = []
    for number in range(3):
        begin_s = 2.0 + number * APART_S
        faults.append(Fault(AtTime(begin_s + rng.uniform(0, 5)), "wipe", rng.choice(HOSTS), down_s=rng.choice((3.0, 20.0))))
        for _ in range(3):
            node, other = rng.sample(HOSTS + "ab", 2)
            action = rng.choice(GENTLE)
            group = (other,) if action == "partition" else ()
            when = AtTime(begin_s + rng.uniform(0, 12))
            faults.append(Fault(when, action, node, other=other, group=group, down_s=rng.uniform(0.5, 15.0)))
    return faults


async def end_amid_faults(
    cluster: SimulatedCluster, path: Path, sql: str, seed: int, durability: Durability = REPLICATED
) -> tuple[str, str]:
    """Return the state and the reason with which the query ends."""
    await replicated(cluster, path, sql, durability=durability, rows=ROWS)
    cluster.fault_injector.arm(drawn(random.Random(f"faults/{seed}")))
    await cluster.sleep(3 * APART_S)
    while cluster.fault_injector.broken:
        await cluster.sleep(1.0)
    while (info := await state_of(cluster, "a")).state == "running":
        await cluster.sleep(1.0)
    return info.state, info.reason


ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("seeds of lost disks under replicated operators")


@pytest.mark.one_part_per_commit("kinds of operators under losses of disks", parts=6)
@pytest.mark.parametrize(
    "durability, sql, seed",
    [
        pytest.param(durability, sql, seed, marks=ONLY_IN_TEST_ALL if seed else ())
        for durability in (REPLICATED, HOT)
        for seed in range(10)
        for sql in (FILTER, WINDOWS)
    ],
)
def test_rows_come_out_once_whatever_disk_is_lost(tmp_path: Path, durability: Durability, sql: str, seed: int) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        assert await end_amid_faults(cluster, tmp_path / "out.csv", sql, seed, durability) == ("finished", "")
        CHECKS[sql](tmp_path / "out.csv", ROWS)

    in_calm_cluster(tmp_path, "ab" + HOSTS, test, seed=seed)
