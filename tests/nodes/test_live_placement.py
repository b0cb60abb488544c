"""Placements on whole nodes in virtual time: their measurements, and the bounds that they keep."""

from __future__ import annotations

import itertools
import math
import random
import re
import string
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.leak_check import leaks
from sbon_node.config.config import Config
from sbon_node.context import ControlSettings
from sbon_node.overlay.directory.measuring import Measurement
from sbon_node.overlay.directory.settings import DirectorySettings
from sbon_node.papers.table import STRATEGIES
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.hybrid.hybrid import hybrid
from sbon_node.placing import LiveNetworkView
from sbon_node.queries.explaining import placements
from sbon_protocol.api.explanations import PlacementExplanation
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.queries import QuerySpec
from sbon_protocol.api.strategies import LOOKING_EVERYWHERE
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import SQL, ask, declare, in_cluster, source_at, state_of, submitted

NODES = string.ascii_lowercase[:20]
ONE_PART = random.Random(5)
AT_MS = {node: (ONE_PART.uniform(0, 80), ONE_PART.uniform(0, 80)) for node in NODES}
TREE = PlacementProblem(
    pinned={f"s{i}": NODES[i] for i in range(8)} | {"sink": NODES[8]},
    operators=tuple(Operator(id=f"o{i}", needs=Needs(cores=0.01)) for i in range(7)),
    edges=(
        *(Edge(f"s{i}", f"o{i // 2}", 1000.0) for i in range(8)),
        *(Edge(f"o{i}", f"o{4 + i // 2}", 400.0 + i) for i in range(4)),
        *(Edge(f"o{i}", "o6", 200.0 + i) for i in (4, 5)),
        Edge("o6", "sink", 100.0),
    ),
)


def one_way_s(a: str, b: str) -> float:
    return math.dist(AT_MS[a], AT_MS[b]) / 1000 + 0.001 if a != b else 0.0


def test_a_tree_of_seven_operators_has_all_measured_that_it_wants(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        view = LiveNetworkView(cluster.at("a").daemon.context)
        placed = await ask(cluster, "a", hybrid(TREE, view, PlacementSettings()))
        assert len(placed.assignments) == 7
        assert [one.reason for one in placed.assignments if "not all measured" in one.reason] == []
        assert view.probes > 128, "of 190 pairs, some of which its own probes had measured"
        assert [node for node in NODES if cluster.at(node).daemon.operations.status().counters.get("measurement-refused")] == []

    in_cluster(tmp_path, NODES, test, latency=one_way_s)


PLACES_MS = {"a": 0.0, "b": 20.0, "c": 60.0, "d": 90.0}
"""Along a line; every way has a millisecond beside."""


def along_s(a: str, b: str) -> float:
    return (abs(PLACES_MS[a] - PLACES_MS[b]) + 1.0) / 1000 if a != b else 0.0


def sized(cores: float = 4.0, bandwidth_bytes_s: float = 1e8) -> Config:
    control = ControlSettings(cores=cores, memory_mb=8_000.0, bandwidth_bytes_s=bandwidth_bytes_s)
    return msgspec.structs.replace(CONFIG, control=control)


async def refused(cluster: SimulatedCluster, **fields: Any) -> SbonError:
    with pytest.raises(SbonError) as refusal:
        await submitted(cluster, "d", None, **fields)
    await cluster.sleep(10)  # Until the refused submission is forgotten.
    assert await leaks(cluster) == []
    return refusal.value


async def explained(cluster: SimulatedCluster, at: str, query: str = "", **fields: Any) -> PlacementExplanation:
    daemon = cluster.at(at).daemon
    question = QuerySpec(sql=SQL, consumer="d", **fields)
    asked = daemon.queries.placement_explainer.query(query) if query else daemon.queries.placement_explainer.plan(question)
    found: PlacementExplanation = await ask(cluster, at, asked)
    return found


@pytest.mark.one_part_per_commit("strategies with a bound", parts=6)
@pytest.mark.parametrize("strategy", ["consumer", "hybrid", "auto", "in-network"])
def test_a_delay_that_cannot_be_kept_is_refused_before_anything_starts(tmp_path: Path, strategy: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        await cluster.sleep(20)  # Until the coordinates have settled.
        error = await refused(cluster, strategy=strategy, max_delay_ms=40.0)
        assert (error.code, error.where) == ("delay-bound", "max_delay_ms")
        (found, missing) = (float(word) for word in re.findall(r"(\d+\.\d) ms", error.message)[:2])
        assert found == pytest.approx(91.0, rel=0.15)
        assert missing == pytest.approx(found - 40.0, abs=0.11)
        info = await submitted(cluster, "d", None, strategy=strategy, max_delay_ms=120.0)
        assert info.placement is not None
        assert info.placement.delay_ms < 120.0

    in_cluster(tmp_path, "abcd", test, latency=along_s)


def test_a_query_keeps_what_it_was_submitted_for(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=1000, rate=10.0))
        goal_options = {"strategy": "auto", "objective": "usage=1,delay=50", "max_delay_ms": 150.0, "min_throughput_bytes_s": 1e5}
        await submitted(cluster, "b", None, **goal_options)
        for _ in range(2):
            info = await state_of(cluster, "d")
            assert info.goal_options() == goal_options
            assert info.placement is not None
            assert (info.placement.strategy, info.placement.reason[:18]) == ("optimal", "auto took optimal:")
            cluster.crash(cluster.nodes["b"])
            cluster.boot(cluster.nodes["b"])
            await cluster.sleep(5.0)

    in_cluster(tmp_path, "abcd", test, latency=along_s)


def test_auto_has_the_adaptation_in_mind_and_explanations_say_so(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=1000, rate=10.0))
        await cluster.sleep(20)
        for adapt, chosen, why in (
            ("off", "optimal", "all latencies are measured, and 6 placements are few enough"),
            ("local", "hybrid", "15 pairs of nodes are more than the 10 that may be measured for 1 operators that can move"),
            ("ants", "ants", "ants adapt the query"),
        ):
            found = await explained(cluster, "d", strategy="auto", adapt=adapt)
            assert (found.now.strategy, found.now_reason.partition(": ")[0]) == (chosen, f"auto took {chosen}")
            assert why in found.now_reason
        info = await submitted(cluster, "d", None, strategy="auto", adapt="ants")
        assert (info.adapt, info.strategy) == ("ants", "auto")
        assert info.placement is not None
        assert info.placement.strategy == "ants"
        walked = [cluster.network.traffic(node).counts for node in "abcdef"]
        assert any("scout" in kind for counts in walked for kind in counts), "its ants have walked between nodes"

    in_cluster(tmp_path, "abcdef", test, latency=lambda a, b: along_s("a", "d") if {a, b} == {"a", "d"} else 0.03)


