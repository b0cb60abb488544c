"""Ants that adapt running queries: their leader looks, ants walk, and operators move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.adaptation.whole import LedQueries
from sbon_node.config.config import Config
from sbon_node.context import ControlSettings
from sbon_node.model.servers import ServedFlow, ServerReport
from sbon_node.papers.ants.settings import AntSettings
from tests.nodes.clusters import UNHURRIED, declare, in_cluster, source_at, state_of, submitted

ANTS = AntSettings(explore_s=30.0, tell_s=2.0, update_s=8.0, rest_s=16.0, routing_ants=8, scouting_ants=8)


def config(cores: float) -> Config:
    control = ControlSettings(cores=cores, memory_mb=8_000.0)
    return msgspec.structs.replace(UNHURRIED, control=control, ants=ANTS)


CONFIGS = {"a": config(0.01), "b": config(4.0), "c": config(4.0), "d": config(0.01), "e": config(0.01)}
"""Rows go from a to d; only b and c have capacity; e takes the submission."""


def latency_s(one: str, other: str) -> float:
    """Node b is nearest to all others."""
    return 0.005 if "b" in (one, other) else 0.006


def keep_busy(cluster: SimulatedCluster, node: str, rows_s: float) -> None:
    """Let a node serve foreign rows that take 10 ms each."""
    room: Any = cluster.at(node).daemon.hosting.room
    flow = ServedFlow(rows_s=rows_s, row_ms=10.0, row_scv=1.0)
    room.measured = lambda load, query: ServerReport(flows=(flow,) if rows_s else ())


def updates_of(cluster: SimulatedCluster, node: str) -> LedQueries[Any]:
    """Those of ants are the first of a node."""
    return next(one for one in cluster.at(node).daemon.services if isinstance(one, LedQueries))


async def host(cluster: SimulatedCluster) -> str:
    (operator,) = (await state_of(cluster, "a")).operators
    return operator.node


async def begun(cluster: SimulatedCluster, out: Path, seconds: int) -> None:
    await cluster.sleep(5.0)
    await declare(cluster, "a", source_at("a", rows=10 * seconds, rate=10.0))
    await submitted(cluster, "e", out, consumer="d", strategy="ants", adapt="ants")
    assert await host(cluster) == "b"


async def finished(cluster: SimulatedCluster, out: Path, rows: int) -> None:
    while (await state_of(cluster, "a")).state != "finished":
        await cluster.sleep(2.0)
    check_rows(out, rows)


def check_rows(out: Path, rows: int) -> None:
    lines = out.read_text().splitlines()
    assert len(lines) == len(set(lines)) == rows


def test_operators_move_once_their_host_is_busy_and_stay_otherwise(tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"

    async def test(cluster: SimulatedCluster) -> None:
        await begun(cluster, out, 90)
        assert [node for node in CONFIGS if updates_of(cluster, node).ids()] == ["e"]
        keep_busy(cluster, "b", 20.0)
        await cluster.sleep(15.0)
        assert await host(cluster) == "b", "it has become slower, but nothing is faster by beta"
        (operator,) = (await state_of(cluster, "a")).operators
        assert [(one.verdict, one.code, one.leader) for one in operator.decisions] == [("stays", "not-faster", "e")]
        keep_busy(cluster, "b", 90.0)
        await cluster.sleep(25.0)
        assert await host(cluster) == "c"
        (operator,) = (await state_of(cluster, "a")).operators
        assert [past.reason.partition(" of ")[0] for past in operator.past_moves] == ["ants found a placement"]
        (moved,) = [one for one in operator.decisions if one.verdict == "moves"]
        assert (moved.code, moved.node, moved.target, moved.leader) == ("faster", "b", "c", "e")
        assert moved.reason == operator.past_moves[0].reason
        keep_busy(cluster, "b", 0.0)
        await cluster.sleep(30.0)
        assert await host(cluster) == "c", "it does not go back for a little"
        await finished(cluster, out, 900)

    in_cluster(tmp_path, "abcde", test, configs=CONFIGS, latency=latency_s)


def test_another_node_leads_when_the_leader_dies(tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"

    async def test(cluster: SimulatedCluster) -> None:
        await begun(cluster, out, 70)
        cluster.crash(cluster.at("e"))
        await cluster.sleep(20.0)
        (leader,) = [node for node in "abcd" if updates_of(cluster, node).ids()]
        assert leader != "e"
        keep_busy(cluster, "b", 90.0)
        await cluster.sleep(30.0)
        assert await host(cluster) == "c"
        await finished(cluster, out, 700)

    in_cluster(tmp_path, "abcde", test, configs=CONFIGS, latency=latency_s)


@pytest.mark.one_part_per_commit("adaptations that ants leave alone", parts=2)
@pytest.mark.parametrize("adapt", ["off", "local"])
def test_ants_leave_other_queries_alone(tmp_path: Path, adapt: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=100, rate=10.0))
        await submitted(cluster, "e", tmp_path / "out.ndjson", consumer="d", adapt=adapt)
        assert (await state_of(cluster, "a")).state == "running"
        assert [node for node in CONFIGS if updates_of(cluster, node).ids()] == []

    in_cluster(tmp_path, "abcde", test, configs=CONFIGS, latency=latency_s)
