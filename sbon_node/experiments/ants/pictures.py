"""Pictures of ANTS's Figures 2, 3 and 4, and their JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sbon_node.experiments.ants import figures
from sbon_node.experiments.harness.placement_pictures import save
from sbon_node.extras import matplotlib_figure

LABELS = {
    "2a": ("latency_ms", "latency of a query (ms)", "tasks of the query"),
    "2b": ("latency_ms", "mean latency (ms)", "queries"),
    "3a": ("latency_ms", "latency of the query (ms)", "seconds"),
    "3b": ("latency_ms", "mean latency (ms)", "seconds"),
    "4": ("failed_pct", "queries without a place (%)", "nodes"),
    "table1": ("updates", "moves of the query", "beta"),
    "queue": ("beyond_exact_pct", "model beyond the simulated queue (%)", "load"),
}
"""Columns to draw, and labels of the axes."""
LOGARITHMIC = ("2b",)


def draw_ants(result: dict[str, Any], trials: figures.Trials, folder: Path) -> list[Path]:
    """Draw a picture for each part and network. Raise :class:`SbonError` ``input-missing`` without matplotlib."""
    figures = {}
    for part, topology in dict.fromkeys((row["figure"], row["topology"]) for row in result["rows"]):
        column, label, axis = LABELS[part]
        rows = [row for row in result["rows"] if (row["figure"], row["topology"]) == (part, topology)]
        figure = matplotlib_figure()()
        axes = figure.subplots()
        for strategy in dict.fromkeys(row["strategy"] for row in rows):
            own = [row for row in rows if row["strategy"] == strategy]
            spread = [row["latency_ci95_ms"] or 0.0 if column == "latency_ms" else 0.0 for row in own]
            axes.errorbar([row["at"] for row in own], [row[column] for row in own], spread, marker="o", capsize=3, label=strategy)
        axes.set(xlabel=axis, ylabel=label, title=topology, yscale="log" if part in LOGARITHMIC else "linear")
        axes.legend()
        figures[f"{topology}-{part}" if part == "table1" else f"{topology}-figure{part}" if part != "queue" else part] = figure
    return save(result, figures, folder)
