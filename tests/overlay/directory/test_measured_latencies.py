"""Uses of measured latencies: by strategies, and by users' requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.overlay.directory.measuring import PINGS, Pair
from sbon_node.placement.model.network_view import UNKNOWN_MS
from sbon_node.placing import LiveNetworkView
from sbon_protocol.api.nodes import PairInfo, RttRequest
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask
from tests.overlay.directory.measurements import measured, measuring, pings_of


def test_a_strategy_s_measurements_count_as_questions_and_are_reckoned_with(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        view = LiveNetworkView(cluster.at("a").daemon.context)
        for _ in range(2):
            found = await ask(cluster, "a", view.measure([("b", "c"), ("c", "d")]))
            assert set(found) == {("b", "c"), ("c", "d")}
            assert found["c", "d"] == view.latency_ms("c", "d") == pytest.approx(115.0, rel=0.15)
            assert view.probes == 2, "what is known is no question"
        assert set(await ask(cluster, "a", view.measure([("b", "d"), ("d", "b")]))) == {("b", "d"), ("d", "b")}
        assert view.probes == 3, "a way is as long from either end"
        with pytest.raises(SbonError, match="is not measured"):
            await ask(cluster, "a", view.measure([("b", "b"), ("a", "b")]))
        assert view.probes == 3, "nothing was asked"

    measuring(tmp_path, test)


def test_a_node_that_is_away_keeps_no_other_pair_from_being_measured(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        view = LiveNetworkView(cluster.at("a").daemon.context)
        cluster.crash(cluster.nodes["d"])
        membership = cluster.at("a").daemon.membership
        await cluster.until(lambda: membership.get("d").state == "dead")  # type: ignore[union-attr]
        assert set(await ask(cluster, "a", view.measure([("c", "d"), ("b", "c")]))) == {("b", "c")}
        assert view.probes == 1

    measuring(tmp_path, test)


def test_an_unknown_latency_counts_as_far(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        view = LiveNetworkView(cluster.at("a").daemon.context)
        assert view.latency_ms("b", "nobody") == UNKNOWN_MS
        assert view.latencies_ms(["b", "nobody"], ["nobody", "b"]).tolist() == [[UNKNOWN_MS, 0.0], [0.0, UNKNOWN_MS]]
        assert (view.coordinate("nobody"), view.coordinate_age_s("nobody"), view.coordinate_age_s("a")) == (None, None, 0.0)

    measuring(tmp_path, test)


def test_places_age_until_they_are_heard_of_again(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        view = LiveNetworkView(cluster.at("a").daemon.context)
        await measured(cluster, "a", "ab", "ac")
        young, old = view.coordinate_age_s("b"), view.coordinate_age_s("c")
        assert young is not None
        assert old is not None
        assert max(young, old) < 1.0
        await cluster.sleep(8)
        await measured(cluster, "a", "ab", max_age_s=0.0)
        assert view.coordinate_age_s("b") == pytest.approx(0.0, abs=1.0)
        assert view.coordinate_age_s("c") == pytest.approx(old + 8.0, abs=1.0)

    measuring(tmp_path, test, quiet=True)


def test_answers_distinguish_estimates_and_measurements(tmp_path: Path) -> None:
    async def told(cluster: SimulatedCluster, *pairs: Pair, **how: Any) -> list[PairInfo]:
        found: list[PairInfo] = await ask(
            cluster, "a", cluster.at("a").daemon.operations.distances.rtt(RttRequest(pairs=pairs, **how))
        )
        return found

    async def test(cluster: SimulatedCluster) -> None:
        await cluster.sleep(20)
        before = pings_of(cluster, "b")
        (cached,) = await told(cluster, ("b", "d"), cached=True)
        assert (cached.measured_ms, cached.age_s, cached.by, cached.estimate_source) == (None, None, "", "coordinates")
        assert cached.estimate_ms == cached.coordinates_ms
        assert pings_of(cluster, "b") - before < PINGS * 40
        here, there = await told(cluster, ("c", ""), ("b", "d"))
        assert (here.a, here.b, here.by, there.by, there.estimate_source) == ("c", "a", "a", "b", "measured")
        assert here.measured_ms == pytest.approx(90, rel=0.15)
        assert there.measured_ms == there.estimate_ms == pytest.approx(180, rel=0.15)
        await cluster.sleep(7)
        (later,) = await told(cluster, ("d", "b"), cached=True)
        assert later.age_s == pytest.approx(7, abs=1)
        with pytest.raises(SbonError, match="there is no node 'bb'") as refusal:
            await told(cluster, ("a", "bb"), cached=True)
        assert refusal.value.hint == "did you mean b?"

    measuring(tmp_path, test)


def test_members_are_sorted_by_distance_from_any_of_them(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await cluster.sleep(60)
        daemon = cluster.at("a").daemon
        await measured(cluster, "a", "ca", "cb", "cd")
        assert [member.name for member in daemon.operations.distances.members()] == list("abcd")
        near = daemon.operations.distances.members("c")
        assert [member.name for member in near] == list("cbad")
        assert [member.distance_ms for member in near] == [pytest.approx(ms, rel=0.2) for ms in (0, 75, 90, 230)]
        assert [member.distance_measured for member in near] == [True] * 4
        assert [member.name for member in daemon.operations.distances.members("c", 80.0)] == list("cb")
        assert [member.name for member in daemon.operations.distances.members(within_ms=100.0)] == list("abc")
        with pytest.raises(SbonError, match="there is no node 'z'"):
            daemon.operations.distances.members("z")

    measuring(tmp_path, test)
