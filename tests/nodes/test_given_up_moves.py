"""Moves that are given up: the old host tells others of each for a bounded time, and ends what it has begun."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.config.config import Config
from sbon_node.net.peers import Caller
from sbon_node.ownership.consensus.acceptor import Accept, Request
from sbon_node.ownership.operators import FORM
from sbon_node.ownership.store.query_keys import operator_key
from sbon_protocol.api.moves import MoveRequest
from sbon_protocol.calls import AskRegister, RegisterAnswer
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import AbandonOperator
from tests.nodes.clusters import UNHURRIED, ask, in_cluster, owner_of
from tests.nodes.test_lost import lose_data
from tests.nodes.test_moved_operators import WINDOWS, move, operators, running
from tests.nodes.test_moves_and_crashes import until_step

RETRY_S = 2.0
"""Longest pause between two tries."""
TRIES = 4
LONGEST_S = TRIES * (RETRY_S + CONFIG.control.call_timeout_s)


def telling(tries: int) -> Config:
    """A configuration with that many tries."""
    control = msgspec.structs.replace(CONFIG.control, retry_max_s=RETRY_S)
    migration = msgspec.structs.replace(CONFIG.migration, abandon_tries=tries)
    return msgspec.structs.replace(UNHURRIED, control=control, migration=migration)


def tasks(cluster: SimulatedCluster, node: str, *kinds: str) -> list[str]:
    process = cluster.at(node).process
    assert process is not None
    return [name for task in process.tasks() if (name := task.get_name()).partition(" ")[0] in kinds]


async def copying(cluster: SimulatedCluster, tmp_path: Path) -> str:
    """Move an operator of a query that does not end from b to c, until its state is copied; return it."""
    await running(cluster, tmp_path / "out.csv", WINDOWS, rows=1_000_000, rate=2.0)
    operator = operators(cluster)[-1]
    await move(cluster, operator, "b", "c", wait_s=-1.0)
    await until_step(cluster, "b", "copying")
    return operator


@pytest.mark.one_part_per_commit("ends of targets of moves", parts=3)
@pytest.mark.parametrize("end", ["dies", "leaves", "loses its disk"])
def test_a_target_that_does_not_return_is_not_told_for_ever(tmp_path: Path, end: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await copying(cluster, tmp_path)
        cluster.crash(cluster.at("c"))
        departures = cluster.at("b").daemon.hosting.moves.departures
        while departures.under_way(operator) is not None:
            await cluster.clock.sleep(0.5)
        assert tasks(cluster, "b", "abandon")
        if end == "loses its disk":
            await lose_data(cluster, "c", at_once=True)
        elif end == "leaves":
            cluster.boot(cluster.at("c"))
            await cluster.until(lambda: cluster.at("c").ready)
            await cluster.answer("c", cluster.at("c").daemon.membership.leave())
            cluster.crash(cluster.at("c"))
        await cluster.clock.sleep(LONGEST_S if end == "dies" else 2 * RETRY_S)
        assert tasks(cluster, "b", "abandon", "move") == []
        assert operator in cluster.at("b").daemon.hosting.operators.hosted()

    in_cluster(tmp_path, "abcd", test, configs={"b": telling(TRIES if end == "dies" else 1000)})


def test_an_unreachable_target_is_told_a_bounded_number_of_times(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await copying(cluster, tmp_path)
        told = list[str]()

        async def refuses(call: AbandonOperator, caller: object) -> None:
            told.append(call.attempt)
            raise SbonError("internal", "it does not arrive")

        cluster.at("c").daemon.context.server.handle(AbandonOperator, refuses)
        departures = cluster.at("b").daemon.hosting.moves.departures
        (departure,) = departures._known.values()
        await departures.withdraw(departure.hosted.spec.id, SbonError("drain-over", "a test", where="b"))
        assert departure.state.step == "given-up"
        await cluster.clock.sleep(6 * RETRY_S)
        assert len(told) == TRIES

    in_cluster(tmp_path, "abcd", test, configs={"b": telling(TRIES)})


def test_a_bounded_number_of_ended_moves_is_remembered(tmp_path: Path) -> None:
    forgetful = msgspec.structs.replace(UNHURRIED, migration=msgspec.structs.replace(CONFIG.migration, remembered=2))

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS, rows=1_000_000, rate=2.0)
        operator = operators(cluster)[-1]

        async def drain() -> None:
            cluster.at("c").daemon.context.drained.mark(1)

        await ask(cluster, "c", drain())
        for number in range(5):
            assert (await move(cluster, operator, "b", "c", attempt=f"try{number}")).code == "node-drained"
        assert list(cluster.at("b").daemon.hosting.moves.departures.states()) == ["try2", "try3", "try4"]

    in_cluster(tmp_path, "abcd", test, configs={"b": forgetful})


def test_the_end_of_a_move_is_tried_no_more_once_the_next_one_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS, rows=1_000_000, rate=2.0)
        operator, owners = operators(cluster)[-1], cluster.at("b").daemon.ownership.operators

        async def unreachable(*_: object) -> bool:
            raise SbonError("no-majority", "too few acceptors answer", where=operator)

        begin = owners.begin_move
        monkeypatch.setattr(owners, "begin_move", unreachable)
        monkeypatch.setattr(owners, "end_move", unreachable)
        for number in range(3):
            assert (await move(cluster, operator, "b", "c", attempt=f"try{number}")).step == "given-up"
            await cluster.clock.sleep(1)
        await cluster.clock.sleep(2 * RETRY_S)
        assert len(tasks(cluster, "b", "move")) == 1
        monkeypatch.setattr(owners, "begin_move", begin)
        monkeypatch.undo()
        assert (await move(cluster, operator, "b", "c")).step == "moved"

    in_cluster(tmp_path, "abcd", test, configs={"b": telling(1000)})


def lose_commit(cluster: SimulatedCluster, node: str) -> None:
    """Lose each message of b to ``node`` that makes another node an operator's host."""
    server: Any = cluster.at(node).daemon.context.server
    serve = server._handlers["ask-register"]

    async def miss(call: AskRegister, caller: Caller) -> RegisterAnswer:
        request: Request = decode_record(call.request, Request)
        is_commit = isinstance(request, Accept) and call.key.startswith("operator/") and FORM.value(request.state).host != "b"
        if caller.node == "b" and is_commit:
            raise SbonError("internal", "the message is lost")
        answer: RegisterAnswer = await serve(call, caller)
        return answer

    server.handle(AskRegister, miss)


