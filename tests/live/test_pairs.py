"""A query on real nodes leaves a host that has become slow or busy, and its twin stays: the rows of both are DuckDB's."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.bench.usage import Area
from sbon_lab.commands.live_pairs import Plan, run_pairs
from sbon_lab.experiments.live.pair_figures import by_pair
from sbon_lab.experiments.live.pairs import LEAST_ENDS, draw_pairs

pytestmark = [
    pytest.mark.live,
    pytest.mark.needs_idle_machine,
    pytest.mark.only_in_test_all("hosts that become slow or busy under pairs of live queries"),
]
HOSTS = 2
NAMES = tuple(f"n{number}" for number in range(LEAST_ENDS + HOSTS))
AREA = Area(NAMES, tuple(tuple(0.0 if one == other else 40.0 for other in NAMES) for one in NAMES))
PERIOD_S = 5.0


@pytest.mark.parametrize("adapt", ["ants", "local"])
def test_a_query_leaves_a_host_that_became_slow(tmp_path: Path, adapt: str) -> None:
    """The only other host is better by far."""
    world = draw_pairs(AREA, nodes=len(NAMES), hosts=HOSTS, pairs=1, seed=1)
    plan = Plan(adapt, 40.0, PERIOD_S, (12.0,), 1, settle_s=10.0, ahead_s=20.0)
    run = run_pairs(world, plan, tmp_path, lambda text: None)
    (row,) = by_pair(run, PERIOD_S)
    assert row["changed_host"]
    assert row["moves"] == 1
    assert row["migrating_delay_ms"] < row["fixed_delay_ms"] / 2
    assert (row["rows"] > 0, row["wrong"]) == (True, 0)


@pytest.mark.parametrize("adapt", ["ants", "local"])
def test_a_query_leaves_a_host_that_became_busy(tmp_path: Path, adapt: str) -> None:
    """All ways are equally long, and so the load alone is a reason."""
    world = draw_pairs(AREA, nodes=len(NAMES), hosts=HOSTS, pairs=1, seed=1)
    plan = Plan(adapt, 60.0, PERIOD_S, (15.0,), 1, change="load", settle_s=10.0, ahead_s=20.0)
    run = run_pairs(world, plan, tmp_path, lambda text: None)
    (row,) = by_pair(run, PERIOD_S)
    assert row["changed_host"]
    assert row["moves"] == 1
    assert (row["rows"] > 0, row["wrong"]) == (True, 0)
