"""Operators of a query at two nodes move together, where neither would save anything by itself."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import JointLink, JointSide, MoveJointly, WeighJointMove
from tests.adaptation.test_group_moves import CHAIN
from tests.adaptation.test_optimizer import SMALL, adapting
from tests.nodes.clusters import ask, declare, in_cluster, owner_of, source_at, state_of, submitted, uid_of
from tests.nodes.test_moved_operators import check_windows, finished, move, operators

ROWS = 1800
QUALITY = NetworkQuality(jitter=0.0, spike=0.0, loss=0.0)
JOINT = msgspec.structs.replace(SMALL, least_measured_s=20.0, least_saving=0.2)
"""Either operator alone would save a twentieth: the way between c and d."""


def latency_s(one: str, other: str) -> float:
    """Return the one-way latency: a and b are near each other, and so are c and d; the others are far."""
    return {frozenset("ab"): 0.02, frozenset("cd"): 0.005}.get(frozenset((one, other)), 0.1)


async def apart(cluster: SimulatedCluster, path: Path, rows: int = ROWS) -> tuple[str, str]:
    """Run a filter at c, and at d the aggregate that reads it; return both. Their rows come from b."""
    await declare(cluster, "a", source_at("b", rows=rows, rate=40.0))
    await submitted(cluster, "a", path, sql=CHAIN, strategy="consumer", adapt="local", decompose="never")
    while not (await state_of(cluster, "a")).rows:
        await cluster.clock.sleep(0.2)
    first, second = operators(cluster)
    await move(cluster, first, "a", "c", attempt="first")
    await move(cluster, second, "a", "d", attempt="second")
    return first, second


async def both(cluster: SimulatedCluster) -> tuple[OperatorInfo, OperatorInfo]:
    first, second = (await state_of(cluster, "a")).operators
    return first, second


def test_two_operators_at_two_nodes_move_together(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        path = tmp_path / "out.csv"
        await apart(cluster, path)
        await cluster.clock.sleep(35)
        first, second = await both(cluster)
        assert (first.node, second.node) == ("b", "b")
        assert [[past.node for past in one.past_moves] for one in (first, second)] == [["a", "c"], ["a", "d"]]
        reasons = {first.past_moves[-1].reason, second.past_moves[-1].reason}
        assert all("moves together with its neighbour" in reason for reason in reasons)
        assert [("after" in reason, "before" in reason) for reason in sorted(reasons)] == [(True, False), (False, True)]
        for one in (first, second):
            assert await owner_of(cluster, "a", one.id) == ("b", 3)
        await finished(cluster)
        check_windows(path, ROWS)

    in_cluster(tmp_path, "abcd", test, configs=adapting("abcd", JOINT), latency=latency_s, quality=QUALITY)


@pytest.mark.only_in_test_all("controls of joint moves")
def test_without_joint_moves_they_stay_apart(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await apart(cluster, tmp_path / "out.csv")
        await cluster.clock.sleep(35)
        assert [one.node for one in await both(cluster)] == ["c", "d"]

    configs = adapting("abcd", msgspec.structs.replace(JOINT, joint_neighbours=0))
    in_cluster(tmp_path, "abcd", test, configs=configs, latency=latency_s, quality=QUALITY)


async def refusal(cluster: SimulatedCluster, caller: str, target: str, call: WeighJointMove | MoveJointly) -> tuple[str, str]:
    with pytest.raises(SbonError) as refused:
        await ask(cluster, caller, cluster.at(caller).daemon.context.call(target, call))
    return refused.value.code, refused.value.message


def test_only_the_neighbours_host_may_ask_and_what_it_says_is_measured(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        first, second = await apart(cluster, tmp_path / "out.csv")
        query = uid_of(cluster)
        await cluster.clock.sleep(5)
        (source,) = (one.stream for one in cluster.at("c").daemon.hosting.operators.get(first).spec.inputs)
        weighing = WeighJointMove(query=query, operator=second, neighbour=first)
        moving = MoveJointly(
            query=query,
            operator=second,
            neighbour=first,
            target="b",
            neighbour_target="b",
            attempt="forged",
            side=JointSide(
                links=(JointLink(source, "b", 1500.0, True), JointLink(second, "d", 1500.0, False)),
                cores=0.1,
                memory_mb=150.0,
                bandwidth_bytes_s=0.0,
                state_bytes=0,
            ),
        )
        replace = msgspec.structs.replace
        for call in (weighing, moving):
            assert (await refusal(cluster, "a", "d", call))[0] == "not-owner"
            assert (await refusal(cluster, "c", "d", replace(call, neighbour=second)))[0] == "not-owner"
            assert (await refusal(cluster, "c", "d", replace(call, operator=first)))[0] == "operator-unknown"
            assert (await refusal(cluster, "c", "d", replace(call, query="q-nobody")))[0] == "operator-unknown"
        cases = [
            (replace(moving, target="d"), "no candidate"),
            (replace(moving, neighbour_target="c"), "no candidate"),
            (replace(moving, target="c", neighbour_target="d"), "measured here"),
            (replace(moving, side=replace(moving.side, refused=("b",))), "no candidate"),
        ]
        for call, reason in cases:
            code, message = await refusal(cluster, "c", "d", call)
            assert (code, reason in message) == ("joint-move-refused", True), message
        strange = replace(moving, side=replace(moving.side, links=moving.side.links[:1]))
        assert (await refusal(cluster, "c", "d", strange))[0] == "bad-answer"
        lies = replace(moving, side=replace(moving.side, past_moves=({"node": 1},)))
        assert (await refusal(cluster, "c", "d", lies))[0] == "bad-answer"
        gone = replace(moving, side=replace(moving.side, links=(JointLink(source, "nowhere", 9.0, True), moving.side.links[1])))
        assert (await refusal(cluster, "c", "d", gone))[0] == "latency-unknown"
        assert [one.node for one in await both(cluster)] == ["c", "d"]
        proposing = {node: cluster.at(node).daemon.adaptation.local.optimizer.joint.proposing for node in "cd"}
        proposing["c"][first] = proposing["d"][second] = None  # both propose at the same time: the lower id's host is heard
        back = WeighJointMove(query=query, operator=first, neighbour=second)
        assert await refusal(cluster, "d", "c", back) == ("joint-move-refused", "its own proposal comes first")
        await ask(cluster, "c", cluster.at("c").daemon.context.call("d", moving))
        while cluster.at("d").daemon.hosting.moves.departures.under_way(second) is not None:
            await cluster.clock.sleep(0.5)
        assert [one.node for one in await both(cluster)] == ["c", "b"]
        await finished(cluster)
        check_windows(tmp_path / "out.csv", ROWS)

    patient = msgspec.structs.replace(JOINT, period_s=3600.0, least_measured_s=5.0, rest_s=0.0)
    in_cluster(tmp_path, "abcd", test, configs=adapting("abcd", patient), latency=latency_s, quality=QUALITY)


@pytest.mark.one_part_per_commit("operators that may not move again", parts=2)
@pytest.mark.parametrize(("knobs", "reason"), [({"rest_s": 600.0}, "it rests for"), ({"most_moves": 1}, "it has moved 1 times")])
def test_proposals_move_no_operator_that_rests_or_has_moved_often(tmp_path: Path, knobs: dict[str, float], reason: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        first, second = await apart(cluster, tmp_path / "out.csv")
        await cluster.clock.sleep(5)
        side = JointSide(links=(), cores=0.1, memory_mb=150.0, bandwidth_bytes_s=0.0, state_bytes=0)
        asked = {"query": uid_of(cluster), "operator": second, "neighbour": first}
        moving = MoveJointly(**asked, target="b", neighbour_target="b", attempt="again", side=side)
        for call in (WeighJointMove(**asked), moving):
            code, message = await refusal(cluster, "c", "d", call)
            assert (code, reason in message) == ("joint-move-refused", True), message

    patient = msgspec.structs.replace(JOINT, **{"period_s": 3600.0, "least_measured_s": 5.0, "rest_s": 0.0, **knobs})
    in_cluster(tmp_path, "abcd", test, configs=adapting("abcd", patient), latency=latency_s, quality=QUALITY)


def test_an_operator_stays_if_its_neighbour_dies_meanwhile(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        first, second = await apart(cluster, tmp_path / "out.csv")
        hosts = {first: "c", second: "d"}
        moving = ""
        while not moving:
            await cluster.clock.sleep(0.05)
            moves = (
                one for one, node in hosts.items() if cluster.at(node).daemon.hosting.moves.departures.under_way(one) is not None
            )
            moving = next(moves, "")
        stays = first if moving == second else second
        dead = cluster.at(hosts[moving])
        cluster.crash(dead)
        await cluster.clock.sleep(20)
        proposer = next(one for one in await both(cluster) if one.id == stays)
        assert proposer.node == hosts[stays]
        assert any(one.code == "together" and one.outcome.startswith("given-up") for one in proposer.decisions)
        cluster.boot(dead)
        await finished(cluster)
        check_windows(tmp_path / "out.csv", ROWS)

    in_cluster(tmp_path, "abcd", test, configs=adapting("abcd", JOINT), latency=latency_s, quality=QUALITY)
