"""Whole daemons in virtual time, through every scenario of this folder: each row exactly once, and the same run twice."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from sbon_lab.simulation.outcome import Outcome
from sbon_lab.simulation.scenario import load_scenario, run_scenario

FOLDER = Path(__file__).parent
SCENARIOS = sorted(FOLDER.glob("*.toml"))
SEEDS = {"random_faults": range(12), "joined_and_grouped": range(6)}


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def _check(outcome: Outcome) -> None:
    assert not outcome.failure, "\n".join([*outcome.trace[-60:], outcome.failure])


ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("seeds of scenarios")
CASES = [
    pytest.param(path, seed, id=f"{path.stem}-{seed}", marks=ONLY_IN_TEST_ALL if seed > 1 else ())
    for path in SCENARIOS
    for seed in SEEDS.get(path.stem, range(1))
]


@pytest.mark.one_part_per_commit("scenarios in virtual time", parts=6)
@pytest.mark.parametrize("path, seed", CASES)
def test_a_scenario_delivers_each_row_exactly_once(path: Path, seed: int) -> None:
    scenario = load_scenario(path)
    outcome = run_scenario(scenario, seed=seed, replay=f"sbon simulate {path} --seed {seed}")
    _check(outcome)
    assert scenario.random_faults or outcome.unstruck == ()


@pytest.mark.one_part_per_commit("scenarios in virtual time", parts=6)
def test_a_scenario_is_a_function_of_its_seed() -> None:
    scenario = load_scenario(FOLDER / "random_faults.toml")
    assert run_scenario(scenario, seed=3) == run_scenario(scenario, seed=3)
