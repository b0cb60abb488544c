"""Queries on whole nodes in virtual time: submission, placement by capacity, refusal, and end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.leak_check import leaks, settled
from sbon_node.config.config import Config
from sbon_node.context import Context, ControlSettings
from sbon_node.model.records import QueryRecord
from sbon_node.ownership.queries import LIVE
from sbon_node.placement.settings import PlacementSettings
from sbon_node.queries.driving import deploy
from sbon_protocol.api.queries import QueryInfo, SinkSpec, Submission
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import (
    SQL,
    UNHURRIED,
    ask,
    declare,
    in_cluster,
    plain,
    source_at,
    state_of,
    submit,
    submitted,
    uid_of,
)

NEEDED = 0.12
"""Cores: more than one operator asks for here, less than two."""


def room(cores: float, config: Config = CONFIG) -> Config:
    return msgspec.structs.replace(config, control=ControlSettings(cores=cores, memory_mb=8_000.0))


async def finished(cluster: SimulatedCluster, at: str, query: str = "q") -> int:
    """The rows of a query that has finished, and left nothing."""
    while (info := await state_of(cluster, at, query)).state in LIVE:
        await cluster.sleep(0.5)
    assert info.state == "finished", info.reason
    await settled(cluster)
    return info.rows


async def refusal(cluster: SimulatedCluster, at: str, path: Path | None, **fields: Any) -> SbonError:
    with pytest.raises(SbonError) as refused:
        await submitted(cluster, at, path, **fields)
    return refused.value


def left(folder: Path) -> list[Path]:
    return sorted(folder.glob("out*"))


async def until_placed(cluster: SimulatedCluster, host: str) -> None:
    await cluster.until(lambda: bool(cluster.nodes[host].operators()), pause_s=0.001)


# -- where a query is submitted, and where it goes ---------------------------------------------------------------------


@pytest.mark.one_part_per_commit("nodes that take a query", parts=6)
@pytest.mark.parametrize("at", "abcd")
def test_any_node_takes_a_query_and_every_node_tells_of_it(tmp_path: Path, at: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("a"))
        info = await submitted(cluster, at, tmp_path / "out.ndjson", consumer="c", strategy="random")
        assert (info.node, info.consumer, info.state) == (at, "c", "running")
        for node in "abcd":
            (told,) = await ask(cluster, node, cluster.at(node).daemon.queries.lookup.all())
            assert (told.id, told.node) == ("q", at)
        assert await finished(cluster, "d") == 100
        assert len((tmp_path / "out.ndjson").read_text().splitlines()) == 100

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("nodes that alone have room", parts=6)
@pytest.mark.parametrize("with_room", "abcd")
def test_the_only_node_with_room_is_found_however_few_are_asked_first(tmp_path: Path, with_room: str) -> None:
    few = msgspec.structs.replace(UNHURRIED, placement=PlacementSettings(k=1))
    configs = {node: room(4.0 if node == with_room else 0.01, few) for node in "abcd"}

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        info = await submitted(cluster, "d", None)
        assert info.placement is not None
        (assignment,) = info.placement.assignments
        assert assignment.node == with_room
        refused = {one.node: one.reason for one in assignment.candidates if not one.accepted}
        assert with_room not in refused
        assert all("0.01 cores free, 0.1" in reason for reason in refused.values())

    in_cluster(tmp_path, "abcd", test, configs=configs)


def test_no_room_names_the_operator_and_what_every_node_said(tmp_path: Path) -> None:
    few = msgspec.structs.replace(UNHURRIED, placement=PlacementSettings(k=1))

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        error = await refusal(cluster, "b", None)
        assert (error.code, plain(error.where)) == ("no-capacity", "q.b0")
        assert sorted(line[:2] for line in error.details) == ["a:", "b:", "c:", "d:"]
        assert all("0.01 cores free, 0.1" in line for line in error.details)
        await settled(cluster)

    in_cluster(tmp_path, "abcd", test, configs={node: room(0.01, few) for node in "abcd"})


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two queries are both placed before either reserves."""
    honest, placed = deploy.reserve, []

    async def reserve(context: Context, record: QueryRecord) -> dict[str, SbonError]:
        placed.append(record.id)
        while len(placed) < 2:
            await context.clock.sleep(0.01)
        return await honest(context, record)

    monkeypatch.setattr(deploy, "reserve", reserve)


