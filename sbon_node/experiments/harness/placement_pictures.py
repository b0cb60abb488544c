"""Pictures of placement experiments: SBON's Figures 8 and 9, and penalties by query size; with their JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sbon_node.experiments.harness.trials import Trial
from sbon_node.experiments.sbon import penalty, table1
from sbon_node.extras import matplotlib_figure

FORMATS = ("png", "svg")
MOST_PCT = 200


def draw_table1(result: dict[str, Any], trials: table1.Trials, folder: Path) -> list[Path]:
    """Draw for each network the distributions of the usage and the delay penalty over all queries.

    Raises :class:`SbonError` ``input-missing`` where matplotlib is not installed.
    """
    figures = {}
    for topology, found in trials.items():
        for number, of, label in (
            (8, lambda trial: trial.penalty, "network usage beyond the optimum's (%)"),
            (9, lambda trial: trial.delay_penalty, "delay beyond the longest direct way's (%)"),
        ):
            figures[f"{topology}-figure{number}"] = _distribution(found, of, f"{label[0].upper()}{label[1:]}", topology)
    return save(result, figures, folder)


def draw_penalty(result: dict[str, Any], trials: penalty.Trials, folder: Path) -> list[Path]:
    """Draw the mean penalty by operators, for each network and number of hosts: all strategies, all variants of hybrid."""
    figures = {}
    for topology, hosts in dict.fromkeys((row["topology"], row["hosts"]) for row in result["rows"]):
        figure = matplotlib_figure()()
        axes = figure.subplots(1, 2, sharey=False)
        rows = [row for row in result["rows"] if (row["topology"], row["hosts"]) == (topology, hosts)]
        for side, of in (
            (axes[0], lambda row: row["strategy"] if row["variant"] == "full" else None),
            (axes[1], lambda row: row["variant"] if row["strategy"] == "hybrid" else None),
        ):
            _lines(side, rows, of)
        axes[0].set(yscale="log", ylabel="mean usage beyond the optimum's (%)", title=f"{topology}, {hosts} hosts")
        axes[1].set(title="hybrid")
        figures[f"{topology}-{hosts}"] = figure
    return save(result, figures, folder)


def _lines(axes: Any, rows: list[dict[str, Any]], of: Callable[[dict[str, Any]], str | None]) -> None:
    labels = dict.fromkeys((of(row), row["coordinates"]) for row in rows if of(row))
    for label, coordinates in labels:
        points = sorted(
            (row["operators"], row["penalty_mean_pct"], row["penalty_ci95_pct"] or 0.0)
            for row in rows
            if (of(row), row["coordinates"]) == (label, coordinates)
        )
        sizes, means, intervals = zip(*points, strict=True)
        axes.errorbar(sizes, means, intervals, marker="o", capsize=3, label=f"{label}, {coordinates}")
    axes.set(xlabel="operators")
    if labels:
        axes.legend(fontsize=7)


def _distribution(found: dict[str, list[list[Trial]]], of: Callable[[Trial], float], label: str, title: str) -> Any:
    figure = matplotlib_figure()()
    axes = figure.subplots()
    for strategy, seeds in found.items():
        values = np.sort([100 * of(trial) for seed in seeds for trial in seed])
        axes.plot(values, np.linspace(0, 1, len(values)), label=strategy)
    axes.set(xlabel=label, ylabel="share of queries", xlim=(min(0.0, *axes.get_xlim()), MOST_PCT), title=title)
    axes.legend()
    return figure


def save(result: dict[str, Any], figures: dict[str, Any], folder: Path) -> list[Path]:
    """Save the result as JSON, and each figure in every format; return the written files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{result['name']}.json"]
    written[0].write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2))
    for name, figure in figures.items():
        for suffix in FORMATS:
            written.append(folder / f"{name}.{suffix}")
            figure.savefig(written[-1], dpi=120, bbox_inches="tight")
    return written
