"""Pictures of OPB's Figures 3, 4 and 5 with our results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sbon_node.experiments.harness.placement_pictures import save
from sbon_node.experiments.opb.table1 import CONTENDERS, REFERENCE, SEARCHING, Outcome, Trials
from sbon_node.extras import matplotlib_figure

SHOWN_F_TP = (1, 5, 10)
"""Values of f_tp in Figure 3."""


def draw_opb(result: dict[str, Any], trials: Trials, folder: Path) -> list[Path]:
    """Draw for each network usage and delay by f_tp (3), success by f_d and f_tp (4), discoveries by both (5).

    Raises :class:`SbonError` ``input-missing`` where matplotlib is not installed.
    """
    figures: dict[str, Any] = {}
    for topology in dict.fromkeys(key.topology for key in trials):
        rows = [row for row in result["rows"] if row["topology"] == topology]
        parts = {row["part"] for row in rows}
        if "table1" in parts:
            figures[f"{topology}-opb-figure3"] = _distributions(topology, trials)
        if parts & {"delay", "throughput"}:
            figures[f"{topology}-opb-figure4"] = _success(topology, rows)
        if parts & {"delay", "table1"}:
            figures[f"{topology}-opb-figure5"] = _discoveries(topology, rows)
    return save(result, figures, folder)


def _distributions(topology: str, trials: Trials) -> Any:
    figure = matplotlib_figure()()
    figure.set_size_inches(12, 7)
    axes = figure.subplots(2, len(SHOWN_F_TP), squeeze=False)
    for column, f_tp in enumerate(SHOWN_F_TP):
        runs = [
            found
            for key, seeds in trials.items()
            if (key.topology, key.cell.part, key.cell.f_tp) == (topology, "table1", f_tp)
            for seed in seeds
            for found in seed
            if REFERENCE in found
        ]
        _distribution(axes[0][column], runs, lambda outcome: outcome.usage, "network usage (bytes in flight)")
        _distribution(axes[1][column], runs, lambda outcome: outcome.delay_ms, "end-to-end delay (ms)")
        axes[0][column].set(title=f"{topology}, f_tp = {f_tp}", xscale="log")
    axes[0][0].legend(fontsize=7)
    return figure


def _distribution(axes: Any, runs: list[dict[str, Outcome]], of: Callable[[Outcome], float], label: str) -> None:
    for strategy in CONTENDERS:
        values = np.sort([of(found[strategy]) for found in runs])
        axes.plot(values, np.linspace(0, 1, len(values)), label=strategy)
    axes.set(xlabel=label, ylabel="share of placements")


def _success(topology: str, rows: list[dict[str, Any]]) -> Any:
    figure = matplotlib_figure()()
    figure.set_size_inches(12, 4)
    axes = figure.subplots(1, 3)
    sides = (("delay", "coordinates", "f_d"), ("delay", "pinged", "f_d"), ("throughput", "coordinates", "f_tp"))
    for side, (part, latencies, by) in zip(axes, sides, strict=True):
        chosen = [row for row in rows if (row["part"], row["latencies"]) == (part, latencies)]
        _lines(side, chosen, by, CONTENDERS, "success_pct", "success_ci95_pct")
        side.set(xlabel=by, ylabel="placements that succeed (%)", ylim=(0, 102), title=f"{topology}, {latencies}")
        if by == "f_d":
            side.set(xscale="log")
    return figure


def _discoveries(topology: str, rows: list[dict[str, Any]]) -> Any:
    figure = matplotlib_figure()()
    figure.set_size_inches(9, 4)
    for side, (part, by) in zip(figure.subplots(1, 2), (("table1", "f_tp"), ("delay", "f_d")), strict=True):
        chosen = [row for row in rows if (row["part"], row["latencies"]) == (part, "coordinates")]
        _lines(side, chosen, by, SEARCHING, "discoveries_mean", None)
        side.set(xlabel=by, ylabel="resource discoveries", ylim=(0, None), title=topology)
    return figure


def _lines(axes: Any, rows: list[dict[str, Any]], by: str, strategies: tuple[str, ...], of: str, interval: str | None) -> None:
    for strategy in strategies:
        points = [row for row in rows if row["strategy"] == strategy and row[of] is not None]
        errors = [row[interval] or 0.0 for row in points] if interval else None
        if points:
            axes.errorbar([row[by] for row in points], [row[of] for row in points], errors, marker="o", capsize=2, label=strategy)
    if rows:
        axes.legend(fontsize=7)
