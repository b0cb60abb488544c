"""Messages of a register that arrive after the end of their query: they revive no copy that was deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_protocol.calls import AskRegister, RegisterAnswer
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at, submitted, uid_of


def recorded(cluster: SimulatedCluster, node: str) -> list[AskRegister]:
    """Return the messages about registers of queries that a node gets from now on."""
    server: Any = cluster.at(node).daemon.context.server
    serve, messages = server._handlers["ask-register"], []

    async def record(call: AskRegister, caller: object) -> RegisterAnswer:
        if call.key.startswith("query/"):
            messages.append(call)
        answer: RegisterAnswer = await serve(call, caller)
        return answer

    server.handle(AskRegister, record)
    return messages


async def refused(cluster: SimulatedCluster, at: str) -> None:
    """Submit a query whose placement fails."""
    cluster.at(at).daemon.queries.planning.place = None  # type: ignore[assignment,method-assign]
    with pytest.raises(TypeError):
        await submitted(cluster, at, None, consumer="b")


def copies(cluster: SimulatedCluster) -> list[str]:
    return [
        key for name in cluster.nodes for key in cluster.at(name).daemon.ownership.acceptors.states if key.startswith("query/")
    ]


async def send_again(cluster: SimulatedCluster, node: str, messages: list[AskRegister]) -> None:
    """Let all messages arrive once more, in each order of two."""
    assert any(call.request["type"] == "accept" for call in messages)
    for call in (*messages, *reversed(messages)):
        answer = await ask(cluster, "a", cluster.at("a").daemon.context.ask(node, call, RegisterAnswer))
        assert answer.answer == {"type": "forgotten"}


def test_late_messages_revive_no_refused_submission(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        messages = {node: recorded(cluster, node) for node in "bc"}
        await refused(cluster, "a")
        await cluster.sleep(60)
        assert copies(cluster) == []
        for node in "bc":
            await send_again(cluster, node, list(messages[node]))
        cluster.crash(cluster.at("c"))
        cluster.boot(cluster.at("c"))
        await cluster.together()
        await send_again(cluster, "c", list(messages["c"]))
        await cluster.sleep(60)
        assert copies(cluster) == []
        assert await ask(cluster, "c", cluster.at("c").daemon.queries.lookup.all()) == []

    in_cluster(tmp_path, "abc", test)


def test_a_copy_is_deleted_only_once_each_acceptor_has_the_end(tmp_path: Path) -> None:
    """``c`` misses all messages, which arrive after it has caught up and all copies are deleted."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        missed: list[AskRegister] = []
        server: Any = cluster.at("c").daemon.context.server
        serve = server._handlers["ask-register"]

        async def miss(call: AskRegister, caller: object) -> RegisterAnswer:
            if not call.key.startswith("query/") or call.request["type"] == "read":
                answer: RegisterAnswer = await serve(call, caller)
                return answer
            missed.append(call)
            raise SbonError("internal", "the message is still on its way")

        server.handle(AskRegister, miss)
        await refused(cluster, "a")
        await cluster.sleep(60)
        assert len(copies(cluster)) == 2, "c has none, and its messages are on their way"
        server.handle(AskRegister, serve)
        await cluster.sleep(120)
        assert copies(cluster) == []
        await send_again(cluster, "c", missed)

    in_cluster(tmp_path, "abc", test)


def test_nothing_changes_a_record_that_others_have_deleted(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        await submitted(cluster, "a", None, consumer="b")
        uid = uid_of(cluster)
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        await cluster.sleep(10)
        for node in "bc":
            assert await ask(cluster, node, cluster.at(node).daemon.ownership.records.forget(uid))
        records = cluster.at("a").daemon.ownership.records
        read = await ask(cluster, "a", records.read(uid))
        assert (read.state, read.cleaned) == ("stopped", True)
        with pytest.raises(SbonError, match="nodes have deleted its record") as over:
            await ask(cluster, "a", records.change(uid, lambda now: msgspec.structs.replace(now, reason="another")))
        assert over.value.code == "query-over"
        assert await ask(cluster, "a", records.forget(uid))
        assert copies(cluster) == []

    in_cluster(tmp_path, "abc", test)


def test_keys_of_deleted_records_are_bounded(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        node = cluster.at("a").daemon

        async def forget() -> None:
            for number in range(4):
                node.ownership.acceptors.forget(f"query/q{number}", end="query-over")

        await ask(cluster, "a", forget())
        cluster.crash(cluster.at("a"))
        cluster.boot(cluster.at("a"))
        await cluster.until(lambda: cluster.at("a").ready)
        acceptors = cluster.at("a").daemon.ownership.acceptors
        assert list(acceptors._forgotten) == ["query/q1", "query/q2", "query/q3"]

    in_cluster(tmp_path, "abc", test, max_forgotten=3)
