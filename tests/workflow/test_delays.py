"""The delay from source to sink, measured with clocks that are hours apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_node.membership.clocks import PeerClocks
from sbon_node.model.delivery import SinkDelay
from sbon_node.simulation.cluster import SimulatedCluster
from tests.workflow.clusters import declare, in_cluster, source_at, state_of, submitted
from tests.workflow.test_moved_operators import FILTER, move, operators

HOUR_S = 3600.0
SKEWS = {"a": HOUR_S, "b": -HOUR_S, "c": HOUR_S / 2}


def delays(path: Path, skews: dict[str, float], *, moves: bool) -> SinkDelay:
    """The delay of a query from ``b`` by way of an operator, which may move to ``c``, to ``a``."""
    found: list[SinkDelay | None] = []

    async def test(cluster: SimulatedCluster) -> None:
        for name, seconds in skews.items():
            cluster.nodes[name].skew(seconds)
        await declare(cluster, "a", source_at("b", rows=4000, rate=40.0))
        await submitted(cluster, "a", path / "out.csv", sql=FILTER, strategy="producer")
        await cluster.sleep(12.0)
        if moves:
            assert (await move(cluster, operators(cluster)[-1], "b", "c")).step == "moved"
        await cluster.sleep(12.0)
        found.append((await state_of(cluster, "a")).delay)

    in_cluster(path, "abc", test)
    (delay,) = found
    assert delay is not None
    return delay


@pytest.mark.parametrize("moves", [False, True])
def test_the_delay_is_right_within_its_error_with_clocks_hours_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    """The truth is a run in which all clocks are the same and their times are taken as they are."""
    measured = delays(tmp_path / "apart", SKEWS, moves=moves)
    own_ms = PeerClocks.own_ms

    def exact(clocks: PeerClocks, stated_ms: int, name: str) -> int:
        own_ms(clocks, stated_ms, name)  # with the same pings
        return stated_ms

    monkeypatch.setattr(PeerClocks, "own_ms", exact)
    truth = delays(tmp_path / "same", {}, moves=moves)
    assert truth.p50_ms is not None
    assert truth.p95_ms is not None
    assert 0 < truth.p50_ms <= truth.p95_ms < 2_000
    assert measured.frames > 50
    assert measured.undated <= 5, "clocks are known soon"
    assert measured.error_ms is not None
    assert measured.error_ms < 500
    assert measured.p50_ms == pytest.approx(truth.p50_ms, abs=measured.error_ms)
    assert measured.p95_ms == pytest.approx(truth.p95_ms, abs=measured.error_ms)
