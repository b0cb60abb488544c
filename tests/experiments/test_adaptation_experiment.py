"""Figures of adaptation from what a run has shown, and a small run of whole daemons."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from sbon_lab.experiments.adaptation.figures import experiment, figures, missed, plan_changes, relieved, returns, unpaid
from sbon_lab.experiments.adaptation.paper_figures import by_placement, by_query, over_time
from sbon_lab.experiments.adaptation.posts import rows_of
from sbon_lab.experiments.adaptation.run import Look, Observed, Sent
from sbon_lab.experiments.adaptation.world import Change, Weather, draw
from sbon_protocol.api.adaptation import MoveDecision
from sbon_protocol.errors import SbonError

ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("experiments of today's size")


def observed(looks: list[Look], hosts: dict[str, list[tuple[float, str]]]) -> Observed:
    return Observed(looks, hosts, [], Sent(0, 0), 400.0, 400.0, 1.0)


def test_the_saving_counts_from_three_periods_after_each_change() -> None:
    adapting = {0.0: 900.0, 59.0: 900.0, 60.0: 400.0, 99.0: 400.0, 100.0: 950.0, 159.0: 950.0, 160.0: 300.0}
    looks = [Look(at_s, "q0", 1000.0, usage, 200.0) for at_s, usage in adapting.items()]
    row = figures(observed(looks, {"q0-x.b0": [(0.0, "a"), (50.0, "b")]}), [Change(100.0, "latency")], 20.0)
    assert row["saving_share"] == pytest.approx((3000 - 1100) / (3000 - 600))
    assert row["saving_share_begin"] == pytest.approx(1200 / 1600)
    assert row["saving_share_latency"] == pytest.approx(700 / 800)
    assert (row["moves"], row["most_moves"], row["moves_operator_hour"]) == (1, 1, 9.0)
    assert row["missed"] == ["saving_share", "moves_operator_hour"]


def test_returns_within_a_time_are_counted() -> None:
    seen = [(0.0, "a"), (100.0, "b"), (250.0, "a"), (500.0, "b"), (600.0, "c")]
    assert returns({"q.b0": seen}, 200.0) == 1  # a again, 150 s after it was left; b only after 250 s
    assert returns({"q.b0": seen}, 300.0) == 2
    assert returns({"q.b0": seen}, 100.0) == 0


def test_a_busy_node_is_relieved_if_an_operator_leaves_it_soon() -> None:
    seen = {"q0-x.b0": [(0.0, "a"), (150.0, "b")], "q0-x.b1": [(0.0, "c"), (100.0, "d")]}
    for busy, count in ((((100.0, "a"),), 1), (((80.0, "a"),), 0), (((100.0, "c"),), 0), (((100.0, "a"), (90.0, "c")), 2)):
        assert relieved(observed([], seen)._replace(busy=busy), 60.0) == count


def test_a_move_that_raises_usage_has_not_paid() -> None:
    looks = [Look(10.0, "q0", 1000.0, 800.0, 1.0), Look(20.0, "q0", 2000.0, 1500.0, 1.0), Look(30.0, "q0", 2000.0, 1600.0, 1.0)]
    assert unpaid(observed(looks, {"q0-x.b0": [(10.0, "a"), (20.0, "b")]})) == 0  # 80 % of never moving, then 75 %
    assert unpaid(observed(looks, {"q0-x.b0": [(10.0, "a"), (30.0, "b")]})) == 1


def test_joint_moves_that_were_given_up_do_not_count() -> None:
    made = MoveDecision(operator="q0-x.b0", node="a", at_ms=1, verdict="moves", code="together", reason="")
    others = [replace(made, outcome="given-up: b is full"), replace(made, verdict="stays"), replace(made, code="saves")]
    seen = observed([], {"q0-x.b0": [(0.0, "a"), (50.0, "b")]})._replace(decisions=[made, *others])
    assert figures(seen, [], 20.0)["joint_moves"] == 1


def test_changes_come_after_the_first_quarter() -> None:
    changes = plan_changes(600.0, 3)
    assert [change.kind for change in changes] == ["latency", "rate", "selectivity", "load"]
    assert changes[0].at_s == 150.0
    assert all(change.at_s < 600.0 for change in changes)


def test_the_weather_changes_with_rounds_and_slow_nodes() -> None:
    rounds = np.array([[[0.0, 10.0], [10.0, 0.0]], [[0.0, 12.0], [12.0, 0.0]]])
    weather = Weather(("a", "b"), rounds, 100.0)
    assert [weather.between_ms("a", "b", now_s) for now_s in (0.0, 99.0, 100.0, 201.0)] == [10.0, 10.0, 12.0, 10.0]
    weather.slower["b"] = 80.0
    assert weather.between_ms("a", "b", 100.0) == 92.0
    assert weather.between_ms("b", "b", 100.0) == 0.0


def test_the_papers_figures_are_of_both_variants() -> None:
    looks = [Look(at_s, "q0", 1000.0, usage, 1.0) for at_s, usage in ((0.0, 1000.0), (60.0, 600.0), (120.0, 700.0))]
    shown = observed(looks, {"q0-x.b0": [(0.0, "a"), (60.0, "b")]})
    assert [(row["minutes"], row["usage_bytes"]) for row in over_time(shown) if row["variant"] == "migrating"] == [
        (0.0, 1000.0),
        (1.0, 600.0),
        (2.0, 700.0),
    ]
    assert [row["hosts"] for row in over_time(shown)][::2] == ["b0@a", "b0@b", "b0@b"]
    assert [(row["hosts"], row["normalized"]) for row in by_placement(shown)] == [("a", 1.0), ("b", 0.65)]
    ((row),) = by_query(shown)
    assert (row["rank"], row["moves"], row["relative_change"]) == (1, 1, pytest.approx(-700 / 3000))


def matrix(folder: Path, nodes: int) -> Path:
    points = np.random.default_rng(3).uniform(0, 100, (nodes, 2))
    np.savez(folder / "made.npz", rtt_ms=np.linalg.norm(points[:, None] - points[None], axis=-1) + 5)
    return folder / "made.npz"


def test_a_matrix_may_have_too_few_nodes(tmp_path: Path) -> None:
    with pytest.raises(SbonError, match="9 are needed"):
        draw(matrix(tmp_path, 8), nodes=9, queries=1, seed=1, changes=(), round_s=1.0)


def test_the_aims_without_changes_are_stricter() -> None:
    row = {"changes": 3, "saving_share": 0.91, "moves_operator_hour": 4.0, "returns": 0, "unpaid_moves": 1}
    assert missed(row) == []
    assert missed(row | {"saving_share": 0.89, "returns": 1}) == ["saving_share", "returns"]
    assert missed(row | {"changes": 0}) == ["moves_operator_hour", "unpaid_moves"]
    assert missed(row | {"optimizers_bytes_s_node": 301.0}) == ["optimizers_bytes_s_node"]


def test_changes_of_rate_and_selectivity_are_taken_back_by_the_next_one(tmp_path: Path) -> None:
    flow = draw(matrix(tmp_path, 6), nodes=5, queries=1, seed=1, changes=(), round_s=1.0).queries[0].flows[0]
    before = flow.rows_s, flow.share
    flow.change("rate")
    flow.change("selectivity")
    assert flow.rows_s == pytest.approx(5 * before[0])
    assert {flow.share, before[1]} == {0.1, 0.9}
    flow.change("selectivity")
    flow.change("rate")
    assert (flow.rows_s, flow.share) == pytest.approx(before)


def test_rows_carry_the_share_and_are_spread_over_time(tmp_path: Path) -> None:
    flow = draw(matrix(tmp_path, 6), nodes=5, queries=1, seed=1, changes=(), round_s=1.0).queries[0].flows[0]
    rows = [json.loads(row) for row in rows_of(flow, 4, 100, 8000.0, 4.0, np.random.default_rng(1))]
    assert [row["id"] for row in rows] == [100, 101, 102, 103]
    assert [row["ts"] for row in rows] == [8000, 9000, 10_000, 11_000]
    assert {(row["share"], len(row["t"])) for row in rows} == {(flow.share, 1000)}


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.parametrize("minutes, period_s", [(0.2, 3.0), pytest.param(0.5, 5.0, marks=ONLY_IN_TEST_ALL)])
def test_a_small_run_has_all_figures(tmp_path: Path, minutes: float, period_s: float) -> None:
    result = experiment(matrix(tmp_path, 6), nodes=5, queries=1, minutes=minutes, period_s=period_s, changes=False)
    (row,) = result["rows"]
    assert row["operators"] == 4
    assert row["never_bytes"] >= row["oracle_bytes"] > 0
    assert row["adapting_bytes"] >= row["oracle_bytes"] * (1 - 1e-9)
    assert row["returns"] == 0
