"""Further sinks go on while the operator that they read moves, or is taken over by its backup; and the leader's duties."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.model.records import OperatorRegister
from sbon_protocol.api.durability import REPLICATED
from sbon_protocol.api.queries import SinkRequest, SinkSpec
from sbon_protocol.api.states import further_sink_states
from sbon_protocol.calls import AddSink
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, owner_of, source_at, state_of, submitted, uid_of
from tests.nodes.test_further_sinks import added, ended, ids, in_cluster, removed, running, subscribers
from tests.nodes.test_moved_operators import move


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_sinks_follow_an_operator_that_moves(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await running(cluster, tmp_path / "first.ndjson", rows=600)
        await cluster.clock.sleep(1.0)
        kept = await added(cluster, tmp_path / "kept.ndjson")
        await added(cluster, tmp_path / "gone.ndjson")
        await cluster.clock.sleep(1.0)
        moving = cluster.loop.create_task(move(cluster, operator, "b", "e"))
        await removed(cluster, "sink3")
        await moving
        assert (await owner_of(cluster, "a", operator))[0] == "e"
        await cluster.clock.sleep(15.0)
        assert subscribers(cluster, "e", operator) == {f"{uid_of(cluster)}.sink", f"{uid_of(cluster)}.sink2"}
        later = await added(cluster, tmp_path / "later.ndjson")
        assert later.begins_after > kept.begins_after
        await ended(cluster)
        assert ids(tmp_path / "first.ndjson") == list(range(600))
        assert ids(tmp_path / "kept.ndjson") == list(range(kept.begins_after, 600))
        assert ids(tmp_path / "later.ndjson") == list(range(later.begins_after, 600))

    in_cluster(tmp_path, "abcde", test, orphan_check_s=5.0)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_sinks_go_on_at_the_backup_of_a_lost_operator(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await running(cluster, tmp_path / "first.ndjson", rows=130, rate=2.0, durability=REPLICATED)
        await cluster.clock.sleep(3.0)
        registers = cluster.at("a").daemon.ownership.operators

        async def register() -> OperatorRegister:
            found: OperatorRegister = await ask(cluster, "a", registers.read(uid_of(cluster), operator))
            return found

        first_backup = (await register()).backup
        host = "d" if first_backup == "e" else "e"
        assert (await move(cluster, operator, "b", host)).step == "moved"
        await cluster.clock.sleep(3.0)
        other = "d" if host == "e" else "e"
        kept = await added(cluster, tmp_path / "kept.ndjson", at=other)
        await added(cluster, tmp_path / "gone.ndjson", at=other)
        await cluster.clock.sleep(3.0)
        backup = (await register()).backup
        cluster.crash(cluster.at(host))
        await removed(cluster, "sink3")
        await cluster.clock.sleep(25.0)
        assert (await register()).host == backup
        uid = uid_of(cluster)
        assert subscribers(cluster, backup, operator) == {f"{uid}.sink", f"{uid}.sink2"}
        await ended(cluster)
        assert ids(tmp_path / "first.ndjson") == list(range(130))
        assert ids(tmp_path / "kept.ndjson") == list(range(kept.begins_after, 130))

    in_cluster(tmp_path, "abcde", test, orphan_check_s=5.0)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_the_leader_takes_back_what_a_node_that_died_has_left(tmp_path: Path) -> None:
    """The node that adds the sink dies between the record and the answer of the sink's node."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("b", rows=110, rate=1.0))
        await submitted(cluster, "b", tmp_path / "first.ndjson", consumer="c", strategy="producer")
        await cluster.clock.sleep(1.0)
        server: Any = cluster.at("d").daemon.context.server
        serve = server._handlers["add-sink"]

        async def hang(*_: object) -> None:
            await asyncio.Event().wait()

        server.handle(AddSink, hang)
        cluster.call("a", _tried(cluster, tmp_path / "more.ndjson"))
        await cluster.clock.sleep(1.0)
        (opening,) = (await state_of(cluster, "c")).sinks
        assert opening.state == further_sink_states.OPENING
        leader = (await state_of(cluster, "c")).node
        cluster.crash(cluster.at(leader))
        server._handlers["add-sink"] = serve
        await cluster.clock.sleep(90.0)
        assert not (await state_of(cluster, "c")).sinks
        assert not (tmp_path / "more.ndjson").exists()
        cluster.boot(cluster.at(leader))
        await ended(cluster)
        assert ids(tmp_path / "first.ndjson") == list(range(110))

    in_cluster(tmp_path, "abcde", test)


async def _tried(cluster: SimulatedCluster, path: Path) -> None:
    request = SinkRequest(sink=SinkSpec(kind="file", options={"path": str(path)}), consumer="d")
    with suppress(SbonError):
        await cluster.at("a").daemon.queries.sinks.add("q", request)