@pytest.mark.one_part_per_commit("hosts that die amid a commit", parts=2)
@pytest.mark.parametrize("cut_off, host", [("e", "b"), ("d", "c")], ids=["unseen", "seen"])
def test_a_move_whose_host_died_amid_the_commit_stays_as_it_was_reported(tmp_path: Path, cut_off: str, host: str) -> None:
    """Acceptor e alone has accepted the commit: it may be chosen later, unless the reporting node has it decided.

    That node, a, reaches one other acceptor, and sees the commit only if that is e.
    """

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS, rows=1_000_000, rate=2.0)
        operator = operators(cluster)[-1]
        key = operator_key(operator)
        registers = cluster.at("a").daemon.ownership.registers
        await ask(cluster, "a", registers.move(key, tuple(one for one in registers.candidates() if one.node in "ade")))
        for node in "ad":
            lose_commit(cluster, node)

        async def reported() -> str:
            try:
                steps = cluster.at("a").daemon.adaptation.requested.move("q", MoveRequest(operator=operator, to="c"))
                return [step async for step in steps][-1].node  # type: ignore[union-attr]
            except SbonError as error:
                return {"node-away": "b"}.get(error.code, error.code)

        moving = asyncio.create_task(ask(cluster, "a", reported()))
        while (state := cluster.at("e").daemon.ownership.acceptors.state(key)) is None or FORM.value(state).host != "c":
            await cluster.clock.sleep(0.0005)
        cluster.crash(cluster.at("b"))
        for node in "abcde".replace(cut_off, ""):
            cluster.network.cut(cut_off, node, both=True)
        assert await moving == host
        cluster.network.heal()
        await ask(cluster, "e", cluster.at("e").daemon.ownership.registers.settle(key))
        assert (await owner_of(cluster, "a", operator))[0] == host
        cluster.boot(cluster.at("b"))
        await cluster.until(lambda: cluster.at("b").ready)
        await cluster.together()
        await ask(cluster, "e", cluster.at("e").daemon.ownership.registers.settle(key))
        assert (await owner_of(cluster, "a", operator))[0] == host

    in_cluster(tmp_path, "abcde", test)