async def submit_both(cluster: SimulatedCluster, **fields: Any) -> dict[str, QueryInfo | BaseException]:
    """Return the outcomes of query ``a`` at node a and query ``b`` at node b."""
    both = {at: cluster.call(at, submit(cluster, at, None, name=at, consumer="c", **fields)) for at in "ab"}
    await cluster.until(lambda: all(one.done() for one in both.values()))
    return {at: one.exception() or one.result() for at, one in both.items()}


@pytest.mark.usefixtures("at_once")
def test_a_late_reservation_is_placed_elsewhere(tmp_path: Path) -> None:
    """Both are promised the consumer's only place; one of them gets it."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        hosts, candidates = [], {}
        for info in (await submit_both(cluster, strategy="consumer")).values():
            assert isinstance(info, QueryInfo)
            assert info.placement is not None
            (assignment,) = info.placement.assignments
            hosts.append(assignment.node)
            candidates[assignment.node] = [one.node for one in assignment.candidates]
        (elsewhere,) = set(hosts) - {"c"}
        assert len(hosts) == 2
        assert "c" not in candidates[elsewhere]  # it was not asked again

    in_cluster(tmp_path, "abc", test, configs={"c": room(NEEDED)})


@pytest.mark.usefixtures("at_once")
def test_a_late_reservation_at_the_only_host_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        both = await submit_both(cluster)
        ((late, error),) = [(at, one) for at, one in both.items() if isinstance(one, BaseException)]
        assert isinstance(error, SbonError)
        assert (error.code, plain(error.where)) == ("no-capacity", f"{late}.b0")
        assert "c: refused to reserve" in error.details
        (first,) = both.keys() - {late}
        assert [info.id for info in await ask(cluster, "c", cluster.at("c").daemon.queries.lookup.all())] == [first]
        await ask(cluster, "c", cluster.at("c").daemon.queries.lookup.stop(first))
        await settled(cluster)
        assert (await submitted(cluster, late, None, name=late, consumer="c")).state == "running"

    in_cluster(tmp_path, "abc", test, configs={"a": room(0.01), "b": room(0.01), "c": room(NEEDED)})


# -- refusals ----------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"sql": "SELECT nothing FROM numbers"}, "unknown-column"),
    ({"sql": "SELECT id FROM nowhere"}, "unknown-stream"),
    ({"sql": "SELECT id FROM"}, "bad-sql"),
    ({"strategy": "guess"}, "unknown-strategy"),
    ({"consumer": "zoe"}, "unknown-node"),
    ({"consumer": "d"}, "node-away"),
    ({"sink": SinkSpec(kind="file", options={"path": "/nowhere/out.ndjson"})}, "bad-option"),
    ({"sink": SinkSpec(kind="file", options={"path": "/nowhere/out.ndjson"}), "consumer": "c"}, "bad-option"),
    ({"sink": SinkSpec(kind="file", options={"path": "out.txt"}), "consumer": "c"}, "bad-option"),
]


@pytest.mark.one_part_per_commit("refusals of submissions", parts=6)
@pytest.mark.parametrize("fields, code", REFUSED, ids=[f"{code}-{'-'.join(fields)}" for fields, code in REFUSED])
def test_a_refusal_leaves_nothing(tmp_path: Path, fields: dict[str, Any], code: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        await submitted(cluster, "b", None, name="taken")
        await ask(cluster, "b", cluster.at("b").daemon.queries.lookup.stop("taken"))
        await cluster.stop("d")
        await cluster.until(lambda: "d" not in cluster.at("a").daemon.membership.alive())

        async def try_it() -> None:
            async for _ in cluster.at("a").daemon.submitting.submitter.submit(Submission(**{"sql": SQL, "name": "q", **fields})):
                pass

        with pytest.raises(SbonError) as refused:
            await ask(cluster, "a", try_it())
        assert refused.value.code == code, refused.value
        cluster.boot(cluster.nodes["d"])
        await settled(cluster)
        assert [info.id for info in await ask(cluster, "c", cluster.at("c").daemon.queries.lookup.all())] == ["taken"]

    in_cluster(tmp_path, "abcd", test)


# -- endings -----------------------------------------------------------------------------------------------------------


def test_a_query_stopped_while_it_starts_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        submitting = cluster.call("a", submit(cluster, "a", tmp_path / "out.ndjson", consumer="c", strategy="producer"))
        await until_placed(cluster, "b")
        assert (await ask(cluster, "c", cluster.at("c").daemon.queries.lookup.stop("q"))).state == "stopped"
        await cluster.until(submitting.done)
        assert isinstance(submitting.exception(), SbonError)
        await settled(cluster)
        assert not left(tmp_path)

    in_cluster(tmp_path, "abc", test)


def test_a_node_that_restarts_while_it_places_undoes_it(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        submitting = cluster.call("a", submit(cluster, "a", tmp_path / "out.ndjson", consumer="c", strategy="producer"))
        await until_placed(cluster, "b")
        cluster.crash(cluster.nodes["a"])
        cluster.boot(cluster.nodes["a"])
        await cluster.together()
        assert submitting.cancelled()
        await settled(cluster)
        info = await state_of(cluster, "c")
        assert (info.state, info.reason) == ("failed", "the node restarted while the query was being placed")
        assert not left(tmp_path)

    in_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("hosts that are away at a stop", parts=2)
@pytest.mark.parametrize("away", "bc")
def test_a_host_that_is_away_when_its_query_is_stopped_cleans_up_when_it_is_back(tmp_path: Path, away: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=100_000, rate=2.0))
        await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="c", strategy="producer")
        await cluster.sleep(2.0)
        await cluster.stop(away)
        assert (await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))).state == "stopped"
        await cluster.sleep(60.0)
        assert await leaks(cluster) != []
        cluster.boot(cluster.nodes[away])
        await settled(cluster)
        assert (await state_of(cluster, away)).state == "stopped"

    in_cluster(tmp_path, "abc", test)


def test_an_operator_that_takes_its_time_to_end_leaves_no_subscription(tmp_path: Path) -> None:
    """Its source forgets it, it subscribes again before it ends, and can then tell its source nothing more."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=100_000, rate=2.0))
        await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="c", strategy="consumer")
        source, engine = cluster.at("b").daemon.outbox, cluster.nodes["c"].engine

        def subscribed() -> bool:
            return bool(source.link_counts(source_at("b").id).links)

        assert engine is not None
        assert engine.engine_process is not None
        await cluster.until(lambda: engine._operators[f"{uid_of(cluster)}.b0"].in_batch, pause_s=0.0005)
        engine.engine_process.stall(8.0)
        stopping = cluster.call("a", cluster.at("a").daemon.queries.lookup.stop("q"))
        await cluster.until(lambda: not subscribed(), pause_s=0.001)
        await cluster.until(subscribed, pause_s=0.001)
        cluster.network.cut("b", "c")
        await cluster.until(stopping.done)
        await cluster.sleep(30.0)
        cluster.network.heal()
        await settled(cluster)

    in_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("deaths of nodes of a running query", parts=3)
@pytest.mark.parametrize("dies", "abc")
def test_a_running_query_survives_the_death_of_any_of_its_nodes(tmp_path: Path, dies: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="c", strategy="producer")
        cluster.crash(cluster.nodes[dies])
        if dies == "a":
            assert (await state_of(cluster, "b")).state == "running"
        await cluster.sleep(30.0)
        cluster.boot(cluster.nodes[dies])
        await cluster.together()
        assert await finished(cluster, "b") == 100

    in_cluster(tmp_path, "abc", test)
