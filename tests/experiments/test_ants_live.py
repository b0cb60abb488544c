"""``sbon experiment ants-live``: ants between whole daemons, beside ants in one node and the exact optimum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sbon_cli.main import sbon
from sbon_lab.experiments.ants.world import chain_of, chain_query
from sbon_lab.experiments.harness.network import between, plain
from sbon_lab.experiments.harness.network_model import name_of
from sbon_lab.experiments.live.ant_adaptation import drawn
from sbon_lab.experiments.live.ant_figures import WITH, WITHOUT
from sbon_lab.experiments.live.ants import Truth

ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("experiments of today's size")


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.parametrize(
    "nodes, queries, losses", [(8, 1, (0.1,)), pytest.param(14, 3, (0.0, 0.1), marks=ONLY_IN_TEST_ALL)], ids=["small", "large"]
)
def test_ants_between_daemons_are_near_the_optimum(tmp_path: Path, nodes: int, queries: int, losses: tuple[float, ...]) -> None:
    np.savez(tmp_path / "plane.npz", rtt_ms=2 * between(np.random.default_rng(5).uniform(0, 60, (nodes, 2))))
    lost = [option for loss in losses for option in ("--loss", str(loss))]
    command = ("experiment", "ants-live", "--data", str(tmp_path / "plane.npz"), "--queries", str(queries), *lost)
    result = CliRunner().invoke(sbon, [*command, "--json"])
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    assert [row["loss"] for row in rows] == list(losses)
    for row in rows:
        assert row["failed"] == row["failed_in_one_node"] == 0
        assert 1 - 1e-6 <= row["of_exact"] < 1.05
        assert 50 < row["messages"] < 2000
        assert row["kb"] < 300
        assert row["rest_bytes_s"] < 200


def test_the_truth_is_never_better_than_the_exact_optimum() -> None:
    network = plain("small", between(np.random.default_rng(1).uniform(0, 40, (6, 2))))
    truth, rng = Truth(network), np.random.default_rng(2)
    for number in range(4):
        chain = chain_of(chain_query(number, 6, rng, 3))
        once = [hosts for hosts in np.ndindex(6, 6, 6) if hosts[0] != hosts[2] or len(set(hosts)) == 1]
        least_ms = min(truth.latency_ms(chain, [name_of(node) for node in hosts]) for hosts in once)
        assert truth.exact_ms(chain) == pytest.approx(least_ms) or number > 0, "the extra waiting of others counts as well"
        assert truth.exact_ms(chain) >= least_ms - 1e-6
        truth.latency_ms(chain, [name_of(0)] * 3, stay=number < 2)
    assert truth.cells["n0000"].traffic.flows == 2


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.parametrize("seconds", [60.0, pytest.param(100.0, marks=ONLY_IN_TEST_ALL)])
def test_ants_move_a_running_query_whose_rate_rises(tmp_path: Path, seconds: float) -> None:
    np.savez(tmp_path / "plane.npz", rtt_ms=2 * between(np.random.default_rng(5).uniform(0, 30, (6, 2))))
    command = (
        "experiment",
        "ants-live",
        "--data",
        str(tmp_path / "plane.npz"),
        "--nodes",
        "6",
        "--figure",
        "3a",
        "--seconds",
        str(seconds),
    )
    result = CliRunner().invoke(sbon, [*command, "--json"])
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    latency_ms = {(row["strategy"], row["at"]): row["latency_ms"] for row in rows}
    least_ms = {at: row["latency_ms"] / (1 + row["beyond_exact_pct"] / 100) for row in rows for at in [row["at"]]}
    assert [row["updates"] > 0 for row in rows] == [row["strategy"] == WITH for row in rows]
    assert latency_ms[WITHOUT, seconds] > 1.5 * latency_ms[WITHOUT, 0.0], "its rate has risen twice"
    assert latency_ms[WITH, seconds] < 0.7 * latency_ms[WITHOUT, seconds]
    assert latency_ms[WITH, seconds] < 1.5 * least_ms[seconds]


def test_a_query_gets_the_rate_that_makes_a_load() -> None:
    query = drawn(3, 8, np.random.default_rng(1))
    query.flow.rows_s = query.rate_for(0.6)
    chain = query.chain()
    assert chain.flow(0, 3).rate_s * chain.flow(0, 3).service.mean_ms / 1000 == pytest.approx(0.6)
    assert sum(rate * ms for rate, ms in zip(query.rates_s(), query.work_ms, strict=True)) == pytest.approx(600.0)
