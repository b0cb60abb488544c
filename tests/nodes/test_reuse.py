"""A new query reads running operators of equal signature in place of its own, and gets the rows that it would get alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.ownership.consensus.states import Acceptor
from sbon_protocol.api.moves import MoveRequest
from sbon_protocol.api.operators import Computation, PlannedInput
from sbon_protocol.api.plan import Plan
from sbon_protocol.api.queries import QueryInfo, QuerySpec
from sbon_protocol.api.sharing import OfferedOperator, StreamOffer, StreamReader
from sbon_protocol.calls import AskStreams, DestroyComponents, StreamOffers
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import (
    UNHURRIED,
    ask,
    declare,
    in_cluster,
    in_hurried_cluster,
    source_at,
    state_of,
    submitted,
    uid_of,
)

THIRD = "SELECT id, v FROM numbers WHERE id % 3 = 0"
RENAMED = "SELECT n.id AS number, n.v AS value FROM numbers n WHERE 0 = n.id % 3"
COUNTS = "SELECT window(ts, '1 second').start AS w, count(*) AS id FROM numbers WHERE id % 3 = 0 GROUP BY window(ts, '1 second')"
SUMS = "SELECT window(ts, '1 second').start AS w, sum(id) AS x FROM numbers WHERE id % 3 = 0 GROUP BY window(ts, '1 second')"
GREATEST = SUMS.replace("sum", "max")
ROWS = 360
ORPHAN_CHECK_S = 10


async def finished(cluster: SimulatedCluster, name: str) -> None:
    while (info := await state_of(cluster, "a", name)).state == "running":
        await cluster.clock.sleep(0.5)
    assert info.state == "finished", info.reason


async def ended(cluster: SimulatedCluster, nodes: str) -> None:
    """Wait until nothing is left of any query but its record."""
    await cluster.until(lambda: all(not cluster.at(one).daemon.hosting.operators.hosted() for one in nodes))
    await cluster.until(
        lambda: all(record.cleaned for one in nodes for record in cluster.at(one).daemon.queries.leader.records())
    )


def values(path: Path, column: str) -> list[int]:
    return sorted(json.loads(line)[column] for line in path.read_text().splitlines())


def test_an_equal_query_runs_no_operator_of_its_own(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await submitted(cluster, "b", tmp_path / "first.ndjson", name="first", sql=THIRD)
        await submitted(cluster, "c", tmp_path / "second.ndjson", name="second", sql=RENAMED)
        info: QueryInfo = await state_of(cluster, "c", "second")
        assert [one.id for one in info.operators] == []
        assert [one.id for one in info.shared] == [f"{uid_of(cluster, 'first')}.b0"]
        await finished(cluster, "first")
        await finished(cluster, "second")
        assert values(tmp_path / "first.ndjson", "id") == list(range(0, ROWS, 3))
        assert values(tmp_path / "second.ndjson", "number") == list(range(0, ROWS, 3))
        await ended(cluster, "abc")

    in_cluster(tmp_path, "abc", test)


def test_the_first_of_two_queries_may_be_stopped(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await submitted(cluster, "b", tmp_path / "first.ndjson", name="first", sql=COUNTS)
        await submitted(cluster, "c", tmp_path / "second.ndjson", name="second", sql=COUNTS)
        shared = (await state_of(cluster, "c", "second")).shared
        assert shared
        await cluster.clock.sleep(3.0)
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("first"))
        assert (await state_of(cluster, "a", "first")).state == "stopped"
        await finished(cluster, "second")
        counts = values(tmp_path / "second.ndjson", "id")
        assert sum(counts) == ROWS // 3
        await ended(cluster, "abc")

    in_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("ends of queries that share an operator", parts=16)
@pytest.mark.parametrize("stopped", ["first", "second"])
@pytest.mark.parametrize("crashed", [False, True])
def test_a_shared_operator_ends_with_its_last_query(tmp_path: Path, stopped: str, crashed: bool) -> None:
    """Also if its host is restarted after its own query is over."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await submitted(cluster, "b", tmp_path / "first.ndjson", name="first", sql=SUMS)
        await submitted(cluster, "c", tmp_path / "second.ndjson", name="second", sql=GREATEST)
        (shared,) = (await state_of(cluster, "c", "second")).shared
        assert shared.id == f"{uid_of(cluster, 'first')}.b0"
        await cluster.clock.sleep(2.0)
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop(stopped))
        if crashed:
            cluster.crash(cluster.at(shared.node))
            await cluster.clock.sleep(1.0)
            cluster.boot(cluster.at(shared.node))
            await cluster.clock.sleep(5.0)
        other = {"first": "second", "second": "first"}[stopped]
        await finished(cluster, other)
        expected = {"first": sum(range(0, ROWS, 3)), "second": None}[other]
        found = values(tmp_path / f"{other}.ndjson", "x")
        assert sum(found) == expected if expected is not None else max(found) == ROWS - 3
        await ended(cluster, "abc")

    in_cluster(tmp_path, "abc", test)


