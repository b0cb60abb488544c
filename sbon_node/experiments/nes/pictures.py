"""Pictures of NES's strategies by sources, IFCOP's by iterations, and costs of placement in growing networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sbon_node.experiments.harness.placement_pictures import save
from sbon_node.experiments.nes import figures, scale
from sbon_node.extras import matplotlib_figure


def draw_nes(result: dict[str, Any], outcomes: figures.Outcomes, folder: Path) -> list[Path]:
    """Draw usage against the lower bound by sources for each network and strategy, with most iterations; and IFCOP's by
    iterations.

    Raises :class:`SbonError` ``input-missing`` where matplotlib is not installed.
    """
    figures = {}
    for topology in dict.fromkeys(row["topology"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["topology"] == topology and row["ratio_mean"] is not None]
        most = max((row["iterations"] or 0 for row in rows), default=0)
        figure = matplotlib_figure()()
        axes = figure.subplots(1, 2)
        last = [row for row in rows if row["iterations"] in (None, most)]
        _lines(axes[0], last, "strategy", "sources", "ratio_mean", "ratio_ci95")
        _lines(axes[1], [row for row in rows if row["iterations"]], "sources", "iterations", "ratio_mean", "ratio_ci95")
        axes[0].set(xlabel="sources", ylabel="usage / lower bound", title=topology)
        axes[1].set(xlabel="iterations", title="ifcop, by sources")
        figures[f"{topology}-nes"] = figure
    return save(result, figures, folder)


def draw_scale(result: dict[str, Any], outcomes: scale.Outcomes, folder: Path) -> list[Path]:
    """Draw time, memory and probes by nodes and by operators, and the sequence of queries. Raises as :func:`draw_nes`."""
    figures = {}
    sizes = [row for row in result["rows"] if row["part"] == "size"]
    for strategy in dict.fromkeys(row["strategy"] for row in sizes):
        figure = matplotlib_figure()()
        figure.set_size_inches(12, 7)
        axes = figure.subplots(2, 3)
        rows = [row for row in sizes if row["strategy"] == strategy]
        for column, (value, label) in enumerate(
            (("cpu_ms", "processor (ms)"), ("memory_mb", "memory (MB)"), ("probes_mean", "probes"))
        ):
            for line, (by, of) in enumerate((("nodes", "operators"), ("operators", "nodes"))):
                _lines(axes[line, column], rows, of, by, value)
                axes[line, column].set(yscale="log", xlabel=by, ylabel=label)
        axes[0, 0].set(title=f"{strategy}, by operators")
        axes[1, 0].set(title=f"{strategy}, by nodes")
        figure.subplots_adjust(hspace=0.4, wspace=0.35)
        figures[f"scale-{strategy}"] = figure
    for topology in dict.fromkeys(row["topology"] for row in result["rows"] if row["part"] == "sequence"):
        rows = [row for row in result["rows"] if row["part"] == "sequence" and row["topology"] == topology]
        figure = matplotlib_figure()()
        figure.set_size_inches(12, 4)
        axes = figure.subplots(1, 3)
        for side, value in zip(axes, ("ratio_mean", "cpu_ms", "refused"), strict=True):
            _lines(side, [row for row in rows if row[value] is not None], "strategy", "first_query", value)
            side.set(xlabel="query", ylabel={"ratio_mean": "usage / lower bound", "cpu_ms": "processor (ms)"}.get(value, value))
        axes[0].set(title=topology)
        figure.subplots_adjust(wspace=0.35)
        figures[f"{topology}-sequence"] = figure
    return save(result, figures, folder)


def _lines(axes: Any, rows: list[dict[str, Any]], of: str, by: str, value: str, spread: str | None = None) -> None:
    """Draw a line for each value of column ``of``; the axis of ``by`` is logarithmic if ``by`` is never 0."""
    labels = dict.fromkeys(row[of] for row in rows)
    for label in labels:
        points = sorted((row[by], row[value], (row[spread] if spread else 0.0) or 0.0) for row in rows if row[of] == label)
        across, values, intervals = zip(*points, strict=True)
        axes.errorbar(across, values, intervals, marker="o", capsize=3, label=str(label))
    if labels:
        axes.legend(fontsize=7)
    ticks = sorted({row[by] for row in rows})
    if ticks and ticks[0] > 0:
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=8)
        axes.minorticks_off()
