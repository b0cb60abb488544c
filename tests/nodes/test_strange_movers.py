"""Calls about an operator that moves, from nodes that do not host it: they cost no copy, and end no move."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.config.config import Config
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_protocol.api.subscribers import is_follower
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import Refused, Subscribe
from sbon_protocol.moving import AbandonOperator, FollowOperator, PrepareOperator, SettleOperator
from tests.nodes.clusters import UNHURRIED, ask, in_cluster, owner_of
from tests.nodes.test_hostile_moves import begun, until_step
from tests.nodes.test_moved_operators import WINDOWS, check_windows, finished, operators, running

NAMES = "abcd"


def prepare(cluster: SimulatedCluster, operator: str, attempt: str) -> PrepareOperator:
    """Return the call by which b would begin to move the operator."""
    daemon = cluster.at("b").daemon
    hosted = daemon.hosting.operators.get(operator)
    tail = daemon.outbox.handover.tail(operator)
    return PrepareOperator(
        attempt=attempt,
        spec=hosted.spec,
        acceptors=hosted.acceptors,
        tail=tail,
        batch=tail.batch,
        cut=daemon.hosting.engine.cut(operator),
        lineages={},
    )


async def refusal(cluster: SimulatedCluster, caller: str, target: str, call: PrepareOperator | AbandonOperator) -> str:
    with pytest.raises(SbonError) as refused:
        await ask(cluster, caller, cluster.at(caller).daemon.context.call(target, call))
    return refused.value.code


def follows(cluster: SimulatedCluster, node: str) -> bool:
    return bool(list(cluster.at(node).daemon.hosting.moves.arrivals.components()))


@pytest.mark.parametrize("caller", ["b", "d"], ids=["its host, without a move", "another node"])
def test_only_a_move_that_the_register_has_is_prepared(tmp_path: Path, caller: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator, target = operators(cluster)[-1], cluster.at("c").daemon
        assert await refusal(cluster, caller, "c", prepare(cluster, operator, "forged")) == "not-owner"
        assert target.context.counters.snapshot()["move-refused"] == 1
        assert not follows(cluster, "c")
        assert operator not in target.hosting.room.reservations.operators()
        assert not (target.context.data_dir / "operators" / operator).exists()
        assert (await begun(cluster, operator)).step == "moved"
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, NAMES, test)


def test_accomplices_that_a_caller_names_as_acceptors_are_not_believed(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        call = prepare(cluster, operators(cluster)[-1], "forged")
        acceptors = tuple(msgspec.structs.replace(one, node="d") for one in call.acceptors)
        assert await refusal(cluster, "d", "c", msgspec.structs.replace(call, acceptors=acceptors)) == "not-owner"
        assert not follows(cluster, "c")

    in_cluster(tmp_path, NAMES, test)


def test_another_node_with_the_attempt_of_a_move_can_neither_replace_nor_end_it(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]
        moving = begun(cluster, operator)
        await until_step(cluster, "following")
        outbox = cluster.at("b").daemon.outbox
        followers = [(one, name) for one in outbox.streams() for name in outbox.link_counts(one).links if is_follower(name)]
        assert followers
        call = AbandonOperator(operator=operator, attempt="b-c")
        assert await refusal(cluster, "d", "b", call) == "not-owner"
        await ask(cluster, "d", cluster.at("d").daemon.context.call("c", call))
        assert await refusal(cluster, "d", "c", prepare(cluster, operator, "b-c")) == "not-owner"
        assert all(name in outbox.link_counts(one).links for one, name in followers)
        assert (await moving).step == "moved"
        assert await owner_of(cluster, "a", operator) == ("c", 2)
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, NAMES, test)


async def subscribed(cluster: SimulatedCluster, node: str, stream: str, subscriber: str) -> str:
    """Subscribe at b as any program at that node could; return the host's answer. The connection stays open."""
    context = cluster.at(node).daemon.context
    address, expected = context.membership.address_of("b"), context.membership.expected("b")
    channel = await ask(cluster, node, context.peers.open_stream(address, expected))
    await ask(cluster, node, channel.send(Subscribe(stream=stream, subscriber=subscriber, next=0, epoch=0, credit_bytes=2**23)))
    answer = await ask(cluster, node, channel.receive())
    return answer.code if isinstance(answer, Refused) else "subscribed"


