"""Each operator and sink has a register of its own, at the acceptors of its query's record, which claims change alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.query_run import record_of
from sbon_node.model.records import OperatorRegister
from sbon_node.ownership.operators import FORM
from sbon_node.ownership.store.query_keys import key_of, operator_key
from sbon_protocol.calls import ClaimComponent, Claimed, ReportState, ReserveOperator
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, owner_of, source_at, state_of, submitted, uid_of
from tests.nodes.test_claims import call_from, refusal_of
from tests.nodes.test_descriptions import running
from tests.nodes.test_replicated_records import clean, stop


def kept_at(cluster: SimulatedCluster, key: str) -> list[str]:
    """The nodes that keep a copy of a register."""
    return sorted(
        name for name, node in cluster.nodes.items() if node.ready and node.daemon.ownership.acceptors.state(key) is not None
    )


def value_at(cluster: SimulatedCluster, node: str, component: str) -> OperatorRegister:
    state = cluster.at(node).daemon.ownership.acceptors.state(operator_key(component))
    assert state is not None
    return FORM.value(state)


def registers_kept(cluster: SimulatedCluster) -> list[str]:
    return sorted({key for node in cluster.nodes.values() if node.ready for key in node.daemon.ownership.acceptors.operators()})


async def lose_record(cluster: SimulatedCluster, node: str, uid: str) -> None:
    daemon = cluster.at(node).daemon
    daemon.ownership.registers.forget(key_of(uid))
    daemon.ownership.records._known.pop(uid)


def test_an_operator_is_registered_at_the_acceptors_of_its_query(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        uid = uid_of(cluster)
        record = record_of(cluster, "q")
        assert record is not None
        keepers = kept_at(cluster, key_of(uid))
        hosts = {**record.hosts, record.sink_component: record.consumer}
        assert len(keepers) == 3
        assert len(record.components) == 3
        for component in record.components:
            assert kept_at(cluster, operator_key(component)) == keepers
            instance = cluster.at(hosts[component]).daemon.membership.expected(hosts[component]).instance
            for keeper in keepers:
                assert value_at(cluster, keeper, component) == OperatorRegister(
                    id=component,
                    host=hosts[component],
                    instance=instance,
                    epoch=1,
                    definition_digest=record.definition_digest,
                    queries=(uid,),
                )

    in_cluster(tmp_path, "abcde", test)


def test_a_claim_changes_the_register_of_its_operator_alone(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        uid = uid_of(cluster)
        version = (await state_of(cluster, "a")).version
        cluster.crash(cluster.at("b"))
        cluster.boot(cluster.at("b"))
        await cluster.sleep(10)
        epochs = {one: (await owner_of(cluster, "a", f"{uid}.{one}"))[1] for one in ("b0", "b1", "sink")}
        assert sorted(epochs.values()) == [1, 1, 2]
        assert epochs["sink"] == 1
        assert (await state_of(cluster, "a")).version == version

    in_cluster(tmp_path, "abcd", test)


def test_an_operator_of_another_query_is_not_claimed_and_not_reported(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        await submitted(cluster, "a", tmp_path / "other.csv", name="other", consumer="d", strategy="producer", reuse="never")
        uid, other = uid_of(cluster), uid_of(cluster, "other")
        claim = ClaimComponent(query=other, component=f"{uid}.b0", epoch=1)
        assert await refusal_of(cluster, "b", claim) == "not-owner"
        failure = ReportState(query=other, component=f"{uid}.b0", state="failed", reason="late", epoch=1)
        assert await refusal_of(cluster, "b", failure) == "not-owner"
        assert await refusal_of(cluster, "b", ClaimComponent(query=uid, component=f"{uid}.b7", epoch=1)) == "record-unknown"

    in_cluster(tmp_path, "abcd", test)


def test_an_operator_placed_again_has_its_last_host(tmp_path: Path) -> None:
    """``b`` accepts the operator when it is asked, and refuses the reservation."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        server: Any = cluster.at("b").daemon.context.server
        asked: list[str] = []

        async def refuse(call: ReserveOperator, caller: object) -> None:
            asked.append(call.operator)
            raise SbonError("no-capacity", "taken meanwhile")

        server.handle(ReserveOperator, refuse)
        info = await submitted(cluster, "a", tmp_path / "out.csv", consumer="c", strategy="producer")
        assert asked
        host = {operator.id: operator.node for operator in info.operators}[asked[0]]
        assert host != "b"
        assert await owner_of(cluster, "d", asked[0]) == (host, 1)

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("lost acceptors of a claim", parts=3)
@pytest.mark.parametrize("lost", ["a", "b", "c"])
def test_a_claim_is_answered_without_one_of_the_acceptors(tmp_path: Path, lost: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        uid = uid_of(cluster)
        at = next(node for node in kept_at(cluster, key_of(uid)) if node not in (lost, "d"))
        cluster.crash(cluster.at(lost))
        claim = ClaimComponent(query=uid, component=f"{uid}.sink", epoch=1)
        assert await call_from(cluster, "d", claim, to=at) == Claimed(epoch=2)
        cluster.boot(cluster.at(lost))
        await cluster.sleep(30)
        keepers = kept_at(cluster, operator_key(f"{uid}.sink"))
        assert {value_at(cluster, keeper, f"{uid}.sink").epoch for keeper in keepers} == {2}, "the others catch up"

    in_cluster(tmp_path, "abcd", test)


def test_registers_of_operators_go_with_their_query(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        uid = uid_of(cluster)
        assert len(registers_kept(cluster)) == 3
        sink = operator_key(f"{uid}.sink")
        keeper = kept_at(cluster, sink)[0]
        late = cluster.at(keeper).daemon.ownership.acceptors._records[sink]
        await stop(cluster, "a")
        await clean(cluster)
        assert registers_kept(cluster) == []
        cluster.at(keeper).daemon.ownership.acceptors._records[sink] = late
        await clean(cluster)
        assert registers_kept(cluster) == [], "nor does a late message bring one back"
        claim = ClaimComponent(query=uid, component=f"{uid}.sink", epoch=1)
        assert await refusal_of(cluster, "d", claim) == "query-over"

    in_cluster(tmp_path, "abcd", test)


def test_the_register_of_a_query_that_nobody_knows_is_deleted_once_all_members_say_so(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        uid = uid_of(cluster)
        keepers = kept_at(cluster, key_of(uid))
        silent = next(node for node in "bcde" if node not in keepers)
        cluster.crash(cluster.at(silent))
        for keeper in keepers:
            await ask(cluster, keeper, lose_record(cluster, keeper, uid))
        await cluster.sleep(60)
        assert registers_kept(cluster), "one member may know it"
        cluster.boot(cluster.at(silent))
        await cluster.sleep(60)
        assert registers_kept(cluster) == []

    in_cluster(tmp_path, "abcde", test, orphan_check_s=15.0)