def test_throughput_asked_for_is_reserved_or_refused(tmp_path: Path) -> None:
    """Only ``c`` can send ten megabytes a second."""
    configs = {name: sized(bandwidth_bytes_s=1e8 if name == "c" else 1e6) for name in "abcd"}

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=4000))
        error = await refused(cluster, min_throughput_bytes_s=1e9)
        assert (error.code, error.where) == ("throughput-bound", "min_throughput_bytes_s")
        assert "c has most left, 1e+08, 9e+08 too little" in error.message
        info = await submitted(cluster, "d", None, min_throughput_bytes_s=1e7)
        assert info.placement is not None
        assert set(info.placement.hosts().values()) == {"c"}
        answer = await ask(cluster, "d", LiveNetworkView(cluster.at("d").daemon.context).ask("c", Needs()))
        assert answer.capacity.bandwidth_bytes_s == pytest.approx(9e7)

    in_cluster(tmp_path, "abcd", test, configs=configs, latency=along_s)


def test_a_placement_is_explained_by_what_else_there_is_and_nothing_comes_of_it(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        await cluster.sleep(20.0)
        found = await explained(cluster, "b", max_delay_ms=120.0)
        assert (found.query, found.state, found.max_delay_ms) == ("", "planned", 120.0)
        assert {one.strategy: one.lost for one in found.strategies} == {
            name: one.lost for name, one in STRATEGIES.profiles.items()
        }
        (routes,) = (one for one in found.strategies if one.strategy == "ip-multicast")
        assert routes.refused.startswith("no-routes: ")
        (operator,) = found.operators
        assert (operator.node, found.current) == ("a", found.now), "a filter is best beside its source"
        (into,) = (link for link in found.links if link.target == operator.id)
        (onward,) = (link for link in found.links if link.source == operator.id)
        for one in operator.candidates:
            ways = into.rate_bytes_s * along_s("a", one.node), onward.rate_bytes_s * along_s(one.node, "d")
            assert one.measured == pytest.approx(sum(ways), rel=0.2)
            assert one.predicted == pytest.approx(sum(ways), rel=0.3, abs=30.0)
            assert (one.lost == "") == (one.node == "a")
            assert one.free is not None
        assert sorted(one.node for one in operator.candidates) == list("abcd")
        consumer = next(one for one in found.strategies if one.strategy == "consumer")
        assert consumer.hosts == {operator.id: "d"}
        assert consumer.cost == pytest.approx(into.rate_bytes_s * along_s("a", "d"), rel=0.2)
        delay = next(one for one in found.checks if one.bound == "max_delay_ms")
        assert delay.slack == pytest.approx(120.0 - 91.0, abs=15.0)
        assert [one for one in found.checks if one.slack is None or one.slack < 0] == []
        assert {one.node for one in found.nodes} == set("abcd")
        assert await leaks(cluster) == []
        assert [await ask(cluster, node, cluster.at(node).daemon.queries.lookup.all()) for node in "abcd"] == [[]] * 4

    in_cluster(tmp_path, "abcd", test, latency=along_s)


def test_a_query_that_runs_is_explained_against_what_would_be_chosen_now(tmp_path: Path) -> None:
    """Every node has room for one operator: the query's own room counts as free."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=4000))
        info = await submitted(cluster, "d", None, strategy="consumer")
        assert info.placement is not None
        assert set(info.placement.hosts().values()) == {"d"}
        found = await explained(cluster, "b", "q")
        assert (found.query, found.state, found.strategy) == ("q", "running", "consumer")
        (operator,) = found.operators
        assert (operator.node, operator.now) == ("d", "d"), "where it is there is room for it"
        assert found.current.hosts == found.now.hosts
        assert set(found.best.hosts.values()) == {"a"}
        assert found.best.cost is not None
        assert found.current.cost is not None
        assert found.best.cost < found.current.cost / 2
        near = operator.candidates[0]
        assert near.node == "a"
        assert near.lost.startswith("would cost ")
        hybrid = next(one for one in found.strategies if one.strategy == "hybrid")
        assert hybrid.hosts == found.best.hosts
        with pytest.raises(SbonError, match="there is no query"):
            await explained(cluster, "b", "unknown")

    in_cluster(tmp_path, "abcd", test, configs=dict.fromkeys("abcd", sized(cores=0.12)), latency=along_s)


def test_the_capacity_of_an_unreachable_host_is_unknown(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=4000))
        await submitted(cluster, "b", None, strategy="consumer", consumer="d")
        cluster.crash(cluster.nodes["d"])
        found = await explained(cluster, "b", "q")
        checks = [one for one in found.checks if one.where == "d"]
        assert [one.bound for one in checks] == list(Needs.__struct_fields__)
        assert {(one.limit, one.slack) for one in checks} == {(None, None)}
        assert [one.free for one in found.operators[0].candidates if one.node == "d"] == [None]

    in_cluster(tmp_path, "abcd", test, latency=along_s)


def test_an_unmeasured_path_may_decide_the_choice(tmp_path: Path) -> None:
    """Without measurements the paths of the best placement have coordinates' latencies, and some would change it."""
    blind = msgspec.structs.replace(sized(), placement=PlacementSettings(measure=False))

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        await cluster.sleep(20.0)
        found = await explained(cluster, "b")
        assert found.turns
        for turn in found.turns:
            assert turn.known == "coordinates"
            assert turn.age_s is not None
            assert "b" not in (turn.a, turn.b), "these ways its own probes have measured"
            assert turn.latency_ms is not None
            assert turn.below_ms is None or (turn.below_ms < turn.latency_ms and turn.moves_below)
            assert turn.above_ms is None or (turn.above_ms > turn.latency_ms and turn.moves_above)

    in_cluster(tmp_path, "abcd", test, configs=dict.fromkeys("abcd", blind), latency=along_s)


def refusals(found: PlacementExplanation) -> dict[str, str]:
    return {one.strategy: one.refused for one in found.strategies if one.refused.startswith("not-computed: ")}


def test_strategies_that_take_too_long_or_would_are_left_out_of_an_explanation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three pings take a tenth of a second, and questions the way there and back."""
    hurried = msgspec.structs.replace(sized(), control=msgspec.structs.replace(sized().control, explain_s=0.05))

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        found = await explained(cluster, "b")
        assert refusals(found) == {"centralized": "not-computed: not done after 0.05 s (control.explain_s)"} | {
            name: text for name, text in refusals(found).items() if "not done after" in text
        }
        assert "a" in found.now.hosts.values(), "the strategy that is asked about has its time"
        monkeypatch.setattr(placements, "MOST_LOOKED_AT", 3)
        large = {name for name, text in refusals(await explained(cluster, "b")).items() if "too large: 4 places" in text}
        assert large == set(LOOKING_EVERYWHERE)
        assert await leaks(cluster) == []

    in_cluster(tmp_path, "abcd", test, configs=dict.fromkeys("abcd", hurried), latency=along_s)


def test_explaining_leaves_measurements_for_placing(tmp_path: Path) -> None:
    """Explanations may measure some 15 of the 28 paths between eight nodes, and leave as many."""
    scarce = msgspec.structs.replace(sized(), directory=DirectorySettings(burst_pairs=30, pairs_per_s=1e-3))
    near = "abcdefgh"

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        daemon = cluster.at("e").daemon
        for consumer in "dbgf":
            found = await ask(cluster, "e", daemon.queries.placement_explainer.plan(QuerySpec(sql=SQL, consumer=consumer)))
        assert "reserved for placing queries" in found.operators[0].reason
        directory = daemon.context.directory
        left = [pair for pair in itertools.combinations(near, 2) if directory.known(pair) is None]
        assert len(left) >= 13
        outcomes = await ask(cluster, "e", directory.measure(left))
        assert all(isinstance(one, Measurement) for one in outcomes.values())
        with pytest.raises(SbonError, match="as much as it may for now") as refusal:
            await ask(cluster, "e", directory.measure(left[:8], max_age_s=0.0))
        assert "reserved" not in refusal.value.message

    in_cluster(tmp_path, near, test, configs=dict.fromkeys(near, scarce), latency=lambda a, b: 0.01 if a != b else 0.0)
