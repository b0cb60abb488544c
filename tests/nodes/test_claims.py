"""The leader accepts claims and reports only for the submission and the epoch that its record has."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.base.store import RecordStore
from sbon_node.hosting.sinks.host import EndedSink, EndedSinks
from sbon_node.net.peers import Caller
from sbon_protocol.api.query_ids import new_uid
from sbon_protocol.calls import ClaimComponent, Claimed, ComponentsDestroyed, DestroyComponents, ReportState
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, in_cluster, owner_of, state_of, uid_of
from tests.nodes.test_descriptions import running


async def call_from(cluster: SimulatedCluster, node: str, call: Any, to: str = "a") -> Any:
    context = cluster.at(node).daemon.context
    return await ask(cluster, node, context.peers.call(context.membership.address_of(to), call))


async def refusal_of(cluster: SimulatedCluster, node: str, call: Any) -> str:
    with pytest.raises(SbonError) as caught:
        await call_from(cluster, node, call)
    return caught.value.code


def unwatched(cluster: SimulatedCluster) -> None:
    """Let no check compare epochs: the claims are the test's, and the operator goes on in the epoch that it has."""
    cluster.watch.checker.registers.publishes = lambda *_: None  # type: ignore[method-assign]


def test_a_claim_is_for_the_epoch_of_the_record_and_may_be_repeated(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        unwatched(cluster)
        uid = uid_of(cluster)
        claim = ClaimComponent(query=uid, component=f"{uid}.b0", epoch=1)
        assert await call_from(cluster, "b", claim) == Claimed(epoch=2)
        assert await call_from(cluster, "b", claim) == Claimed(epoch=2), "its answer was lost"
        assert await call_from(cluster, "b", msgspec.structs.replace(claim, epoch=2)) == Claimed(epoch=3)
        for stale in (1, 0, 9):
            assert await refusal_of(cluster, "b", msgspec.structs.replace(claim, epoch=stale)) == "not-owner"
        assert await refusal_of(cluster, "c", msgspec.structs.replace(claim, epoch=3)) == "not-owner"
        assert await owner_of(cluster, "a", f"{uid}.b0") == ("b", 3)

    in_cluster(tmp_path, "abcd", test)


def test_another_instance_of_the_host_does_not_repeat_its_claim(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        unwatched(cluster)
        uid = uid_of(cluster)
        claim = ClaimComponent(query=uid, component=f"{uid}.b0", epoch=1)
        await call_from(cluster, "b", claim)
        server: Any = cluster.at("a").daemon.context.server
        other = Caller("b", "another", cluster.at("b").address)
        with pytest.raises(SbonError, match="belongs to b in epoch 2"):
            await ask(cluster, "a", server._handlers["claim-component"](claim, other))

    in_cluster(tmp_path, "abcd", test)


def test_a_late_failure_ends_no_later_epoch_and_no_later_query_of_that_name(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        uid = uid_of(cluster)
        failure = ReportState(query=uid, component=f"{uid}.b0", state="failed", reason="late", epoch=1)
        assert await refusal_of(cluster, "b", msgspec.structs.replace(failure, epoch=4)) == "not-owner"
        earlier = new_uid("q", random.Random(1))
        of_earlier = msgspec.structs.replace(failure, query=earlier, component=f"{earlier}.b0")
        assert await refusal_of(cluster, "b", of_earlier) == "record-unknown"
        assert (await state_of(cluster, "a")).state == "running"
        await call_from(cluster, "b", failure)
        assert (await state_of(cluster, "a")).state == "failed"

    in_cluster(tmp_path, "abcd", test)


def test_a_slow_end_of_an_earlier_submission_destroys_nothing_of_a_later_one(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        uid = new_uid("q", random.Random(1))
        assert uid != uid_of(cluster)
        for node in "bcd":
            earlier = DestroyComponents(query=uid, components=(f"{uid}.b0", f"{uid}.b1", f"{uid}.sink"), refused=True)
            assert await call_from(cluster, "a", earlier, to=node) == ComponentsDestroyed()
        assert {operator.state for operator in (await state_of(cluster, "a")).operators} == {"running"}
        rows = (await state_of(cluster, "a")).rows or 0
        await cluster.sleep(5)
        assert ((await state_of(cluster, "a")).rows or 0) > rows

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.parametrize("restarts", [False, True])
def test_the_final_count_of_rows_survives_a_lost_answer(tmp_path: Path, restarts: bool) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        await cluster.sleep(5)
        server: Any = cluster.at("d").daemon.context.server
        serve, lost = server._handlers["destroy-components"], []

        async def lose_answers(call: DestroyComponents, caller: Caller) -> ComponentsDestroyed:
            answer: ComponentsDestroyed = await serve(call, caller)
            if len(lost) < 2:
                lost.append(answer)
                raise SbonError("internal", "the answer is lost")
            return answer

        server.handle(DestroyComponents, lose_answers)
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        if restarts:
            await cluster.until(lambda: len(lost) > 0)
            cluster.crash(cluster.at("d"))
            cluster.boot(cluster.at("d"))
        await cluster.sleep(90)
        written = len((tmp_path / "out.csv").read_text().splitlines()) - 1
        assert lost[0].rows == written > 10
        assert (await state_of(cluster, "a")).rows == written
        store: RecordStore = cluster.at("d").daemon.context.store
        assert store.all("sink-end", msgspec.Raw) == {}, "the leader has confirmed it"  # type: ignore[type-var]

    in_cluster(tmp_path, "abcd", test)


def test_final_reports_that_are_never_confirmed_are_bounded(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "node.db")
    ended = EndedSinks(store, 2)
    for number, query in enumerate("abc"):
        report = EndedSink(rows=number, report=None, ended_ms=number)
        ended.keep(query, report)
        ended.keep(query, msgspec.structs.replace(report, rows=0))
    assert [ended.get(query) is not None for query in "abc"] == [False, True, True]
    kept = EndedSinks(store, 2).get("c")
    assert kept is not None
    assert kept.rows == 2
    ended.confirm("c")
    assert EndedSinks(store, 2).get("c") is None
