"""While nothing changes, a look costs one ping to each neighbour and no other message."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.adaptation.look import OperatorView
from sbon_node.hosting.operators.host import neighbours
from sbon_node.overlay.membership.service import Membership
from sbon_protocol.moving import LocateComponent
from tests.adaptation.test_group_moves import CHAIN, ROWS
from tests.adaptation.test_optimizer import SMALL, adapting, only, started
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted
from tests.nodes.test_moved_operators import FILTER, move, operators


def test_a_look_without_change_pings_each_neighbour_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Counter[str] = Counter()
    pinged, measured = Membership.ping, OperatorView.measure

    async def counting_ping(self: Membership, name: str, timeout_s: float) -> object:
        counted["pings"] += 1
        return await pinged(self, name, timeout_s)

    async def counting_measure(self: OperatorView, pairs: list[tuple[str, str]]) -> dict[tuple[str, str], float]:
        counted["measured"] += len(pairs)
        return await measured(self, pairs)

    async def test(cluster: SimulatedCluster) -> None:
        await started(cluster, tmp_path / "out.csv", FILTER, rows=3200, adapt="local", strategy="producer")
        await cluster.clock.sleep(20.0)
        decisions = (await only(cluster)).decisions
        assert decisions[-1].code == "unchanged", [(one.code, one.reason) for one in decisions]
        monkeypatch.setattr(Membership, "ping", counting_ping)
        monkeypatch.setattr(OperatorView, "measure", counting_measure)
        await cluster.clock.sleep(20.0)
        assert 3 <= counted["pings"] <= 5  # Its source is at its own node; a period is 5 s, a quarter more or less.
        assert not counted["measured"]

    steady = msgspec.structs.replace(SMALL, moved_ms=50.0, grown_share=1.0)
    in_cluster(tmp_path, "abc", test, configs=adapting("abc", steady))


def test_a_reader_is_looked_up_once_until_it_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=ROWS, rate=40.0))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=CHAIN, strategy="producer", decompose="never")
        while not (await state_of(cluster, "a")).rows:
            await cluster.clock.sleep(0.2)
        filters, counts = operators(cluster)
        daemon = cluster.at("b").daemon
        readers = daemon.hosting.operators.ports.readers
        look_up = readers._records.ask

        async def counting(query: str, acceptors: object, call: object, reply: type[object]) -> object:
            if isinstance(call, LocateComponent):
                asked.append(call.component)
            return await look_up(query, acceptors, call, reply)  # type: ignore[arg-type]

        monkeypatch.setattr(readers._records, "ask", counting)

        async def reader() -> str:
            return (await ask(cluster, "b", neighbours(daemon.context, daemon.hosting.operators, filters)))[-1].node

        assert [await reader() for _ in range(3)] == ["b"] * 3
        assert asked == [counts]
        await move(cluster, counts, "b", "c")
        await cluster.clock.sleep(5.0)
        assert [await reader() for _ in range(3)] == ["c"] * 3
        assert asked == [counts] * 2

    in_cluster(tmp_path, "abc", test, configs=adapting("abc", SMALL))
