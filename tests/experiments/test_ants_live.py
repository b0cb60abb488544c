"""``sbon experiment ants-live``: ants between whole daemons, beside ants in one node and the exact optimum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sbon_cli.main import sbon
from sbon_node.experiments.ants.world import chain_of, chain_query
from sbon_node.experiments.harness.network import between, plain
from sbon_node.experiments.harness.network_model import name_of
from sbon_node.experiments.live.ants import Truth


@pytest.mark.slow
def test_ants_between_daemons_are_near_the_optimum(tmp_path: Path) -> None:
    np.savez(tmp_path / "plane.npz", rtt_ms=2 * between(np.random.default_rng(5).uniform(0, 60, (14, 2))))
    command = ("experiment", "ants-live", "--data", str(tmp_path / "plane.npz"), "--queries", "3", "--loss", "0", "--loss", "0.1")
    result = CliRunner().invoke(sbon, [*command, "--json"])
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    assert [row["loss"] for row in rows] == [0.0, 0.1]
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
