"""Draining: refused where anything lives on the node; and then it takes nothing on any more, whatever happens."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from sbon_node.errors import SbonError
from sbon_node.model.queries import QueryInfo
from sbon_node.simulation.cluster import SimulatedCluster
from tests.workflow.clusters import ask, declare, in_cluster, plain, source_at, state_of, submitted

PINNED = "has the source source/numbers@1/at-b"


async def refusal(work: Awaitable[Any]) -> SbonError:
    with pytest.raises(SbonError) as caught:
        await work
    return caught.value


async def drain(cluster: SimulatedCluster, name: str) -> None:
    async def drained() -> None:
        cluster.at(name).daemon.operations.drain()

    await ask(cluster, name, drained())


async def running(cluster: SimulatedCluster, tmp_path: Path, strategy: str, rows: int = 1_000_000) -> None:
    await declare(cluster, "a", source_at("b", rows=rows, rate=10.0))
    await submitted(cluster, "a", tmp_path / "out.csv", strategy=strategy)
    while (await state_of(cluster, "a")).rows == 0:
        await cluster.clock.sleep(0.5)


@pytest.mark.parametrize(
    "strategy, node, reasons",
    [
        ("producer", "a", ("hosts q.sink of query q",)),
        ("producer", "b", ("hosts q.b0 of query q", "has source/numbers@1/at-b, which q.b0 reads", PINNED)),
        ("consumer", "b", ("has source/numbers@1/at-b, which q.b0 reads", PINNED)),
    ],
)
def test_a_node_on_which_anything_lives_refuses_with_every_reason(
    tmp_path: Path, strategy: str, node: str, reasons: tuple[str, ...]
) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path, strategy)
        error = await refusal(drain(cluster, node))
        assert (error.code, tuple(map(plain, error.details))) == ("node-in-use", reasons)
        assert not cluster.at(node).daemon.status().drained
        await ask(cluster, "a", cluster.at("a").daemon.stop_query("q"))

    in_cluster(tmp_path, "abc", test)


def test_an_unread_source_is_pinned_all_the_same(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        assert (await refusal(drain(cluster, "b"))).details == (PINNED,)
        await ask(cluster, "a", cluster.at("a").daemon.drop_stream("numbers"))
        while cluster.at("b").daemon.operations.metrics_snapshot().sources:
            await cluster.clock.sleep(0.1)
        await drain(cluster, "b")

    in_cluster(tmp_path, "ab", test)


def test_a_drained_node_takes_nothing_on_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await drain(cluster, "c")
        await drain(cluster, "c")  # once more is no harm
        cluster.crash(cluster.nodes["c"])
        cluster.boot(cluster.nodes["c"])
        while not cluster.nodes["c"].ready:
            await cluster.clock.sleep(0.1)
        await cluster.together()
        assert cluster.at("c").daemon.status().drained
        (reason,) = cluster.at("c").daemon.operations.readiness().reasons
        assert (reason.code, reason.weight) == ("drained", "impaired")
        await declare(cluster, "a", source_at("b", rows=50))
        daemon = cluster.at("c").daemon
        assert (await refusal(ask(cluster, "c", daemon.attach_source(source_at("c"))))).code == "node-drained"
        assert (await refusal(submitted(cluster, "c", tmp_path / "c.csv", name="q1"))).code == "node-drained"
        elsewhere = await refusal(submitted(cluster, "a", tmp_path / "a.csv", name="q2", consumer="c"))
        assert elsewhere.code == "node-drained"
        # Operators go elsewhere, by whatever strategy.
        for number, strategy in enumerate(("random", "hybrid", "optimal", "auto")):
            name = f"n{number}"
            query: QueryInfo = await submitted(cluster, "a", tmp_path / f"{name}.csv", name=name, strategy=strategy)
            assert "c" not in {operator.node for operator in query.operators}
            while (await state_of(cluster, "a", name)).state != "finished":
                await cluster.clock.sleep(0.5)
            assert len((tmp_path / f"{name}.csv").read_text().splitlines()) == 51
        assert cluster.at("c").daemon.status().operators == ()

    in_cluster(tmp_path, "abc", test)
