"""The leader of a query places it again as a whole while it runs; rows stay exact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.adaptation.look import LookView
from sbon_node.adaptation.settings import preset
from sbon_node.base.events import MoveDecided
from sbon_node.config.config import Config
from tests.calm_clusters import CALM
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted
from tests.nodes.test_moved_operators import delivered, finished
from tests.nodes.test_notifications import listening, told

NEVER_S = 86_400.0
SETTINGS = preset(
    "eager", period_s=NEVER_S, least_measured_s=5.0, least_saving_bytes=0.5, rest_s=10.0, return_s=600.0, replace_s=10.0
)
"""Hosts decide nothing: what moves was placed again."""
ROWS = 900
GROUPS = "SELECT id % 2 AS digit, count(*) AS n FROM numbers GROUP BY id % 2, window(ts, '1 second')"


class Weather:
    """Latencies of which those between b and c, where the rows come from, change."""

    def __init__(self) -> None:
        self.between_s = 0.004

    def __call__(self, one: str, other: str) -> float:
        if {one, other} == {"b", "c"}:
            return self.between_s
        return 0.005 if "d" in (one, other) else 0.006


CONFIGS: dict[str, Config] = dict.fromkeys("abcde", msgspec.structs.replace(CALM, adaptation=SETTINGS))


async def begun(cluster: SimulatedCluster, out: Path, at: str = "a", **fields: object) -> str:
    """Submit a query whose operator reads rows of b and c to node ``at``, and return the operator's host."""
    await cluster.sleep(5.0)
    await declare(cluster, "a", *(source_at(node, rows=ROWS, rate=20.0) for node in "bc"))
    await submitted(
        cluster, at, out, consumer="a", sql=GROUPS, decompose="never", **{"strategy": "hybrid", "adapt": "full", **fields}
    )
    while not (await state_of(cluster, "a")).rows:
        await cluster.sleep(0.5)
    return await host(cluster)


async def host(cluster: SimulatedCluster) -> str:
    return (await state_of(cluster, "a")).operators[-1].node


async def until(cluster: SimulatedCluster, condition: Callable[[str], bool], limit_s: float = 60.0) -> bool:
    deadline_s = cluster.clock.now() + limit_s
    while not condition(await host(cluster)):
        if cluster.clock.now() > deadline_s:
            return False
        await cluster.sleep(1.0)
    return True


def check(out: Path) -> None:
    assert sum(int(row["n"]) for row in delivered(out)) == 2 * ROWS


def leaders(cluster: SimulatedCluster) -> list[str]:
    return [
        node
        for node in sorted(cluster.nodes)
        if cluster.nodes[node].ready and cluster.at(node).daemon.adaptation.replacements.ids()
    ]


def test_a_query_is_placed_again_when_latencies_have_changed(tmp_path: Path) -> None:
    out, weather = tmp_path / "out.csv", Weather()

    async def test(cluster: SimulatedCluster) -> None:
        first = await begun(cluster, out)
        assert first in "bc"
        (leader,) = leaders(cluster)
        listener = listening(cluster, leader, "placement")
        assert not await until(cluster, lambda node: node != first, limit_s=15.0)
        stays = [event for event in told(listener) if isinstance(event, MoveDecided)]
        assert {one.verdict for one in stays} == {"stays"}
        assert {one.code for one in stays} <= {"measures", "same-placement", "saves-little", "costs-more"}
        shown = (await state_of(cluster, "a" if leader != "a" else "d")).operators[-1].decisions
        assert (shown[-1].verdict, shown[-1].leader, shown[-1].node) == ("stays", leader, first)
        assert shown[-1].code in ("same-placement", "saves-little", "costs-more")
        weather.between_s = 0.01
        assert not await until(cluster, lambda node: node != first, limit_s=15.0)
        assert {one.code for one in told(listener)} <= {
            "saves-little",
            "costs-more",
            "same-placement",
        }  # Nothing new is not told.
        weather.between_s = 0.2
        assert await until(cluster, lambda node: node == "d")
        moves = [event for event in told(listener) if isinstance(event, MoveDecided) and event.verdict == "moves"]
        operator = (await state_of(cluster, "a")).operators[-1]
        assert [(one.code, one.target) for one in moves if one.operator == operator.id] == [("saves", "d")]
        (past,) = operator.past_moves
        assert (past.node, past.reason.partition(":")[0]) == (first, "placed again by hybrid")
        made = [one for one in operator.decisions if one.verdict == "moves"]
        assert [(one.code, one.target, one.node, one.leader, one.outcome) for one in made] == [("saves", "d", first, leader, "")]
        await finished(cluster)
        check(out)

    in_cluster(tmp_path, "abcd", test, configs=CONFIGS, latency=weather)


