"""Refused submissions leave nothing: the path of results is free again, although nodes died or were cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.leak_check import settled
from sbon_protocol.calls import DestroyComponents, OpenSink
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submit, submitted


def size_of(path: Path) -> int:
    """Bytes delivered, in parts or in one file."""
    return sum(found.stat().st_size for found in (*path.glob("part-*"), path) if found.is_file())


def left(folder: Path) -> list[Path]:
    return sorted(folder.glob("out*"))


@pytest.mark.one_part_per_commit("files of refused submissions", parts=2)
@pytest.mark.parametrize("name", ["out.ndjson", "out.parquet"])
def test_an_operator_that_does_not_start_leaves_no_rows_of_those_that_did(tmp_path: Path, name: str) -> None:
    out = tmp_path / name

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"), source_at("b"))
        submitting = cluster.call("c", submit(cluster, "c", out, strategy="producer"))
        await cluster.until(lambda: bool(cluster.nodes["b"].operators()), pause_s=0.001)
        cluster.network.cut("c", "b", both=True)
        await cluster.until(lambda: size_of(out) > 0)
        await cluster.until(submitting.done)
        with pytest.raises(SbonError, match="is lost"):
            submitting.result()
        assert not left(tmp_path)
        cluster.network.heal("c", "b")
        await submitted(cluster, "c", out, name="again", strategy="producer")
        while (info := await state_of(cluster, "c", "again")).state == "running":
            await cluster.clock.sleep(1.0)
        assert (info.state, info.rows) == ("finished", 200)

    in_cluster(tmp_path, "abc", test)


def test_the_first_failure_is_reported_and_not_the_stops_that_follow(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"), source_at("b"))
        slow, failing = cluster.nodes["b"].engine, cluster.nodes["a"].engine
        assert slow is not None
        assert failing is not None
        slow.times = msgspec.structs.replace(slow.times, start=(15.0, 15.0))
        failing.fails = "division by zero"
        submitting = cluster.call("c", submit(cluster, "c", tmp_path / "out.ndjson", strategy="producer"))
        await cluster.until(submitting.done)
        with pytest.raises(SbonError, match=r"ended while it started, failed: q-\w+\.b\d at a: division by zero"):
            submitting.result()

    in_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("deaths of nodes during a start", parts=2)
@pytest.mark.parametrize("dies", ["a", "c"])
def test_a_node_that_dies_during_the_start_removes_the_results_on_return(tmp_path: Path, dies: str) -> None:
    """``a`` keeps the record, ``b`` runs the operator, ``c`` keeps the results."""
    out = tmp_path / "out.ndjson"

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=1_000_000, rate=2.0))
        submitting = cluster.call("a", submit(cluster, "a", out, consumer="c", strategy="producer"))
        await cluster.until(lambda: bool(cluster.nodes["b"].operators()), pause_s=0.001)
        cluster.network.cut("a", "b", both=True)
        await cluster.until(lambda: size_of(out) > 0)
        cluster.crash(cluster.nodes[dies])
        await cluster.until(submitting.done)
        assert submitting.cancelled() or submitting.exception() is not None
        assert left(tmp_path)
        cluster.boot(cluster.nodes[dies])
        await cluster.until(lambda: not left(tmp_path))

    in_cluster(tmp_path, "abc", test)


def test_a_host_that_freezes_during_the_start_is_not_awaited_longer_than_members_miss_it(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        engine = cluster.nodes["b"].engine
        assert engine is not None
        engine.times = msgspec.structs.replace(engine.times, start=(15.0, 15.0))
        submitting = cluster.call("a", submit(cluster, "a", tmp_path / "out.ndjson", consumer="c", strategy="producer"))
        await cluster.until(lambda: bool(cluster.nodes["b"].operators()), pause_s=0.001)
        frozen_s = cluster.clock.now()
        cluster.loop.pause(cluster.nodes["b"].process)
        await cluster.until(submitting.done)
        with pytest.raises(SbonError, match=r"did not start: b is dead since ") as refused:
            submitting.result()
        assert (refused.value.code, refused.value.where) == ("peer-unreachable", "b")
        assert cluster.clock.now() - frozen_s < 60.0
        cluster.loop.resume(cluster.nodes["b"].process)
        await settled(cluster)
        assert not left(tmp_path)

    in_cluster(tmp_path, "abc", test)


def test_a_record_that_is_refused_late_is_not_taken_for_that_of_a_node_that_restarted(tmp_path: Path) -> None:
    """Too few acceptors answer while the submission is undone, and then members die and return for its node."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=1_000_000, rate=2.0))
        submitting = cluster.call("a", submit(cluster, "a", tmp_path / "out.ndjson", strategy="producer"))
        await cluster.until(lambda: bool(cluster.nodes["a"].operators()), pause_s=0.001)
        cluster.network.partition(("a",), ("b", "c"))
        await cluster.until(submitting.done)
        assert isinstance(submitting.exception(), SbonError)
        await cluster.sleep(60.0)
        cluster.network.heal()
        seen = []
        for _ in range(60):
            await cluster.sleep(1.0)
            seen += [info.reason for info in await ask(cluster, "b", cluster.at("b").daemon.queries.lookup.all())]
        assert not [reason for reason in seen if "restarted" in reason]
        assert await ask(cluster, "b", cluster.at("b").daemon.queries.lookup.all()) == []

    in_cluster(tmp_path, "abc", test, call_timeout_s=1.0, takeover_s=3600.0)


