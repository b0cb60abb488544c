"""The leader of queries looks at their sinks: at few at a time, and without asking or logging the same again and again."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.queries.sinks import sink_failovers
from sbon_protocol.api.queries import SinkSpec
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_replicated_sources import lose
from tests.hosting.standby.test_sink_failover import ROWS, TAKES_S, Other, begun, check_rows, other
from tests.nodes.clusters import ask, declare, owner_of, source_at, state_of, submit
from tests.nodes.test_moved_operators import FILTER, finished

__all__ = ["other"]


@pytest.mark.one_part_per_commit("backups in virtual time", parts=6)
def test_a_leader_asks_for_few_sinks_at_a_time(tmp_path: Path, other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_failovers, "MOST_LOOKS", 2)
    queries, asking, most = 6, set[str](), 0
    ask_node = sink_failovers.SinkFailovers._ask

    async def count(self: Any, record: Any, register: Any, node: str) -> None:
        nonlocal most
        asking.add(record.id)
        most = max(most, len(asking))
        await asyncio.sleep(TAKES_S)
        try:
            await ask_node(self, record, register, node)
        finally:
            asking.discard(record.id)

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=ROWS, rate=20.0))
        for number in range(queries):
            sink = SinkSpec(kind="table", failover=True)
            query: dict[str, Any] = {"sql": FILTER, "strategy": "producer", "consumer": "e", "sink": sink}
            await ask(cluster, "a", submit(cluster, "a", None, name=f"q{number}", **query))
        await cluster.sleep(5.0)
        monkeypatch.setattr(sink_failovers.SinkFailovers, "_ask", count)
        lose(cluster, "e")
        for number in range(queries):
            while (await state_of(cluster, "a", f"q{number}")).consumer == "e":
                await cluster.clock.sleep(0.5)
        assert most == 2

    in_calm_cluster(tmp_path, "abcde", test)


def warnings(logs: list[Any]) -> list[str]:
    """Return the reasons of looks at sinks that have failed."""
    return [line["reason"] for line in logs if line["event"] == "sink-failover-waits"]


@pytest.mark.one_part_per_commit("backups in virtual time", parts=6)
def test_a_node_that_is_away_in_good_order_is_not_asked(tmp_path: Path, other: Other) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        sink = await begun(cluster, "table")
        with capture_logs() as logs:
            await cluster.stop("e")
            await cluster.sleep(150.0)
        assert warnings(logs) == []
        assert (await owner_of(cluster, "a", sink)) == ("e", 1)
        cluster.boot(cluster.at("e"))
        await finished(cluster)
        check_rows(other, "table")

    in_calm_cluster(tmp_path, "abcde", test)


@pytest.mark.one_part_per_commit("backups in virtual time", parts=6)
def test_a_refusal_that_is_repeated_is_logged_once(tmp_path: Path, other: Other) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await begun(cluster, "table")
        other.unreachable = set("abcde")
        lose(cluster, "e")
        with capture_logs() as logs:
            await cluster.sleep(150.0)
        reasons = warnings(logs)
        assert reasons
        assert all(before != reason for before, reason in pairwise(reasons))
        other.unreachable = set()
        await finished(cluster)
        check_rows(other, "table")

    in_calm_cluster(tmp_path, "abcde", test)
