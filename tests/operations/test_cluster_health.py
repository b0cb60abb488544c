"""Every node knows which others can work and which cannot, and any node examines all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.operations import doctor, service
from sbon_node.operations.examination import CheckResult, Examination
from sbon_node.operations.metrics_snapshot import DiskMetrics
from sbon_node.operations.service import CHANGED_S, LOOK_S
from sbon_protocol.api.nodes import MemberInfo
from sbon_protocol.errors import SbonError
from sbon_protocol.measuring import ExamineNode, NodeExamined
from tests.adaptation.test_draining import drain
from tests.nodes.clusters import ask, declare, in_cluster, source_at

SPREAD_S = CHANGED_S + LOOK_S + 5.0
FULL = "0 MB are left on the disk of the data directory, a node needs 64"


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The nodes whose disks have no room; the test changes them."""
    nodes: set[str] = set()
    measured: Callable[[Path], DiskMetrics] = service.disk_metrics

    def disk_metrics(data_dir: Path) -> DiskMetrics:
        found = measured(data_dir)
        return found._replace(free_bytes=0) if {data_dir.name, data_dir.parent.name} & nodes else found

    monkeypatch.setattr(service, "disk_metrics", disk_metrics)
    return nodes


def health(cluster: SimulatedCluster, at: str) -> dict[str, tuple[bool | None, tuple[str, ...]]]:
    members: list[MemberInfo] = cluster.at(at).daemon.operations.distances.members()
    return {member.name: (member.ready, member.reasons) for member in members}


async def examined(cluster: SimulatedCluster, at: str) -> dict[tuple[str, str], CheckResult]:
    examination: Examination = await ask(cluster, at, cluster.at(at).daemon.operations.examine(everywhere=True))
    assert examination.node == at
    return {(one.node, one.check): one for one in examination.findings}


def test_all_nodes_know_which_are_not_ready_or_drained_and_the_doctor_says_why(tmp_path: Path, full: set[str]) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("c"))
        await cluster.sleep(SPREAD_S)
        assert health(cluster, "a") == dict.fromkeys("abc", (True, ()))
        full.add("b")
        await drain(cluster, "c")
        await cluster.sleep(SPREAD_S)
        expected = {"a": (True, ()), "b": (False, ("low-disk",)), "c": (True, ("drained",))}
        assert [health(cluster, at) for at in "abc"] == [expected] * 3
        status = cluster.at("b").daemon.operations.status()
        assert (status.ready, status.reasons) == expected["b"]
        found = await examined(cluster, "a")
        verdicts = {node: (found[node, "node"].verdict, found[node, "node"].message) for node in "abc"}
        assert verdicts == {
            "a": ("ok", "ready"),
            "b": ("failed", f"low-disk: {FULL}"),
            "c": ("warning", "drained: it takes no part in queries any more"),
        }
        members = found["a", "members"]
        assert (members.verdict, members.message) == ("warning", "b is not ready (low-disk), c works only in part (drained)")
        full.clear()
        await cluster.sleep(SPREAD_S)
        assert health(cluster, "a") == expected | {"b": (True, ())}
        cluster.crash(cluster.at("b"))
        await cluster.until(lambda: not cluster.at("a").daemon.membership.is_alive("b"))
        assert health(cluster, "a")["b"] == (None, ())

    in_cluster(tmp_path, "abc", test)


def test_a_node_that_cannot_be_examined_is_named_with_what_it_told(
    tmp_path: Path, full: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is of an earlier version, one is full and over the number of those that are examined, one alone is left."""
    monkeypatch.setattr(doctor, "MAX_EXAMINED", 1)

    async def test(cluster: SimulatedCluster) -> None:
        full.add("c")
        await cluster.sleep(SPREAD_S)
        server: Any = cluster.at("c").daemon.context.server
        server._handlers.pop("examine-node")
        found = await examined(cluster, "a")
        assert found["c", "node"].message == "not ready: low-disk", "those that are not ready come first"
        assert found["c", "examination"].verdict == "warning"
        assert "examine-node" in found["c", "examination"].message
        assert {check: one.message for (node, check), one in found.items() if node == "b"} == {
            "node": "ready, as it tells all members"
        }

    in_cluster(tmp_path, "abc", test)


def test_the_doctor_names_overloaded_nodes(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        cluster.at("b").load_per_core = 9.0
        found = await examined(cluster, "a")
        told = found["b", "load"]
        assert (told.verdict, found["a", "load"].verdict) == ("warning", "ok")
        assert told.message.startswith("b had 9.0 runnable processes for each core")
        assert "sbon drain" in told.remedy

    in_cluster(tmp_path, "ab", test)


def test_members_that_ask_often_share_an_examination_and_are_refused_then(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        context, examiner = cluster.at("a").daemon.context, cluster.at("b").daemon.operations.doctor
        plain, runs = examiner._examined, []

        async def examined() -> Examination:
            runs.append(cluster.loop.time())
            return await plain()

        examiner._examined = examined  # type: ignore[method-assign]
        asked = [cluster.call("a", context.ask("b", ExamineNode(), NodeExamined)) for _ in range(doctor.BURST)]
        own = await ask(cluster, "b", examiner.examine())
        assert [len((await one).findings) for one in asked] == [len(own.findings)] * doctor.BURST
        assert len(runs) == 1
        with pytest.raises(SbonError) as refused:
            await ask(cluster, "a", context.ask("b", ExamineNode(), NodeExamined))
        assert refused.value.code == "too-many-measurements"
        await ask(cluster, "b", examiner.examine())
        assert len(runs) == 2

    in_cluster(tmp_path, "ab", test)
