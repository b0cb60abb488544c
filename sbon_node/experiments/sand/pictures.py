"""Pictures of SAND's Figures 6 to 12: bars by positions of sources, lines over bounds, distances and selectivities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sbon_node.experiments.harness.placement_pictures import save
from sbon_node.extras import matplotlib_figure

Row = dict[str, Any]
RATIO, STRETCH = ("bandwidth_ratio", "bandwidth_ci95", "bandwidth ratio"), ("stretch", "stretch_ci95", "stretch")


def draw_sand(result: dict[str, Any], outcomes: object, folder: Path) -> list[Path]:
    """Draw each figure for each network. Raise :class:`SbonError` ``input-missing`` without matplotlib."""
    figures = {}
    for topology in dict.fromkeys(row["topology"] for row in result["rows"]):
        by_figure: dict[str, list[Row]] = {}
        for row in result["rows"]:
            if row["topology"] == topology and row["latencies"] == "true":
                by_figure.setdefault(row["figure"], []).append(row)
        for name, rows in by_figure.items():
            for number, figure in DRAWN[name](rows).items():
                figures[f"{topology}-figure{number}"] = figure
    return save(result, figures, folder)


def _bars(rows: Sequence[Row]) -> dict[int, Any]:
    """Draw groups of sources and bounds, a bar for each strategy; the optimum, without a bound, is in all groups of its
    sources.
    """
    figures = {}
    groups = list(dict.fromkeys((row["sources"], row["bound"]) for row in rows if row["bound"] is not None))
    strategies = list(dict.fromkeys(row["strategy"] for row in rows))
    width = 0.8 / len(strategies)
    for number, (column, interval, label) in ((6, RATIO), (7, STRETCH)):
        figure = matplotlib_figure()()
        axes = figure.subplots()
        for place, strategy in enumerate(strategies):
            own = [row for row in rows if row["strategy"] == strategy]
            found = {
                group: row for row in own for group in groups if row["sources"] == group[0] and row["bound"] in (None, group[1])
            }
            axes.bar(
                [i + (place - (len(strategies) - 1) / 2) * width for i in range(len(groups))],
                [found[group][column] or 0.0 for group in groups],
                width,
                yerr=[found[group][interval] or 0.0 for group in groups],
                capsize=2,
                label=strategy,
            )
        axes.set_xticks(range(len(groups)), [f"{sources}\n{bound:g}x" for sources, bound in groups])
        axes.set(ylabel=label)
        axes.legend()
        figures[number] = figure
    return figures


def _over_distance(rows: Sequence[Row]) -> dict[int, Any]:
    label = "average distance of sources (share of the diameter)"
    return {8: _lines(rows, "asd", RATIO, label, lambda row: f"{row['strategy']}, {row['bound']:g}x")}


def _over_bounds(rows: Sequence[Row]) -> dict[int, Any]:
    label = "bound on delay (longest direct ones)"
    return {
        number: _lines(rows, "bound", what, label, lambda row: f"{row['strategy']}, trees {row['shape']}")
        for number, what in ((9, RATIO), (10, STRETCH))
    }


def _over_selectivities(rows: Sequence[Row]) -> dict[int, Any]:
    drawn, label = {}, "greatest selectivity"
    places = (("at_proxy_pct", None, "operators at the proxy (%)"), ("in_network_pct", None, "operators inside the network (%)"))
    for number, columns in ((11, (RATIO, STRETCH)), (12, places)):
        figure = matplotlib_figure()()
        figure.set_size_inches(10, 4.5)
        for axes, what in zip(figure.subplots(1, 2), columns, strict=True):
            _draw(axes, rows, "selectivity", what, label, lambda row: f"{row['strategy']}, {row['sources']}")
        drawn[number] = figure
    return drawn


def _lines(rows: Sequence[Row], over: str, what: tuple[str, str | None, str], label: str, of: Callable[[Row], str]) -> Any:
    figure = matplotlib_figure()()
    _draw(figure.subplots(), rows, over, what, label, of)
    return figure


def _draw(
    axes: Any,
    rows: Sequence[Row],
    over: str,
    what: tuple[str, str | None, str],
    label: str,
    of: Callable[[Row], str],
) -> None:
    column, interval, title = what
    for name in dict.fromkeys(of(row) for row in rows):
        points = sorted(
            (row[over], row[column], row[interval] or 0.0 if interval else 0.0)
            for row in rows
            if of(row) == name and row[column] is not None
        )
        if points:
            across, up, around = zip(*points, strict=True)
            axes.errorbar(across, up, around, marker="o", capsize=3, label=name)
    axes.set(xlabel=label, ylabel=title)
    axes.legend(fontsize=7)


DRAWN: dict[str, Callable[[Sequence[Row]], dict[int, Any]]] = {
    "6-7": _bars,
    "8": _over_distance,
    "9-10": _over_bounds,
    "11-12": _over_selectivities,
}