def test_a_shared_operator_moves_with_all_its_readers(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await submitted(cluster, "b", tmp_path / "first.ndjson", name="first", sql=SUMS)
        await submitted(cluster, "c", tmp_path / "second.ndjson", name="second", sql=GREATEST)
        (shared,) = (await state_of(cluster, "c", "second")).shared
        target = next(node for node in "abcd" if node != shared.node)

        async def move() -> None:
            request = MoveRequest(operator=shared.id, to=target)
            async for _ in cluster.at("a").daemon.adaptation.requested.move("first", request):
                pass

        await cluster.clock.sleep(1.0)
        await ask(cluster, "a", move())
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("first"))
        (moved,) = (await state_of(cluster, "c", "second")).shared
        assert moved.node == target
        await finished(cluster, "second")
        assert max(values(tmp_path / "second.ndjson", "x")) == ROWS - 3
        await ended(cluster, "abcd")

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_replicated_shared_operator_goes_on_at_its_backup_though_its_query_is_over(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        fields: dict[str, Any] = {"durability": "replicated", "consumer": "a", "strategy": "random"}
        for seed in range(20):
            info = await submitted(
                cluster, "b", tmp_path / f"{seed}.ndjson", name=f"first{seed}", sql=SUMS, reuse="never", **fields
            )
            hosts = {one.id.rpartition(".")[2]: one.node for one in info.operators}
            if hosts["b0"] in "cd" and hosts["o1"] != hosts["b0"]:
                break
            await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop(f"first{seed}"))
        first = f"first{seed}"
        for consumer in "bef":  # It pays to share with a host that is not farther away than the source.
            fields["consumer"] = consumer
            await submitted(cluster, "b", tmp_path / f"{consumer}.ndjson", name=consumer, sql=GREATEST, **fields)
            if shared_ones := (await state_of(cluster, "b", consumer)).shared:
                break
            await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop(consumer))
        (shared,) = shared_ones
        await cluster.clock.sleep(3.0)
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop(first))
        await cluster.clock.sleep(40.0 / 60.0)
        cluster.crash(cluster.at(shared.node))
        await finished(cluster, consumer)
        assert max(values(tmp_path / f"{consumer}.ndjson", "x")) == ROWS - 3

    in_hurried_cluster(tmp_path, "abcdef", test)


def test_two_equal_branches_have_rows_of_their_own(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await submitted(cluster, "b", None, name="first", sql=THIRD)
        await submitted(cluster, "c", tmp_path / "twice.ndjson", name="twice", sql=f"{THIRD} UNION ALL {THIRD}")
        info = await state_of(cluster, "c", "twice")
        assert (len(info.shared), len(info.operators)) == (1, 1)
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("first"))
        await finished(cluster, "twice")
        assert values(tmp_path / "twice.ndjson", "id") == sorted([*range(0, ROWS, 3)] * 2)

    in_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("differences between queries", parts=3)