def test_a_consumer_that_dies_while_its_sink_opens_is_named(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))

        async def die(*_: object) -> None:
            cluster.crash(cluster.at("d"))
            await cluster.sleep(1.0)

        server: Any = cluster.at("d").daemon.context.server
        server.handle(OpenSink, die)
        with pytest.raises(SbonError) as refused:
            await ask(cluster, "a", submit(cluster, "a", tmp_path / "out.csv", consumer="d"))
        address = str(cluster.at("d").address)
        assert refused.value.code == "peer-unreachable"
        assert refused.value.where == f"d at {address}"
        assert refused.value.message.startswith("opening the sink failed: ")
        assert address not in refused.value.message
        assert "sbon members" in refused.value.hint

    in_cluster(tmp_path, "abcd", test)


def test_a_user_who_leaves_while_a_submission_is_undone_does_not_interrupt_it(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        server: Any = cluster.at("d").daemon.context.server
        destroy, asked = server._handlers["destroy-components"], []

        async def refuse(*_: object) -> None:
            raise SbonError("internal", "it cannot be opened")

        async def take_long(call: Any, caller: Any) -> Any:
            asked.append(call)
            await cluster.sleep(5.0)
            return await destroy(call, caller)

        server.handle(OpenSink, refuse)
        server.handle(DestroyComponents, take_long)
        user = cluster.user("a", submit(cluster, "a", tmp_path / "out.csv", consumer="d"))
        await cluster.until(lambda: bool(asked))
        cluster.give_up("a")
        await cluster.until(user.done)
        assert user.cancelled()
        await settled(cluster)

    in_cluster(tmp_path, "abcd", test)


def test_a_query_that_ends_before_its_user_learns_that_it_has_begun_is_cleaned_up(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        leader: Any = cluster.at("a").daemon.queries.leader
        mark_running, tries = leader.mark_running, []

        async def lose_the_answer(query: str) -> Any:
            tries.append(query)
            if len(tries) == 1:
                await mark_running(query)
                leader._submitting[query] = None
                raise SbonError("no-majority", "the answer is lost")
            await leader.stop(query)
            return await mark_running(query)

        leader.mark_running = lose_the_answer
        submitting = cluster.call("a", submit(cluster, "a", tmp_path / "out.csv", consumer="d"))
        await cluster.until(submitting.done)
        with pytest.raises(SbonError, match="stopped by a user"):
            submitting.result()
        await settled(cluster)

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("engines that do not start", parts=2)
@pytest.mark.parametrize("engine", ["late", "failed"])
def test_a_query_is_placed_again_without_a_host_whose_engine_does_not_start(tmp_path: Path, engine: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        slow = cluster.nodes["b"].engine
        assert slow is not None
        if engine == "late":
            slow.times = msgspec.structs.replace(slow.times, start=(400.0, 400.0))
        else:

            async def fails(*_: object) -> None:
                raise SbonError("engine-failed", "the engine was not ready within 180 s")

            slow.instantiate = fails  # type: ignore[method-assign]
        info = await submitted(cluster, "a", tmp_path / "out.csv", consumer="c", strategy="producer")
        assert [one.node for one in info.operators] not in ([], ["b"])
        await cluster.sleep(600.0)
        info = await state_of(cluster, "a")
        assert (info.state, info.rows, cluster.nodes["b"].operators()) == ("finished", 100, [])
        await settled(cluster)

    in_cluster(tmp_path, "abc", test)


def test_an_engine_that_does_not_start_is_the_reason_where_no_other_node_is_left(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))

        async def fails(*_: object) -> None:
            raise SbonError("engine-failed", "the engine was not ready within 180 s")

        cluster.nodes["a"].engine.instantiate = fails  # type: ignore[method-assign, union-attr]
        submitting = cluster.call("a", submit(cluster, "a", tmp_path / "out.csv"))
        await cluster.until(submitting.done)
        with pytest.raises(SbonError, match="did not start: the engine was not ready within 180 s") as refused:
            submitting.result()
        assert (refused.value.code, refused.value.where, len(refused.value.details)) == ("engine-failed", "a", 1)
        await settled(cluster)

    in_cluster(tmp_path, "a", test)


def test_the_name_of_a_refused_submission_is_free_though_its_node_is_gone(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        engines = [node.engine for node in cluster.nodes.values() if node.engine is not None]

        async def fails(*_: object) -> None:
            raise SbonError("engine-failed", "the engine was not ready within 180 s")

        for engine in engines:
            engine.instantiate = fails  # type: ignore[method-assign]
        with pytest.raises(SbonError, match="did not start"):
            await submitted(cluster, "b", None)
        for engine in engines:
            del engine.instantiate
        await settled(cluster)
        cluster.crash(cluster.at("b"))
        await cluster.until(lambda: cluster.at("a").daemon.context.presence.away("b") != "")
        assert (await submitted(cluster, "c", None)).id == "q"

    in_cluster(tmp_path, "abcd", test)
