"""Hosts move the operators of running queries to where they save network usage; rows stay exact."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_node.adaptation.settings import AdaptationSettings, preset
from sbon_node.base.events import MoveDecided
from sbon_node.config.config import Config
from sbon_protocol.api.queries import OperatorInfo
from tests.calm_clusters import CALM
from tests.nodes.clusters import declare, in_cluster, owner_of, source_at, state_of, submitted
from tests.nodes.test_moved_operators import FILTER, check_filtered, finished
from tests.nodes.test_notifications import listening, told

SMALL = preset("eager", period_s=5.0, least_measured_s=5.0, least_saving_bytes=0.5, rest_s=10.0, return_s=50.0)
"""For streams of some hundred bytes a second."""
WHOLE_ROWS = "SELECT count(*) AS n, sum(id) AS ids, sum(v) AS v FROM numbers GROUP BY window(ts, '200 milliseconds')"
"""All columns are read, so that no other operator leaves some out."""


def adapting(names: str, settings: AdaptationSettings = SMALL, config: Config = CALM) -> dict[str, Config]:
    return dict.fromkeys(names, msgspec.structs.replace(config, adaptation=settings))


async def started(cluster: SimulatedCluster, path: Path, sql: str, *, rows: int, adapt: str | None, strategy: str) -> None:
    await declare(cluster, "a", source_at("b", rows=rows, rate=40.0))
    await submitted(cluster, "a", path, sql=sql, strategy=strategy, adapt=adapt)
    while not (await state_of(cluster, "a")).rows:
        await cluster.clock.sleep(0.2)


async def only(cluster: SimulatedCluster) -> OperatorInfo:
    (operator,) = (await state_of(cluster, "a")).operators
    return operator


def test_an_operator_moves_to_its_source_once(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await started(cluster, tmp_path / "out.csv", FILTER, rows=1600, adapt="local", strategy="consumer")
        listener = listening(cluster, "a", "placement")
        assert (await only(cluster)).node == "a"
        await cluster.clock.sleep(30)
        operator = await only(cluster)
        assert (operator.node, await owner_of(cluster, "a", operator.id)) == ("b", ("b", 2))
        (past,) = operator.past_moves
        assert past.node == "a"
        assert "saves" in past.reason
        (decided,) = (event for event in told(listener) if isinstance(event, MoveDecided) and event.verdict == "moves")
        assert (decided.node, decided.target, decided.code) == ("a", "b", "saves")
        assert decided.usage is not None
        assert decided.usage_there is not None
        assert 0.25 < decided.usage_there / decided.usage < 0.75  # half of the rows pass
        kinds = {(one.verdict, one.code) for one in operator.decisions}
        assert ("stays", "rests") in kinds
        assert kinds <= {("stays", "rests"), ("stays", "is-best"), ("stays", "unchanged")}
        await finished(cluster)
        check_filtered(tmp_path / "out.csv", 1600)

    in_cluster(tmp_path, "abc", test, configs=adapting("abc"))


def test_nothing_moves_unless_it_is_asked_for(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await started(cluster, tmp_path / "out.csv", FILTER, rows=600, adapt=None, strategy="consumer")
        info = await state_of(cluster, "a")
        await cluster.clock.sleep(10)
        assert info.adapt == "off"
        operator = await only(cluster)
        assert (operator.node, operator.decisions, operator.past_moves) == ("a", (), ())
        await finished(cluster)
        check_filtered(tmp_path / "out.csv", 600)

    in_cluster(tmp_path, "ab", test, configs=adapting("ab", msgspec.structs.replace(SMALL, default="off")))


def test_an_overloaded_node_moves_its_busiest_operator_away(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        cluster.at("c").load_per_core = 1.5  # more than half of the limit: no target, though it is the nearest to b
        await started(cluster, tmp_path / "out.csv", FILTER, rows=1200, adapt="local", strategy="producer")
        assert (await only(cluster)).node == "b"
        cluster.at("b").load_per_core = 2.5
        await cluster.clock.sleep(20)
        operator = await only(cluster)
        assert operator.node in ("a", "d")
        assert "relieve" in operator.past_moves[-1].reason
        await finished(cluster)
        check_filtered(tmp_path / "out.csv", 1200)

    def latency_s(one: str, other: str) -> float:
        return 0.002 if {one, other} == {"b", "c"} else 0.012

    configs = adapting("abcd", msgspec.structs.replace(SMALL, overload_cost=100.0))
    in_cluster(tmp_path, "abcd", test, configs=configs, latency=latency_s)


@pytest.mark.one_part_per_commit("bounds near and far", parts=2)
@pytest.mark.parametrize("near_bound, hosts", [(0.2, ("b", "a")), (0.9, ("b",))])
def test_a_bound_that_is_about_to_be_broken_moves_an_operator_that_saves_usage(
    tmp_path: Path, near_bound: float, hosts: tuple[str, ...]
) -> None:
    """At b, the source with most rows, those of c take two links; at the consumer's node one, but all rows travel."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=1600, rate=40.0), source_at("c", rows=160, rate=4.0))
        await submitted(
            cluster, "a", None, sql=WHOLE_ROWS, strategy="producer", adapt="local", decompose="never", max_delay_ms=1400.0
        )
        await cluster.clock.sleep(35)
        operator = (await state_of(cluster, "a")).operators[-1]
        assert (*(past.node for past in operator.past_moves), operator.node) == hosts
        for past in operator.past_moves:
            assert "through a 150.0 instead of 300.0 ms" in past.reason

    settings = msgspec.structs.replace(SMALL, least_saving=0.4, near_bound=near_bound)
    quality = NetworkQuality(jitter=0.0, spike=0.0, loss=0.0)
    configs = adapting("abc", settings)
    in_cluster(tmp_path, "abc", test, configs=configs, latency=lambda one, other: 0.15, quality=quality)


def test_an_error_of_the_program_ends_one_decision_only(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await started(cluster, tmp_path / "out.csv", FILTER, rows=1600, adapt="local", strategy="producer")
        node = cluster.at("b")
        deciding = node.daemon.adaptation.local.optimizer._deciding
        load, deciding._load = deciding._load, lambda: None  # type: ignore[assignment,return-value]  # no number
        await cluster.clock.sleep(20)
        operator = await only(cluster)
        assert (operator.node, operator.decisions[-1].code) == ("b", "internal")
        assert "TypeError" in operator.decisions[-1].reason
        assert operator.decisions[-1].times >= 2
        assert node.daemon.context.counters.snapshot()["optimizer-failed"] >= 2
        node.load_per_core, deciding._load = 2.5, load
        await cluster.clock.sleep(15)
        assert (await only(cluster)).node == "a"
        await finished(cluster)
        check_filtered(tmp_path / "out.csv", 1600)

    in_cluster(tmp_path, "ab", test, configs=adapting("ab", msgspec.structs.replace(SMALL, overload_cost=100.0)))
