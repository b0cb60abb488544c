"""The doctor's verdict on peers' reports, and peers that really reach back, in virtual time."""

from __future__ import annotations

import math
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.net.transport import Address
from sbon_node.operations import doctor
from sbon_node.operations.doctor import PEER_BURST, Reach, Reached, judged
from sbon_node.operations.examination import CheckResult
from sbon_protocol.errors import SbonError
from sbon_protocol.measuring import ReachBack, ReachedBack
from sbon_protocol.messages import Endpoint
from tests.nodes.clusters import ask, in_cluster

HERE = Address("192.0.2.1", 7400)
ANSWER = ReachedBack(
    version=version("sbon"), wall_ms=0, seen=Endpoint("192.0.2.1", 40_000), known=Endpoint(*HERE), udp_ms=20.0, tcp_ms=60.0
)


def peer(name: str = "b", *, ping_ms: float | None = 20.0, offset_ms: float = 0.0, refusal: str = "", **answer: Any) -> Reached:
    told = None if refusal else msgspec.structs.replace(ANSWER, **answer)
    return Reached(name, ping_ms, told, refusal, offset_ms, 11.0 if told else math.inf)


CASES: list[tuple[list[Reached], dict[str, str], str]] = [
    ([peer()], {"ports b": "ok", "address": "ok", "clocks": "ok", "versions": "ok"}, "20.0 ms"),
    ([peer(ping_ms=None)], {"ports b": "failed", "address": "ok", "clocks": "ok", "versions": "ok"}, "UDP to it"),
    (
        [peer(udp="3 pings were not answered")],
        {"ports b": "failed", "address": "failed", "clocks": "ok", "versions": "ok"},
        "UDP from it: 3 pings",
    ),
    (
        [peer(tcp="no answer within 5 s")],
        {"ports b": "failed", "address": "failed", "clocks": "ok", "versions": "ok"},
        "node.advertise",
    ),
    ([peer(refusal="peer-unreachable: no answer")], {"ports b": "failed"}, "TCP to it: peer-unreachable"),
    (
        [peer(known=Endpoint("192.0.2.9", 7400))],
        {"ports b": "ok", "address": "warning", "clocks": "ok", "versions": "ok"},
        "b know another address",
    ),
    (
        [peer(offset_ms=5.0)],
        {"ports b": "ok", "address": "ok", "clocks": "ok", "versions": "ok"},
        "no difference",
    ),
    ([peer(offset_ms=-61.0)], {"ports b": "ok", "address": "ok", "clocks": "ok", "versions": "ok"}, "50 ms off"),
    ([peer(offset_ms=700.0)], {"ports b": "ok", "address": "ok", "clocks": "warning", "versions": "ok"}, "0.7 s ahead of"),
    ([peer(offset_ms=-60_000.0)], {"ports b": "ok", "address": "ok", "clocks": "failed", "versions": "ok"}, "60.0 s behind"),
    ([peer(version="9.9")], {"ports b": "ok", "address": "ok", "clocks": "ok", "versions": "warning"}, "9.9: b"),
]


@pytest.mark.parametrize("reached, verdicts, told", CASES)
def test_reports_of_peers_are_checked_and_every_failure_has_a_remedy(
    reached: list[Reached], verdicts: dict[str, str], told: str
) -> None:
    found = judged(reached, HERE)
    assert {finding.check: finding.verdict for finding in found} == verdicts
    assert any(told in finding.message + finding.remedy for finding in found)
    assert all(bool(finding.remedy) == (finding.verdict != "ok") for finding in found)


def test_a_loopback_address_is_no_use_to_peers_elsewhere() -> None:
    found = judged([peer(known=Endpoint("127.0.0.1", 7400))], Address("127.0.0.1", 7400))
    (address,) = [finding for finding in found if finding.check == "address"]
    assert (address.verdict, "192.0.2.1" in address.remedy) == ("failed", True)


def test_a_dead_member_is_listed_with_the_checks_left_out(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        async def members() -> CheckResult:
            found = await ask(cluster, "a", cluster.at("a").daemon.operations.examine())
            (told,) = [finding for finding in found.findings if finding.check == "members"]
            return told

        assert (await members()).verdict == "ok"
        cluster.crash(cluster.nodes["c"])
        await cluster.until(lambda: not cluster.at("a").daemon.membership.is_alive("c"))
        told = await members()
        assert (told.verdict, told.message) == ("warning", "c is dead; its ports, clock and version were not looked at")
        assert told.remedy

    in_cluster(tmp_path, "abc", test)


def reach_of(cluster: SimulatedCluster, node: str) -> Reach:
    return cluster.at(node).daemon.operations.reach


def test_peers_reach_back_and_say_how_far_and_where(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        reached: list[Reached] = await ask(cluster, "a", reach_of(cluster, "a").ask(["b", "c"]))
        address = cluster.at("a").address
        for one, name in zip(reached, ("b", "c"), strict=True):
            assert (one.node, one.refusal) == (name, "")
            assert one.answer is not None
            assert (one.answer.udp, one.answer.tcp, one.answer.version) == ("", "", version("sbon"))
            assert one.answer.known == Endpoint(*address)
            assert one.ping_ms == pytest.approx(one.answer.udp_ms, rel=0.5)
            assert abs(one.offset_ms) < one.uncertain_ms + 1
        verdicts = {finding.check: finding.verdict for finding in judged(reached, address)}
        assert verdicts == dict.fromkeys(("ports b", "ports c", "address", "clocks", "versions"), "ok")

    in_cluster(tmp_path, "abc", test)


def test_late_answers_of_busy_machines_are_no_lost_datagrams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A datagram takes 24 ms there and back."""
    monkeypatch.setattr(doctor, "PING_S", 0.03)

    async def test(cluster: SimulatedCluster) -> None:
        (reached,) = await ask(cluster, "a", reach_of(cluster, "a").ask(["b"]))
        assert [one.verdict for one in judged([reached], cluster.at("a").address) if one.check == "ports b"] == ["ok"]

    in_cluster(tmp_path, "ab", test)


def test_too_many_examinations_are_deferred(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        for _ in range(PEER_BURST):
            (one,) = await ask(cluster, "a", reach_of(cluster, "a").ask(["b"]))
            assert one.refusal == ""
        refused = [(await ask(cluster, "a", reach_of(cluster, "a").ask(["b"])))[0].refusal for _ in range(3)]
        assert any("too-many-measurements" in refusal for refusal in refused)
        assert cluster.at("b").daemon.operations.status().counters["reach-refused"] >= 1
        (other,) = await ask(cluster, "c", reach_of(cluster, "c").ask(["b"]))
        assert other.refusal == ""

    in_cluster(tmp_path, "abc", test)


def test_only_members_are_contacted(tmp_path: Path) -> None:
    """A caller says who it is; it is only ever reached where membership has that one."""

    async def test(cluster: SimulatedCluster) -> None:
        context = cluster.at("a").daemon.context
        context.peers._identity = context.peers._identity._replace(node="stranger")
        try:
            with pytest.raises(SbonError) as refused:
                await ask(cluster, "a", context.peers.call(cluster.at("b").address, ReachBack()))
        finally:
            context.peers._identity = context.peers._identity._replace(node="a")
        assert refused.value.code == "unknown-node"

    in_cluster(tmp_path, "ab", test)
