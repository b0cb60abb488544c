"""Registers on whole nodes in virtual time: majorities, restarts, lost disks, changes of acceptors."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.ownership.consensus.acceptor import AcceptorRecord, Prepare, UnknownInstance
from sbon_node.ownership.consensus.changes import Verdict
from sbon_node.ownership.consensus.states import Acceptor, Ballot, chosen
from sbon_node.ownership.store.acceptor_store import MAX_VALUE_BYTES
from sbon_node.ownership.store.query_keys import key_of
from sbon_node.ownership.store.registers import LIFE_BITS, Registers
from sbon_protocol.api.bounded import MAX_COUNT
from sbon_protocol.calls import AskRegister, RegisterAnswer
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted, uid_of

KEY = "other/q-1"


def registers(cluster: SimulatedCluster, name: str) -> Registers:
    return cluster.at(name).daemon.ownership.registers


def acceptors(cluster: SimulatedCluster, names: str) -> tuple[Acceptor, ...]:
    by_name = {one.node: one for one in registers(cluster, names[0]).candidates()}
    return tuple(by_name[name] for name in names)


async def create(cluster: SimulatedCluster, at: str, names: str = "abc", value: bytes = b"one") -> None:
    outcome = await ask(cluster, at, registers(cluster, at).create(KEY, value, acceptors(cluster, names)))
    assert outcome.verdict == Verdict.APPLIED


async def value_at(cluster: SimulatedCluster, at: str) -> tuple[int, bytes]:
    state = await ask(cluster, at, registers(cluster, at).read(KEY))
    return state.version, state.value


def test_a_register_outlives_any_one_acceptor_for_every_node(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await create(cluster, "a")
        for down in "abc":
            cluster.crash(cluster.at(down))
            up = [name for name in "abcd" if name != down]
            for name in up:
                version, value = await value_at(cluster, name)
                change = registers(cluster, name).compare_and_set(KEY, version, value + name.encode())
                assert (await ask(cluster, name, change)).verdict == Verdict.APPLIED
                assert await value_at(cluster, up[0]) == (version + 1, value + name.encode())
            cluster.boot(cluster.at(down))
            await cluster.until(lambda down=down: cluster.at(down).ready)  # type: ignore[misc]
            await cluster.together()
        assert await value_at(cluster, "d") == (10, b"onebcdacdabd")

    in_cluster(tmp_path, "abcd", test)


def test_without_a_majority_nothing_changes_and_the_asker_is_told(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await create(cluster, "a")
        for down in "bc":
            cluster.crash(cluster.at(down))
        for name in "ad":
            with pytest.raises(SbonError, match="too few") as refused:
                await ask(cluster, name, registers(cluster, name).compare_and_set(KEY, 1, b"two"))
            assert refused.value.code == "no-majority"
            with pytest.raises(SbonError, match="too few"):
                await value_at(cluster, name)
        cluster.boot(cluster.at("b"))
        await cluster.until(lambda: cluster.at("b").ready)
        await cluster.sleep(15)
        # A change that one acceptor took may take effect later; nobody was told that it had, or had not.
        assert await value_at(cluster, "d") in ((1, b"one"), (2, b"two"))

    in_cluster(tmp_path, "abcd", test)


def test_all_nodes_stop_and_start_again_in_any_order(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await create(cluster, "b")
        for name in "cab":
            await cluster.stop(name)
        for name in "acb":
            cluster.boot(cluster.at(name))
        await cluster.together()
        assert await value_at(cluster, "c") == (1, b"one")
        assert (await ask(cluster, "b", registers(cluster, "b").compare_and_set(KEY, 1, b"two"))).verdict == Verdict.APPLIED
        assert await value_at(cluster, "a") == (2, b"two")

    in_cluster(tmp_path, "abc", test)


def test_of_changes_at_the_same_time_one_takes_effect(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await create(cluster, "a")
        changes = [registers(cluster, name).compare_and_set(KEY, 1, name.encode()) for name in "abcd"]
        outcomes = await asyncio.gather(*(ask(cluster, name, one) for name, one in zip("abcd", changes, strict=True)))
        applied = [name for name, outcome in zip("abcd", outcomes, strict=True) if outcome.verdict == Verdict.APPLIED]
        assert len(applied) == 1
        assert {outcome.state.value for outcome in outcomes} == {applied[0].encode()}

    for seed in (1, 2, 3):
        in_cluster(tmp_path / str(seed), "abcd", test, seed=seed)


def test_a_lost_disk_is_another_acceptor_which_joins_by_a_change_of_acceptors(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await create(cluster, "a")
        cluster.crash(cluster.at("b"))
        cluster.at("b").wipe()
        cluster.crash(cluster.at("c"))
        cluster.boot(cluster.at("b"))
        await cluster.until(lambda: cluster.at("b").ready)
        with pytest.raises(SbonError, match="too few"):  # b must not answer for what it has forgotten
            await value_at(cluster, "a")
        cluster.boot(cluster.at("c"))
        await cluster.together()
        await cluster.sleep(60)  # Until others have replaced it.
        kept = registers(cluster, "a").configuration(KEY)
        assert kept is not None
        assert len(kept.acceptors) == 3
        assert set(kept.acceptors) < set(acceptors(cluster, "abcd"))
        cluster.crash(cluster.at(kept.acceptors[0].node))
        assert await value_at(cluster, kept.acceptors[1].node) == (1, b"one")

    in_cluster(tmp_path, "abcd", test)


def test_acceptors_that_missed_changes_of_acceptors_do_not_decide_alone(tmp_path: Path) -> None:
    """``b`` has deleted its copy as it was replaced; ``c`` still takes a, b and c for the acceptors."""

    async def test(cluster: SimulatedCluster) -> None:
        def cut(name: str, others: str) -> None:
            for other in others:
                cluster.network.cut(name, other, both=True)

        await create(cluster, "a")
        for lost, left in (("c", "abd"), ("b", "ade")):
            cut(lost, "".join(set("abcde") - {lost}))
            await ask(cluster, "a", registers(cluster, "a").move(KEY, acceptors(cluster, left)))
        cluster.network.heal()
        cut("c", "ade")
        await ask(cluster, "b", registers(cluster, "b").catch_up(KEY))
        assert cluster.at("b").daemon.ownership.acceptors.state(KEY) is None
        cut("b", "ade")
        with pytest.raises(SbonError) as refused:
            await ask(cluster, "c", registers(cluster, "c").compare_and_set(KEY, 1, b"two"))
        assert refused.value.code == "no-majority"
        cluster.network.heal()
        await cluster.together()
        cluster.crash(cluster.at("a"))
        await ask(cluster, "c", registers(cluster, "c").catch_up(KEY))
        assert cluster.at("c").daemon.ownership.acceptors.state(KEY) is None
        cluster.crash(cluster.at("b"))
        cluster.boot(cluster.at("b"))
        await cluster.until(lambda: cluster.at("b").ready)
        kept = cluster.at("b").daemon.ownership.acceptors
        assert isinstance(kept.serve(KEY, Prepare(kept.me, Ballot(2**50, "z", "z"))), UnknownInstance)
        await ask(cluster, "d", registers(cluster, "d").move(KEY, acceptors(cluster, "bde")))
        cluster.crash(cluster.at("e"))
        assert await value_at(cluster, "b") == (1, b"one")
        assert cluster.at("b").daemon.ownership.acceptors.state(KEY) is not None

    in_cluster(tmp_path, "abcde", test, replace_s=3600.0)


def test_no_two_lives_of_a_node_use_one_ballot(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        ballots = []
        for life in range(3):
            key = f"other/{life}"
            await ask(cluster, "a", registers(cluster, "a").create(key, b"x", acceptors(cluster, "ab")))
            record = cluster.at("b").daemon.context.store.get("register", key, AcceptorRecord)
            assert record is not None
            assert record.accepted is not None
            ballots.append(record.accepted.ballot)
            cluster.crash(cluster.at("a"))
            cluster.boot(cluster.at("a"))
            await cluster.together()
        assert len(set(ballots)) == 3

    in_cluster(tmp_path, "ab", test)


async def forge(cluster: SimulatedCluster, at: str, key: str, counter: int) -> None:
    """Send from a node to each member a ballot with that counter, for one register."""
    for one in registers(cluster, at).candidates():
        if one.node != at:
            call = AskRegister(key=key, request=Prepare(one, Ballot(counter, "z", "i-z")))
            await ask(cluster, at, cluster.at(at).daemon.context.ask(one.node, call, RegisterAnswer))


def test_a_forged_ballot_costs_one_register_and_no_other(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=100_000, rate=1.0))
        await submitted(cluster, "b", None, name="forged")
        key, acceptor = key_of(uid_of(cluster, "forged")), cluster.at("b")
        with pytest.raises(SbonError, match="counter"):
            await forge(cluster, "d", key, 2**64 - 1)
        await ask(cluster, "b", registers(cluster, "b").settle(key))
        await forge(cluster, "d", key, MAX_COUNT)
        for _ in range(2):
            with pytest.raises(SbonError) as refused:
                await ask(cluster, "b", acceptor.daemon.queries.lookup.stop("forged"))
            assert (refused.value.code, refused.value.where) == ("ballot-exhausted", key)
            for name in "bc":
                await submitted(cluster, name, None, name=f"after-{name}", sql="SELECT id FROM numbers")
                await ask(cluster, name, cluster.at(name).daemon.queries.lookup.stop(f"after-{name}"))
            await cluster.sleep(2.0 * cluster.config.control.repair_s)
            assert all(cluster.at(name).ready for name in "abcd")
            cluster.crash(acceptor)
            cluster.boot(acceptor)
            await cluster.until(lambda: acceptor.ready)
            await cluster.together()
        assert (await state_of(cluster, "b", "forged")).state == "running"

    in_cluster(tmp_path, "abcd", test)


def test_numbers_that_were_learnt_are_bounded_and_no_ballot_comes_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbon_node.ownership.store.registers.KEPT_BALLOTS", 2)

    async def test(cluster: SimulatedCluster) -> None:
        await create(cluster, "a", "ab")
        ballots, used = registers(cluster, "a")._ballots, set()

        async def outbid(key: str) -> None:
            ballots.learn(key, Ballot(10 << LIFE_BITS, "z", "i-z"))
            used.add((key, ballots.next(key)))

        for key in 5 * [f"other/{number}" for number in range(4)]:
            await ask(cluster, "a", outbid(key))
            assert len(ballots) <= 2
        assert len(used) == 20

    in_cluster(tmp_path, "ab", test)


def configuration_at(cluster: SimulatedCluster, at: str) -> list[str]:
    state = cluster.at(at).daemon.ownership.acceptors.state(KEY)
    return [] if state is None or state.configuration.joining else sorted(one.node for one in state.configuration.acceptors)


@pytest.mark.parametrize("loss", ["wiped", "left", "dead"])
def test_a_node_that_is_gone_for_good_is_replaced(tmp_path: Path, loss: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await create(cluster, "a")
        instances = {one.node: one.instance for one in acceptors(cluster, "abc")}
        if loss == "left":
            await ask(cluster, "b", cluster.at("b").daemon.adaptation.leaving.leave_and_stop())
            await cluster.stop("b")
        else:
            cluster.crash(cluster.at("b"))
        if loss == "wiped":
            cluster.at("b").wipe()
            cluster.boot(cluster.at("b"))
        replaced = ("acd",) if loss != "wiped" else ("acd", "abc")
        await cluster.until(lambda: "".join(configuration_at(cluster, "a")) in replaced and new(cluster, instances))
        cluster.crash(cluster.at("c"))  # the second loss, which the register survives because the first is repaired
        assert await value_at(cluster, "d") == (1, b"one")
        assert cluster.loop.time() < 1000

    def new(cluster: SimulatedCluster, instances: dict[str, str]) -> bool:
        state = cluster.at("a").daemon.ownership.acceptors.state(KEY)
        assert state is not None
        return all(one.instance != instances["b"] for one in state.configuration.acceptors)

    in_cluster(tmp_path, "abcd", test, replace_s=120.0)


def test_a_dead_node_that_may_come_back_is_not_replaced(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await create(cluster, "a")
        cluster.crash(cluster.at("b"))
        await cluster.sleep(1000)
        assert configuration_at(cluster, "a") == ["a", "b", "c"]

    in_cluster(tmp_path, "abcd", test)


def test_an_acceptor_that_a_restarted_node_has_not_met_is_not_replaced(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await create(cluster, "a")
        for other in "acd":
            cluster.network.cut(other, "b", both=True)
        cluster.crash(cluster.at("a"))
        cluster.boot(cluster.at("a"))
        await cluster.until(lambda: cluster.at("a").ready)
        await cluster.sleep(100)
        assert cluster.at("a").daemon.context.membership.get("b") is None
        assert configuration_at(cluster, "a") == ["a", "b", "c"]

    in_cluster(tmp_path, "abcd", test)


def test_a_register_of_a_small_cluster_gets_three_acceptors_once_there_are_nodes(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await create(cluster, "a", "a")
        for late in "bcd":
            cluster.boot(cluster.at(late))
        await cluster.together()
        await cluster.until(lambda: len(configuration_at(cluster, "a")) == 3)
        cluster.crash(cluster.at("a"))
        assert await value_at(cluster, "d") == (1, b"one")

    in_cluster(tmp_path, "a", test, late="bcd")


def test_values_and_registers_are_bounded(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await create(cluster, "a")
        with pytest.raises(SbonError, match="in a register"):
            await ask(cluster, "a", registers(cluster, "a").compare_and_set(KEY, 1, b"x" * (MAX_VALUE_BYTES + 1)))
        with pytest.raises(SbonError, match="keeps 1 registers"):
            await ask(cluster, "a", registers(cluster, "a").create("other/other", b"x", acceptors(cluster, "abc")))

    in_cluster(tmp_path, "abc", test, max_registers=1)


def test_a_member_more_or_less_leaves_the_order_of_the_others() -> None:
    nodes = [Acceptor(name, f"{name}0") for name in "abcdefgh"]
    for key in (f"other/q{number}" for number in range(50)):
        order = chosen(key, nodes)
        assert len(order) == 3
        assert chosen(key, [node for node in nodes if node != order[1]])[:2] == (order[0], order[2])
        assert chosen(key, nodes, nodes[:1])[0] == nodes[0]
    assert chosen("other/q", nodes[:2]) in ((nodes[0],), (nodes[1],)), "two would both be needed"
    assert len({chosen(f"other/q{number}", nodes) for number in range(50)}) > 20