def test_strangers_take_no_places_of_followers(tmp_path: Path) -> None:
    """One place for followers: it is left to the target of the move, in its attempt."""
    config = msgspec.structs.replace(UNHURRIED, streams=msgspec.structs.replace(CONFIG.streams, max_followers=1))

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator, outbox = operators(cluster)[-1], cluster.at("b").daemon.outbox
        (stream,) = (one for one in outbox.streams() if f"{operator}#0" in outbox.link_counts(one).links)
        strange = [f"{operator}#0~forged", "nobody-abcdef.o1#0~forged", f"{operator}~forged"]
        assert [await subscribed(cluster, "d", stream, name) for name in strange] == ["not-owner"] * 3
        assert await subscribed(cluster, "b", stream, f"{operator}#0~forged") == "not-owner"
        moving = begun(cluster, operator)
        await until_step(cluster, "copying")
        assert await subscribed(cluster, "d", stream, f"{operator}#0~b-c") == "not-owner"
        assert await subscribed(cluster, "c", stream, f"{operator}#0~b-d") == "not-owner"
        assert (await moving).step == "moved"
        assert cluster.at("b").daemon.context.counters.snapshot()["move-refused"] == 6
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, NAMES, test, configs=dict[str, Config](b=config))


def test_a_node_reads_few_registers_at_once_for_nodes_that_would_move_operators_to_it(tmp_path: Path) -> None:
    config = msgspec.structs.replace(UNHURRIED, migration=MigrationSettings(checks=1))

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        call, context = prepare(cluster, operators(cluster)[-1], "forged"), cluster.at("d").daemon.context
        answers = [cluster.call("d", context.call("c", call)) for _ in range(2)]
        codes = []
        for answer in answers:
            with pytest.raises(SbonError) as refused:
                await answer
            codes.append(refused.value.code)
        assert sorted(codes) == ["not-owner", "too-many-moves"]

    in_cluster(tmp_path, NAMES, test, configs=dict[str, Config](c=config))


def test_a_position_of_another_width_than_the_operators_inputs_is_refused_by_name(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS)
        operator = operators(cluster)[-1]
        daemon = cluster.at("b").daemon
        prepared, stream = prepare(cluster, operator, "b-c"), daemon.outbox.handover.export(operator, cut_off=True)
        cut = prepared.cut
        wide = msgspec.structs.replace(cut, offsets=cut.offsets * 1000)
        many = dataclasses.replace(stream, subscriptions=tuple((f"r{number}", 0, 0, "") for number in range(1000)))
        moving = begun(cluster, operator)
        await until_step(cluster, "following")
        calls = {
            "cut.offsets": [
                msgspec.structs.replace(prepared, cut=wide),
                FollowOperator(operator=operator, attempt="b-c", cut=wide),
                SettleOperator(operator=operator, attempt="b-c", cut=wide, stream=stream),
            ],
            "batches": [FollowOperator(operator=operator, attempt="b-c", cut=cut, batches=((1, 2, 3),))],
            "tail.offsets": [
                msgspec.structs.replace(prepared, tail=dataclasses.replace(prepared.tail, offsets=())),
                SettleOperator(
                    operator=operator,
                    attempt="b-c",
                    cut=cut,
                    stream=dataclasses.replace(stream, tail=dataclasses.replace(stream.tail, offsets=())),
                ),
            ],
            "stream.subscriptions": [SettleOperator(operator=operator, attempt="b-c", cut=cut, stream=many)],
        }
        for field, wrong in calls.items():
            for call in wrong:
                with pytest.raises(SbonError, match=field) as refused:
                    await ask(cluster, "b", daemon.context.call("c", call))
                assert refused.value.code == "bad-request"
        assert (await moving).step == "moved"
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, NAMES, test)