@pytest.mark.parametrize("fields", [{"reuse": "never"}, {"max_delay_ms": 5000.0}, {"durability": "replicated"}])
def test_a_query_shares_only_what_is_equal_in_all_that_matters(tmp_path: Path, fields: dict[str, Any]) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await submitted(cluster, "b", None, name="first", sql=THIRD)
        info = await submitted(cluster, "c", tmp_path / "second.ndjson", name="second", sql=THIRD, **fields)
        assert not info.shared
        assert [one.id for one in info.operators] == [f"{uid_of(cluster, 'second')}.b0"]

    in_cluster(tmp_path, "abc", test)


def test_frames_that_are_gone_are_not_shared(tmp_path: Path) -> None:
    streams = msgspec.structs.replace(CONFIG.streams, operator_history_bytes=0)

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await submitted(cluster, "b", tmp_path / "first.ndjson", name="first", sql=THIRD)
        await cluster.clock.sleep(3.0)
        await submitted(cluster, "c", tmp_path / "second.ndjson", name="second", sql=THIRD)
        assert not (await state_of(cluster, "c", "second")).shared
        await finished(cluster, "second")
        assert values(tmp_path / "second.ndjson", "id") == list(range(0, ROWS, 3))

    in_cluster(tmp_path, "abc", test, config=msgspec.structs.replace(UNHURRIED, streams=streams))


def test_a_refused_query_gives_its_references_back(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=100_000, rate=60.0))
        await submitted(cluster, "b", None, name="first", sql=SUMS)
        uid = uid_of(cluster, "first")
        before = await ask(cluster, "a", cluster.at("a").daemon.ownership.operators.read(uid, f"{uid}.b0"))
        with pytest.raises(SbonError, match="there is no folder"):  # found by the consumer's node, when all else has begun
            await submitted(cluster, "c", tmp_path / "absent" / "second.ndjson", name="second", sql=GREATEST, consumer="b")
        await cluster.clock.sleep(5.0)
        after = await ask(cluster, "a", cluster.at("a").daemon.ownership.operators.read(uid, f"{uid}.b0"))
        assert after.queries == before.queries == (uid,)
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("first"))
        await ended(cluster, "abc")

    in_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_reference_of_a_query_that_was_never_made_is_swept(tmp_path: Path) -> None:
    """The node that took it has died between the reference and the record."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=100_000, rate=2.0))
        await submitted(cluster, "b", None, name="first", sql=SUMS)
        uid, daemon = uid_of(cluster, "first"), cluster.at("c").daemon

        async def refer() -> None:
            spec = QuerySpec(sql=GREATEST)
            plan = await daemon.queries.planning.plan(spec, "never-abcdef")
            plan = await daemon.queries.reuse.shared(plan, spec, "never-abcdef", "c")
            assert [one.id for one in plan.shared] == [f"{uid}.b0"]
            me = Acceptor("c", cluster.at("c").daemon.context.membership.expected("c").instance)
            await daemon.queries.reuse.refer(plan, spec, "never-abcdef", "c", (me,))

        async def queries() -> tuple[str, ...]:
            register = await ask(cluster, "a", cluster.at("a").daemon.ownership.operators.read(uid, f"{uid}.b0"))
            return tuple(register.queries)

        await ask(cluster, "c", refer())
        assert await queries() == (uid, "never-abcdef")
        for _ in range(4 * ORPHAN_CHECK_S):
            if await queries() == (uid,):
                break
            await cluster.clock.sleep(1.0)
        assert await queries() == (uid,)
        (host,) = (node for node in "abc" if f"{uid}.b0" in cluster.at(node).daemon.hosting.operators.hosted())
        links = cluster.at(host).daemon.outbox.link_counts(f"{uid}.b0").links
        assert set(links) == {f"{uid}.o1#0"}
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("first"))
        await ended(cluster, "abc")

    in_cluster(tmp_path, "abc", test, orphan_check_s=float(ORPHAN_CHECK_S))


@pytest.mark.parametrize(("reads_itself", "strategy"), [(False, "hybrid"), (True, "hybrid"), (False, "ants"), (True, "ants")])
def test_a_node_that_lies_about_an_operator_gets_nobody_to_read_it(tmp_path: Path, reads_itself: bool, strategy: str) -> None:
    """``a``, which hosts the source, calls another query's operator an equal one; the host of that knows better."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await submitted(cluster, "b", None, name="other", sql="SELECT id, v FROM numbers WHERE id % 3 = 1", strategy="consumer")
        plan = await planned(cluster)
        operator = f"{uid_of(cluster, 'other')}.b0"
        (read,) = plan.operators[0].inputs
        reads = PlannedInput(stream=operator if reads_itself else read.stream, schema=read.schema)
        third = plan.operators[0]
        lie = OfferedOperator(
            computation=Computation(
                id=operator, fragment=third.fragment, inputs=(reads,), schema=third.schema, signature=third.signature
            )
        )

        async def answer(call: AskStreams, caller: object) -> StreamOffers:
            made = lie if operator in call.streams else None
            readers = () if made else (StreamReader(component=operator, node="a"),)
            return StreamOffers(offers=(StreamOffer(stream=call.streams[0], earliest=1, readers=readers, operator=made),))

        cluster.at("a").daemon.context.server.handle(AskStreams, answer)
        info = await submitted(cluster, "c", tmp_path / "third.ndjson", name="third", sql=THIRD, strategy=strategy)
        assert not info.shared
        await finished(cluster, "third")
        assert values(tmp_path / "third.ndjson", "id") == list(range(0, ROWS, 3))

    async def planned(cluster: SimulatedCluster) -> Plan:
        plan: Plan = await ask(cluster, "c", cluster.at("c").daemon.queries.planning.plan(QuerySpec(sql=THIRD), "x"))
        return plan

    in_cluster(tmp_path, "abc", test)