@pytest.mark.one_part_per_commit("pairs of nodes that a look measures", parts=2)
@pytest.mark.parametrize("pair", [("a", "b"), ("b", "c")])
def test_a_look_believes_its_own_measurements(tmp_path: Path, pair: tuple[str, str]) -> None:
    """The filter of a link's round-trip times still tells what was before."""
    latency = {"s": 0.004}

    async def test(cluster: SimulatedCluster) -> None:
        await cluster.sleep(60.0)
        latency["s"] = 0.2
        view = LookView(cluster.at("a").daemon.context, "q", max_age_s=0.5)
        measured = await ask(cluster, "a", view.measure([pair]))
        assert measured[pair] == pytest.approx(200.0, rel=0.2)
        assert view.latency_ms(*pair) == measured[pair]

    in_cluster(tmp_path, "abc", test, latency=lambda one, other: latency["s"])


def test_a_query_leaves_a_host_where_its_rows_take_too_long_for_its_bound(tmp_path: Path) -> None:
    """The measured work of rows counts: by the estimate, the bound would be kept everywhere."""
    control = msgspec.structs.replace(CONFIG.control, cores=0.45)
    configs = {name: msgspec.structs.replace(config, control=control) for name, config in CONFIGS.items()}

    async def test(cluster: SimulatedCluster) -> None:
        first = await begun(cluster, tmp_path / "out.csv", max_delay_ms=100.0)
        assert not await until(cluster, lambda node: node != first, limit_s=15.0)
        cluster.at(first).load_per_core = 0.4  # ten milliseconds a row, and a twentieth of a core is left to keep up
        assert await until(cluster, lambda node: node != first, limit_s=25.0)
        decisions = (await state_of(cluster, "a")).operators[-1].decisions
        (moved,) = (one for one in decisions if one.verdict == "moves")
        assert moved.code == "keeps-bound"
        assert moved.reason.startswith("its rows take ")
        await finished(cluster)
        check(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test, configs=configs, latency=Weather())


@pytest.mark.one_part_per_commit("queries that are placed again by others", parts=2)
def test_a_query_with_zones_is_placed_again_by_its_coordinators(tmp_path: Path) -> None:
    out, weather = tmp_path / "out.csv", Weather()

    async def test(cluster: SimulatedCluster) -> None:
        first = await begun(cluster, out, strategy="in-network")
        weather.between_s = 0.2
        assert await until(cluster, lambda node: node not in (first, "b", "c"))
        await finished(cluster)
        check(out)

    in_cluster(tmp_path, "abcd", test, configs=CONFIGS, latency=weather)


@pytest.mark.one_part_per_commit("queries that are placed again by others", parts=2)
def test_another_node_places_again_when_the_leader_dies(tmp_path: Path) -> None:
    out, weather = tmp_path / "out.csv", Weather()

    async def test(cluster: SimulatedCluster) -> None:
        await begun(cluster, out, at="e")
        assert leaders(cluster) == ["e"]
        cluster.crash(cluster.at("e"))
        await cluster.sleep(15.0)
        (leader,) = leaders(cluster)
        assert leader != "e"
        weather.between_s = 0.2
        assert await until(cluster, lambda node: node == "d", limit_s=90.0)
        await finished(cluster)
        check(out)

    in_cluster(tmp_path, "abcde", test, configs=CONFIGS, latency=weather)


@pytest.mark.one_part_per_commit("adaptations without a leader", parts=3)
@pytest.mark.parametrize("adapt", ["off", "local", "ants"])
def test_other_queries_stay(tmp_path: Path, adapt: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await begun(cluster, tmp_path / "out.csv", adapt=adapt)
        assert leaders(cluster) == []

    in_cluster(tmp_path, "abcd", test, configs=CONFIGS, latency=Weather())
