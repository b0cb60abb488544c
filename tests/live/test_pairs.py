"""A query on real nodes leaves a host that has become slow or busy, and its twin stays: the rows of both are DuckDB's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sbon_lab.bench.usage import Area
from sbon_lab.commands.live_pairs import Plan, run_pairs
from sbon_lab.experiments.live.pair_figures import by_pair
from sbon_lab.experiments.live.pairs import LEAST_ENDS, PairWorld, draw_pairs

pytestmark = [
    pytest.mark.live,
    pytest.mark.needs_idle_machine,
    pytest.mark.only_in_test_all("hosts that become slow or busy under pairs of live queries"),
]
HOSTS = 2
NAMES = tuple(f"n{number}" for number in range(LEAST_ENDS + HOSTS))
PERIOD_S = 5.0


def _world(rtt_ms: float) -> PairWorld:
    """Return one pair between two hosts. One is a fifth nearer to all, so that no query leaves it for a noisy measurement."""
    names = draw_pairs(_area(lambda one, other: rtt_ms), nodes=len(NAMES), hosts=HOSTS, pairs=1, seed=1).hosts
    area = _area(lambda one, other: rtt_ms * (0.8 if names[0] in (one, other) else 1.0))
    return draw_pairs(area, nodes=len(NAMES), hosts=HOSTS, pairs=1, seed=1)


def _area(rtt_ms: Callable[[str, str], float]) -> Area:
    return Area(NAMES, tuple(tuple(0.0 if one == other else rtt_ms(one, other) for other in NAMES) for one in NAMES))


@pytest.mark.parametrize("adapt", ["ants", "local"])
def test_a_query_leaves_a_host_that_became_slow(tmp_path: Path, adapt: str) -> None:
    """The only other host is better by far."""
    plan = Plan(adapt, 70.0, PERIOD_S, (20.0,), 1, settle_s=10.0, ahead_s=20.0)
    run = run_pairs(_world(40.0), plan, tmp_path, lambda text: None)
    (row,) = by_pair(run, PERIOD_S)
    assert row["changed_host"], run.seen
    assert row["moves"] == 1, run.seen
    assert run.seen[-1].migrating_delay_ms < run.seen[-1].fixed_delay_ms / 2, run.seen
    assert (row["rows"] > 0, row["wrong"]) == (True, 0)


@pytest.mark.parametrize("adapt", ["ants", "local"])
def test_a_query_leaves_a_host_that_became_busy(tmp_path: Path, adapt: str) -> None:
    """The load alone is a reason: all ways are short beside the wait at a busy host."""
    plan = Plan(adapt, 70.0, PERIOD_S, (20.0,), 1, change="load", settle_s=10.0, ahead_s=20.0)
    run = run_pairs(_world(8.0), plan, tmp_path, lambda text: None)
    (row,) = by_pair(run, PERIOD_S)
    assert row["changed_host"], run.seen
    assert row["moves"] == 1, run.seen
    assert (row["rows"] > 0, row["wrong"]) == (True, 0)
