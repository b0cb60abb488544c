"""Figures of strategies side by side from what runs have shown, and small runs of whole daemons."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.experiments.adaptation.run import Look, Observed, Sent
from sbon_lab.experiments.adaptation.strategies_live import STRATEGIES, experiment, figures, kinds
from sbon_lab.experiments.adaptation.world import draw
from tests.experiments.test_adaptation_experiment import matrix


def test_means_are_over_time_and_bounds_over_looks_at_queries_with_one() -> None:
    looks = [
        Look(0.0, "q0", 900.0, 900.0, 300.0, 40.0),
        Look(0.0, "q1", 500.0, 500.0, 100.0, 80.0, late=True),
        Look(30.0, "q0", 1000.0, 400.0, 300.0, 30.0),
        Look(30.0, "q1", 600.0, 200.0, 100.0, 50.0),
    ]
    hosts = {"q0-x.b0": [(0.0, "a"), (30.0, "b")], "q1-x.b0": [(0.0, "a"), (30.0, "c")]}
    run = Observed(
        looks, hosts, [], Sent(3000, 600, 30), 60.0, 60.0, 1.0, (), Sent(1000, 5000, 12), 8, {"q2": "delay-bound: late"}
    )
    row = figures([run], queries=3, nodes=2, bounded={"q1", "q2"})
    assert row["usage_bytes"] == 500.0
    assert row["usage_over_oracle"] == pytest.approx(2000 / 800)
    assert row["first_over_oracle"] == pytest.approx(3000 / 800)
    assert row["delay_ms"] == 50.0
    assert row["late_share"] == 0.5  # q0 has no bound
    assert (row["moves"], row["moves_operator_hour"]) == (2, pytest.approx(60.0))
    assert (row["probes_query"], row["placing_messages_query"], row["placing_kb_query"]) == (pytest.approx(8 / 3), 4.0, 2.0)
    assert (row["running_messages_s_node"], row["running_bytes_s_node"]) == (0.25, 30.0)
    assert (row["failed"], row["failures"]) == (1, ["delay-bound: late"])


def test_figures_of_queries_that_are_all_refused_are_unknown() -> None:
    row = figures(
        [Observed([], {}, [], Sent(0, 0), 60.0, 60.0, 1.0, failed={"q0": "unsupported"})], queries=1, nodes=2, bounded=set()
    )
    assert [row[name] for name in ("usage_bytes", "usage_over_oracle", "delay_ms", "late_share", "moves_operator_hour")] == [
        None
    ] * 5


def test_ants_are_an_adaptation_of_their_own_strategy() -> None:
    assert list(kinds(("hybrid", "ants"), ("off", "local", "full"))) == [
        ("hybrid", "off"),
        ("hybrid", "local"),
        ("hybrid", "full"),
        ("ants", "off"),
        ("ants", "local"),
        ("ants", "ants"),
    ]
    assert list(kinds(("hybrid", "ants"), ("ants",))) == [("ants", "ants")]
    assert "ip-multicast" not in STRATEGIES
    assert {"auto", "hybrid", "ants"} <= set(STRATEGIES)


def test_half_of_the_queries_have_a_bound(tmp_path: Path) -> None:
    world = draw(matrix(tmp_path, 8), nodes=8, queries=4, seed=1, changes=(), round_s=1.0, bound=2.0)
    free, join, count, other = world.queries
    assert (free.max_delay_ms, other.max_delay_ms) == (None, None)
    for query in (join, count):
        straight = max(world.weather.between_ms(flow.source.node, query.consumer, 0.0) for flow in query.flows)
        assert query.max_delay_ms == pytest.approx(2 * straight)


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_a_small_run_has_a_row_for_each_strategy_and_adaptation(tmp_path: Path) -> None:
    result = experiment(
        matrix(tmp_path, 6), strategies=("consumer",), adaptations=("off", "local"), nodes=6, queries=2, minutes=0.4, period_s=6.0
    )
    off, local = result["rows"]
    assert (off["strategy"], off["adapt"], off["moves"], off["failed"]) == ("consumer", "off", 0, 0)
    assert off["usage_over_oracle"] == pytest.approx(off["first_over_oracle"])
    assert off["late_share"] == 0  # rows go straight to the consumer
    assert local["moves"] > 0
    assert local["usage_over_oracle"] < local["first_over_oracle"]
    assert off["placing_messages_query"] > 0
    assert off["running_bytes_s_node"] > 0


def test_a_query_that_is_refused_is_counted(tmp_path: Path) -> None:
    (row,) = experiment(
        matrix(tmp_path, 6), strategies=("ip-multicast",), adaptations=("off",), nodes=5, queries=1, minutes=0.1, period_s=6.0
    )["rows"]
    assert row["failed"] == 1
    assert row["failures"] == ["no-routes: which routers packets pass is not known"]