def test_sinks_do_not_hide_the_operators_that_read_a_stream(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await submitted(cluster, "b", tmp_path / "first.ndjson", name="first", sql=SUMS)
        uid = uid_of(cluster, "first")
        info = await state_of(cluster, "b", "first")
        streams = [(one.node, one.id) for one in info.operators]
        read = []
        for node, stream in streams:
            answer = await ask(
                cluster, "c", cluster.at("c").daemon.context.ask(node, AskStreams(streams=(stream,)), StreamOffers)
            )
            (offer,) = (decode_record(value, StreamOffer) for value in answer.offers)
            read.append([one.component for one in offer.readers])
            assert cluster.at(node).daemon.context.publisher.readers(stream)
        assert read == [[f"{uid}.o1"], []]

    in_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("last queries of a shared operator", parts=2)
@pytest.mark.parametrize("last", ["owner", "reader"])
def test_an_operator_that_is_being_destroyed_is_not_shared(tmp_path: Path, last: str) -> None:
    """Its end takes several steps; a query that finds it meanwhile runs operators of its own."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await submitted(cluster, "b", None, name="first", sql=SUMS)
        over = "first"
        if last == "reader":
            over = "second"
            assert (await submitted(cluster, "b", None, name=over, sql=SUMS)).shared
            await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("first"))
            await cluster.clock.sleep(1.0)
        (host,) = (node for node in "abc" if cluster.at(node).daemon.hosting.operators.hosted())
        operators, begun = cluster.at(host).daemon.hosting.operators, asyncio.Event()
        destroy = operators.destroy

        async def slowly(call: DestroyComponents) -> None:
            if any(operators.get(one) is not None for one in call.components):
                begun.set()
                await cluster.clock.sleep(2.0)
            await destroy(call)

        operators.destroy = slowly  # type: ignore[method-assign]
        stopping = asyncio.create_task(ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop(over)))
        await begun.wait()
        await submitted(cluster, "c", tmp_path / "third.ndjson", name="third", sql=SUMS)
        await stopping
        operators.destroy = destroy  # type: ignore[method-assign]
        await finished(cluster, "third")
        assert (await state_of(cluster, "c", "third")).rows

    in_cluster(tmp_path, "abc", test)
