"""The harness of experiments: outcomes are collected by seed, columns count what is known, pictures are what is declared."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sbon_lab.experiments.harness.columns import ci95, count, mean, percentile, seeds_mean, table, total
from sbon_lab.experiments.harness.experiment import Experiment
from sbon_lab.experiments.harness.pictures import Distribution, Lines, Picture


class Key(NamedTuple):
    strategy: str
    size: int


class Point(NamedTuple):
    seed: int
    cost: float | None


def measure(point: Point) -> Iterator[tuple[Key, Point]]:
    yield Key("b", 2), point
    if point.seed:
        yield Key("a", 1), point


COLUMNS = {
    "cost_mean": mean(lambda one: one.cost, 1),
    "cost_ci95": ci95(lambda one: one.cost, 2),
    "cost_p50": percentile(lambda one: one.cost, 50, 1),
    "seeds_mean": seeds_mean(lambda seed: float(len(seed)) if seed else None, 1),
    "unknown": total(lambda one: one.cost is None),
    "points": count(),
}
PICTURES = (
    Picture("lines-{strategy}", [[Lines("size", "cost_mean", "{strategy}", "cost_ci95", ticks=True)]], each=("strategy",)),
    Picture("shares", [[Distribution(lambda one: one.seed, lambda key: str(key.strategy))]], each=()),
    Picture("nothing", [[Lines("size", "cost_mean", "{strategy}")]], where=lambda row: False),
)
EXPERIMENT = Experiment(name="made-up", measure=measure, rows=table(COLUMNS), order=lambda key: key, pictures=PICTURES)
POINTS = [(0, Point(0, 1.0)), (0, Point(0, None)), (1, Point(1, 3.0))]


def test_rows_have_the_key_and_the_columns_in_the_order_of_the_keys() -> None:
    trials = EXPERIMENT.collect(POINTS)
    assert trials[Key("a", 1)] == [[], [Point(1, 3.0)]]
    assert EXPERIMENT.result(trials) == {
        "name": "made-up",
        "rows": [
            {"strategy": "a", "size": 1, "cost_mean": 3.0, "cost_ci95": None, "cost_p50": 3.0, "seeds_mean": 1.0}
            | {"unknown": 0, "points": 1},
            {"strategy": "b", "size": 2, "cost_mean": 2.0, "cost_ci95": 12.71, "cost_p50": 2.0, "seeds_mean": 1.5}
            | {"unknown": 1, "points": 3},
        ],
    }


def test_a_row_may_have_some_fields_of_its_key() -> None:
    assert table({"points": count()}, fields=("size",))(Key("a", 1), [[Point(0, None)]]) == [{"size": 1, "points": 1}]


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_pictures_are_drawn_for_each_value_that_has_rows(tmp_path: Path) -> None:
    trials = EXPERIMENT.collect(POINTS)
    written = EXPERIMENT.draw(EXPERIMENT.result(trials), trials, tmp_path)
    names = {f"{name}.{suffix}" for name in ("lines-a", "lines-b", "shares") for suffix in ("png", "svg")}
    assert {path.name for path in written} == {path.name for path in tmp_path.iterdir()} == names | {"made-up.json"}
