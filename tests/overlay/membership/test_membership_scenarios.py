"""The reports of ``sbon experiment membership`` for small clusters in virtual time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from sbon_lab.experiments.live.membership import experiment


def figures(scenario: str, nodes: int, *, minutes: float = 1.0, seed: int = 1) -> dict[str, Any]:
    rows = experiment([nodes], scenarios=[scenario], minutes=minutes, seed=seed)["rows"]
    return {row["figure"]: row["value"] for row in rows}


@pytest.mark.one_part_per_commit("clusters of some dozens of members", parts=12)
@pytest.mark.parametrize(
    "scenario, nodes, minutes, bounds",
    [
        ("crash", 60, 1, {"detect_p50_s": 5.0, "detect_p99_s": 10.0, "all_more_p99_s": 4.0}),
        ("weather", 40, 2, {"false_deaths": 0}),
        ("partition", 24, 1, {"seen_apart": 12, "heal_s": 60}),
        ("restart", 40, 1, {"booted_s": 10, "together_s": 30}),
        ("oneway", 20, 2, {"false_deaths": 0}),
        ("loss", 20, 1, {"recover_s": 30}),
        ("rest", 20, 1, {"bytes_s": 1500}),
        ("churn", 24, 1, {"bytes_s": 1500, "false_deaths": 0}),
        ("join", 40, 1, {"coordinates_s": 5, "known_s": 10}),
    ],
)
def test_a_cluster_of_some_dozens_stays_within_its_bounds(
    scenario: str, nodes: int, minutes: float, bounds: dict[str, float]
) -> None:
    found = figures(scenario, nodes, minutes=minutes)
    assert {
        name: value for name, value in found.items() if name in bounds and not (value is not None and value <= bounds[name])
    } == {}
    assert set(bounds) <= set(found)


@pytest.mark.one_part_per_commit("clusters of members", parts=6)
def test_an_experiment_is_a_function_of_its_seed() -> None:
    program = (
        "import json, logging, structlog\n"
        "structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))\n"
        "from sbon_lab.experiments.live.membership import experiment\n"
        "print(json.dumps(experiment([12], scenarios=['crash', 'churn'], minutes=1.0, seed={seed})))\n"
    )

    def output(seed: int, hash_seed: int) -> str:
        environment = {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", program.format(seed=seed)]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    first = output(3, 1)
    assert json.loads(first)["rows"]
    assert output(3, 2) == first
    assert output(4, 1) != first


@pytest.mark.parametrize("scenario", ["crash", "churn"])
def test_one_of_the_fewest_nodes_leaves_for_the_shortest_time(scenario: str) -> None:
    assert figures(scenario, 4, minutes=0.1)
