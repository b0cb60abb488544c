"""Records of queries on three nodes: any one may be lost, and another one takes over."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.leak_check import leaks
from sbon_lab.simulation.query_run import record_of
from sbon_node.model.records import QueryRecord
from sbon_node.ownership.consensus.acceptor import AcceptorRecord
from sbon_node.ownership.consensus.states import Ballot
from sbon_protocol.api.queries import Progress, QueryInfo, SinkSpec, Submission
from sbon_protocol.calls import AskRegister, DestroyComponents, RegisterAnswer
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import SQL, ask, declare, in_cluster, plain, refuse_ends, source_at, state_of, submitted, uid_of
from tests.nodes.test_lost import lose_data

ROWS = 60
OTHERS = "bcde"
ORDERS = pytest.mark.only_in_test_all("orders in which all nodes stop")


async def runs(cluster: SimulatedCluster, path: Path, rows: int = ROWS) -> None:
    """Rows from ``b`` come to a file at ``c``; ``a`` has taken the submission, and hosts nothing."""
    await declare(cluster, "a", source_at("b", rows=rows, rate=1.0))
    await submitted(cluster, "a", path, consumer="c", strategy="producer")
    while not (await state_of(cluster, "a")).rows:
        await cluster.sleep(0.5)


async def lose(cluster: SimulatedCluster, how: str) -> None:
    if how == "wiped":
        await lose_data(cluster, "a")
    elif how == "killed":
        cluster.crash(cluster.at("a"))
    else:
        for other in OTHERS:
            cluster.network.cut("a", other, both=True)


async def listed(cluster: SimulatedCluster, at: str) -> list[tuple[str, str]]:
    return [(info.id, info.state) for info in await ask(cluster, at, cluster.at(at).daemon.queries.lookup.all())]


async def stop(cluster: SimulatedCluster, at: str) -> QueryInfo:
    info: QueryInfo = await ask(cluster, at, cluster.at(at).daemon.queries.lookup.stop("q"))
    return info


async def clean(cluster: SimulatedCluster) -> None:
    """Wait until nothing is left, for minutes at most."""
    for _ in range(180):
        if not await leaks(cluster):
            return
        await cluster.sleep(1)
    raise AssertionError(await leaks(cluster))


@pytest.mark.parametrize("how", ["killed", "wiped", "cut off"])
def test_a_query_is_listed_shown_and_stopped_at_every_node_without_its_submitter(tmp_path: Path, how: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await runs(cluster, tmp_path / "out.ndjson")
        await lose(cluster, how)
        await cluster.sleep(30)
        for at in OTHERS:
            assert await listed(cluster, at) == [("q", "running")]
            info = await state_of(cluster, at)
            assert (info.state, info.stale, info.node in OTHERS) == ("running", False, True)
        before = (await state_of(cluster, "e")).rows or 0
        await cluster.sleep(10)
        assert ((await state_of(cluster, "e")).rows or 0) > before, "it goes on"
        assert (await stop(cluster, "e")).state == "stopped"
        assert not cluster.at("b").operators()
        if how == "killed":
            cluster.boot(cluster.at("a"))
        cluster.network.heal()
        await cluster.together()
        await clean(cluster)
        assert await listed(cluster, "a") == [("q", "stopped")]

    in_cluster(tmp_path, "a" + OTHERS, test)


@pytest.mark.one_part_per_commit("losses of a submitter", parts=2)
@pytest.mark.parametrize("how", ["killed", "wiped"])
def test_a_query_finishes_without_its_submitter(tmp_path: Path, how: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await runs(cluster, tmp_path / "out.ndjson")
        await lose(cluster, how)
        for _ in range(200):
            if (await state_of(cluster, "d")).state == "finished":
                break
            await cluster.sleep(1)
        info = await state_of(cluster, "d")
        assert (info.state, info.rows) == ("finished", ROWS)
        assert len((tmp_path / "out.ndjson").read_text().splitlines()) == ROWS

    in_cluster(tmp_path, "a" + OTHERS, test)


@pytest.mark.one_part_per_commit("steps at which a submission's node is lost", parts=3)
@pytest.mark.parametrize("step", ["placing", "placed", "starting"])
@pytest.mark.parametrize("how", ["killed", "wiped", "cut off"])
def test_a_submission_whose_node_is_lost_ends_as_failed_and_is_undone(tmp_path: Path, how: str, step: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        lost = cluster.loop.create_future()

        async def submission() -> None:
            wanted = Submission(sql=SQL, name="q", consumer="c", strategy="producer", sink=SinkSpec())
            async for event in cluster.at("a").daemon.submitting.submitter.submit(wanted):
                if isinstance(event, Progress) and event.step == step and not lost.done():
                    lost.set_result(None)
                    await cluster.loop.create_future()

        call = cluster.call("a", submission())
        await cluster.until(lost.done)
        await lose(cluster, how)
        await cluster.sleep(60)
        assert await listed(cluster, "d") == [("q", "failed")]
        info = await state_of(cluster, "e")
        assert "while the query was being placed" in info.reason
        if how == "killed":
            cluster.boot(cluster.at("a"))
        cluster.network.heal()
        call.cancel()
        await cluster.together()
        await clean(cluster)
        assert (await submitted(cluster, "d", None, name="q")).state == "running", "its name is free again"

    in_cluster(tmp_path, "a" + OTHERS, test)


def test_a_stop_that_its_node_did_not_survive_is_carried_out_by_another(tmp_path: Path) -> None:
    """``a`` records the stop, its orders do not arrive, and it dies."""

    async def test(cluster: SimulatedCluster) -> None:
        await runs(cluster, tmp_path / "out.ndjson", rows=100_000)
        record = record_of(cluster, "q")
        assert record is not None
        served = {host: refuse_ends(cluster, host) for host in "bc"}
        cluster.call("a", cluster.at("a").daemon.queries.lookup.stop("q"))
        await cluster.until(lambda: (record_of(cluster, "q") or record).state == "stopped")
        cluster.crash(cluster.at("a"))
        assert cluster.at("b").operators()
        for host, serve in served.items():
            cluster.at(host).daemon.context.server.handle(DestroyComponents, serve)
        await cluster.sleep(60)
        assert not cluster.at("b").operators()
        cluster.boot(cluster.at("a"))
        await cluster.together()
        await clean(cluster)

    in_cluster(tmp_path, "a" + OTHERS, test)


def test_a_side_without_the_majority_changes_nothing_and_says_so(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await runs(cluster, tmp_path / "out.ndjson", rows=100_000)
        kept = [one.node for one in cluster.at("a").daemon.queries.leader.acceptors(uid_of(cluster))]
        assert kept[0] == "a"
        for other in OTHERS:
            cluster.network.cut("a", other, both=True)
        (info,) = await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.all())
        assert (info.state, info.stale) == ("running", True)
        assert "may be stale: no answer from" in info.reason
        shown = await state_of(cluster, "a")
        assert (shown.stale, "no-majority" in shown.reason or "too few of" in shown.reason) == (True, True)
        with pytest.raises(SbonError) as refused:
            await stop(cluster, "a")
        assert refused.value.code == "no-majority"
        await cluster.sleep(30)
        assert (await state_of(cluster, "d")).state == "running"
        assert (await stop(cluster, "d")).state == "stopped"
        assert [info.stale for info in await ask(cluster, "d", cluster.at("d").daemon.queries.lookup.all())] == [False]
        cluster.network.heal()
        await cluster.together()
        await clean(cluster)
        for at in "a" + OTHERS:
            assert (await state_of(cluster, at)).state == "stopped"

    in_cluster(tmp_path, "a" + OTHERS, test)


@pytest.mark.parametrize(
    "order",
    [pytest.param(order, marks=() if order[0] == "b" else ORDERS) for order in itertools.permutations("abc")],
    ids="".join,
)
def test_all_nodes_stop_and_start_in_any_order_and_the_query_goes_on(tmp_path: Path, order: tuple[str, ...]) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await runs(cluster, tmp_path / "out.ndjson", rows=50)
        for name in order:
            await cluster.stop(name)
        for name in reversed(order):
            cluster.boot(cluster.at(name))
            await cluster.sleep(3)
        await cluster.together()
        for _ in range(240):
            if (await state_of(cluster, "b")).state != "running":
                break
            await cluster.sleep(1)
        assert (await state_of(cluster, "b")).state == "finished"
        assert len((tmp_path / "out.ndjson").read_text().splitlines()) == 50
        await clean(cluster)

    in_cluster(tmp_path, "abc", test)


def test_a_wiped_acceptor_is_replaced_at_once(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await runs(cluster, tmp_path / "out.ndjson", rows=100_000)
        uid = uid_of(cluster)
        old = cluster.at("a").daemon.ownership.acceptors.me
        await lose_data(cluster, "a")
        await cluster.sleep(5)
        new = next(name for name in OTHERS if cluster.at(name).daemon.queries.leader.find(uid) is not None)
        acceptors = cluster.at(new).daemon.queries.leader.acceptors(uid)
        assert len(acceptors) == 3
        assert old not in acceptors

    in_cluster(tmp_path, "a" + OTHERS, test)


def test_an_acceptor_that_was_replaced_while_it_was_cut_off_forgets_its_copy(tmp_path: Path) -> None:
    """It comes back before the query ends, and nobody tells it of the end."""

    async def test(cluster: SimulatedCluster) -> None:
        await runs(cluster, tmp_path / "out.ndjson", rows=100_000)
        uid = uid_of(cluster)
        replaced = next(one.node for one in cluster.at("a").daemon.queries.leader.acceptors(uid) if one.node != "a")
        for other in "a" + OTHERS:
            if other != replaced:
                cluster.network.cut(replaced, other, both=True)
        while replaced in (one.node for one in cluster.at("a").daemon.queries.leader.acceptors(uid)):
            await cluster.sleep(1)
        cluster.network.heal()
        await cluster.together()
        await cluster.sleep(30)
        assert cluster.at(replaced).daemon.queries.leader.find(uid) is None
        await stop(cluster, "a")
        await clean(cluster)
        assert (await state_of(cluster, replaced)).state == "stopped"

    in_cluster(tmp_path, "a" + OTHERS, test, replace_s=20.0, repair_s=5.0)


def test_a_host_that_missed_the_end_ends_its_components_for_a_tombstone(tmp_path: Path) -> None:
    """The tombstone says that all hosts know of the end, which one does not."""

    async def test(cluster: SimulatedCluster) -> None:
        await runs(cluster, tmp_path / "out.ndjson", rows=100_000)
        refuse_ends(cluster, "b")
        await stop(cluster, "a")
        for name in "acde":
            await cluster.at(name).daemon.queries.leader.close()  # Nobody asks the host again.
        assert cluster.at("b").operators()
        await cluster.sleep(100)
        assert not cluster.at("b").operators()

    in_cluster(tmp_path, "a" + OTHERS, test)


def test_components_stay_while_no_node_has_the_record(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await runs(cluster, tmp_path / "out.ndjson", rows=100_000)
        uid = uid_of(cluster)
        kept = [one.node for one in cluster.at("a").daemon.queries.leader.acceptors(uid)]
        for name in kept:
            node = cluster.at(name).daemon
            del node.ownership.acceptors._records[f"query/{uid}"]
            node.ownership.records._known.pop(uid, None)
        await cluster.sleep(150)
        assert cluster.at("b").operators(), "a missing record is no proof"
        cluster.crash(cluster.at("b"))
        cluster.boot(cluster.at("b"))
        await cluster.sleep(150)
        assert cluster.at("b").operators(), "nor is it for a host that starts again"
        (info,) = await ask(cluster, "e", cluster.at("e").daemon.queries.lookup.all())
        assert (info.id, info.state) == ("q", "lost")
        left = "left are q.b0 at b, q.sink at c, which end with: sbon query stop q"
        assert plain(info.reason) == f"{', '.join(kept)} have lost its record; {left}"
        for host in "bc":
            counted = cluster.at(host).daemon.operations.metrics_snapshot().queries_without_record
            assert counted == {"lost": 1, "unreachable": 0}
        with pytest.raises(SbonError, match="have lost the record of 'q'") as refused:
            await state_of(cluster, "e")
        assert (refused.value.code, "sbon query stop q" in refused.value.hint) == ("record-lost", True)
        stopped = await stop(cluster, "e")
        assert (stopped.state, plain(stopped.reason)) == ("lost", "its record was lost; ended q.b0 at b, q.sink at c")
        assert not cluster.at("b").operators()

    in_cluster(tmp_path, "a" + OTHERS, test)


def test_a_stale_copy_decides_nothing(tmp_path: Path) -> None:
    """A node that has missed the end still has the query as running, and reads what the others have before it refuses."""

    def ended(record: QueryRecord) -> None:
        if record.state == "running":
            raise SbonError("record-changed", "it has not ended")

    async def test(cluster: SimulatedCluster) -> None:
        await runs(cluster, tmp_path / "out.ndjson", rows=100_000)
        records = cluster.at("a").daemon.ownership.records
        await lose(cluster, "cut off")
        await stop(cluster, "e")
        cluster.network.heal()
        assert records.get(uid_of(cluster)).state == "running"
        assert (await ask(cluster, "a", records.change(uid_of(cluster), ended))).after.state == "stopped"

    in_cluster(tmp_path, "a" + OTHERS, test)


def test_a_record_that_is_over_stays_while_an_acceptor_has_an_earlier_one(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=100_000, rate=1.0))
        await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="b", strategy="producer")
        uid, records = uid_of(cluster), cluster.at("a").daemon.ownership.records
        behind = next(one.node for one in records.acceptors(uid) if one.node not in "ab")
        for other in "a" + OTHERS:
            if other != behind:
                cluster.network.cut(behind, other, both=True)
        await stop(cluster, "a")
        while not records.get(uid).cleaned:
            await cluster.sleep(1)
        assert not await ask(cluster, "a", records.forget(uid))
        cluster.network.heal()
        while not await ask(cluster, "a", records.forget(uid)):
            await cluster.sleep(1)

    in_cluster(tmp_path, "a" + OTHERS, test)


def test_an_acceptor_that_has_read_a_change_which_it_missed_accepts_it(tmp_path: Path) -> None:
    """Else a restart brings back the earlier state, and its copy keeps the others from deleting theirs."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        await submitted(cluster, "a", None, consumer="b")
        await cluster.sleep(10)  # All have met, and have asked each other what they missed.
        uid = uid_of(cluster)
        key = f"query/{uid}"
        late = next(name for name in "bcd" if cluster.at(name).daemon.ownership.acceptors.state(key) is not None)
        server: Any = cluster.at(late).daemon.context.server
        serve = server._handlers["ask-register"]

        async def miss(call: AskRegister, caller: object) -> RegisterAnswer:
            if call.request["type"] == "accept":
                raise SbonError("internal", "the message is lost")
            answer: RegisterAnswer = await serve(call, caller)
            return answer

        server.handle(AskRegister, miss)
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        await cluster.sleep(5)
        for name in "abcd":
            cluster.at(name).daemon.ownership.registers._behind.clear()  # Their memory of who missed it is lost, as by a restart.
        server.handle(AskRegister, serve)
        record = await ask(cluster, late, cluster.at(late).daemon.queries.leader.read_record(uid))
        state = cluster.at(late).daemon.ownership.acceptors.state(key)
        assert state is not None
        assert state.version < record.version
        await cluster.sleep(10)
        state = cluster.at(late).daemon.ownership.acceptors.state(key)
        assert state is not None
        assert state.version == record.version

    in_cluster(tmp_path, "abcd", test)


def test_an_acceptor_that_has_promised_a_higher_ballot_gets_the_change_that_it_refuses(tmp_path: Path) -> None:
    """A proposer without a majority has asked it again and again. The two others accept the end of the query."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        await submitted(cluster, "a", None, consumer="b")
        await cluster.sleep(10)
        key = f"query/{uid_of(cluster)}"
        refusing = next(name for name in "bcd" if cluster.at(name).daemon.ownership.acceptors.state(key) is not None)
        acceptors = cluster.at(refusing).daemon.ownership.acceptors
        kept = acceptors._records[key]
        acceptors._records[key] = AcceptorRecord(Ballot(kept.promised.counter << 8, "d", "gone"), kept.accepted)
        assert (await stop(cluster, "a")).state == "stopped"
        await clean(cluster)
        (newest,) = {node.daemon.ownership.acceptors.state(key) for node in cluster.nodes.values()} - {None}
        assert acceptors.state(key) == newest

    in_cluster(tmp_path, "abcd", test)
