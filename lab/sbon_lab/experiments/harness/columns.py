"""Columns of an experiment's rows, computed from all outcomes of a key: means, percentiles, confidence intervals over seeds."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

O = TypeVar("O")  # noqa: E741
BySeed = Sequence[Sequence[O]]
Column = Callable[[Any, BySeed[O]], Any]
"""Function from a row's key and its outcomes by seed to a value; the column's name ends with the unit."""
Value = Callable[[O], float | None]
"""A figure of an outcome; None or NaN if unknown, and then left out."""


def table(
    columns: Mapping[str, Column[O]], fields: Sequence[str] | None = None
) -> Callable[[Any, BySeed[O]], list[dict[str, Any]]]:
    """Return a function that makes a key's row: the key's ``fields``, all by default, then the columns."""

    def rows(key: Any, by_seed: BySeed[O]) -> list[dict[str, Any]]:
        own = key._asdict()
        head = own if fields is None else {field: own[field] for field in fields}
        return [{**head, **{name: column(key, by_seed) for name, column in columns.items()}}]

    return rows


def mean(of: Value[O], digits: int) -> Column[O]:
    """The mean over all outcomes."""
    return lambda key, by_seed: rounded(np.mean, _all(of, by_seed), digits)


def median(of: Value[O], digits: int) -> Column[O]:
    return lambda key, by_seed: rounded(np.median, _all(of, by_seed), digits)


def percentile(of: Value[O], share: float, digits: int) -> Column[O]:
    return lambda key, by_seed: rounded(lambda values: np.percentile(values, share), _all(of, by_seed), digits)


def most(of: Value[O], digits: int) -> Column[O]:
    return lambda key, by_seed: rounded(np.max, _all(of, by_seed), digits)


def ci95(of: Value[O], digits: int) -> Column[O]:
    """Half of the 95 % confidence interval of the mean over seeds; None for a single seed."""
    return seeds_ci95(lambda seed: float(np.mean(values)) if (values := known(of, seed)) else None, digits)


def seeds_mean(of: Callable[[Sequence[O]], float | None], digits: int) -> Column[O]:
    """The mean of a figure that the outcomes of a seed have together."""
    return lambda key, by_seed: rounded(np.mean, known(of, by_seed), digits)


def seeds_ci95(of: Callable[[Sequence[O]], float | None], digits: int) -> Column[O]:
    """The interval of :func:`seeds_mean`."""

    def column(key: Any, by_seed: BySeed[O]) -> float | None:
        width = interval(known(of, by_seed))
        return None if width is None else round(width, digits)

    return column


def total(of: Callable[[O], int]) -> Column[O]:
    return lambda key, by_seed: sum(of(outcome) for seed in by_seed for outcome in seed)


def count() -> Column[Any]:
    """The number of outcomes."""
    return lambda key, by_seed: sum(map(len, by_seed))


def known(of: Callable[[O], float | None], outcomes: Iterable[O]) -> list[float]:
    values = [of(outcome) for outcome in outcomes]
    return [value for value in values if value is not None and not math.isnan(value)]


def rounded(of: Callable[[Sequence[float]], Any], values: Sequence[float], digits: int) -> float | None:
    """Return ``of(values)``; None without values."""
    return round(float(of(values)), digits) if len(values) else None


def interval(by_seed: Sequence[float]) -> float | None:
    """Return half of the 95 % confidence interval of the mean over seeds (Student's t); None for a single seed."""
    many = len(by_seed)
    if many < 2:
        return None
    student = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)[min(many - 2, 8)]
    return float(student * np.std(by_seed, ddof=1) / np.sqrt(many))


def _all(of: Value[O], by_seed: BySeed[O]) -> list[float]:
    return known(of, (outcome for seed in by_seed for outcome in seed))
