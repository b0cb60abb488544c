"""Pictures of SAND's Figures 6 to 12: bars by positions of sources, lines over bounds, distances and selectivities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sbon_node.experiments.harness.pictures import Lines, Panel, Picture, Row

RATIO, STRETCH = ("bandwidth_ratio", "bandwidth_ci95", "bandwidth ratio"), ("stretch", "stretch_ci95", "stretch")
PROXY, INSIDE = ("at_proxy_pct", None, "operators at the proxy (%)"), ("in_network_pct", None, "operators inside the network (%)")
Value = tuple[str, str | None, str]
"""A column, its confidence interval, and the axis's label."""


@dataclass(frozen=True)
class Bars:
    """Panel of groups of sources and bounds with a bar for each strategy; the optimum, without a bound, is in all groups of its
    sources.
    """

    value: Value

    def __call__(self, axes: Any, rows: list[Row], trials: Any) -> None:
        column, interval, label = self.value
        groups = list(dict.fromkeys((row["sources"], row["bound"]) for row in rows if row["bound"] is not None))
        strategies = list(dict.fromkeys(row["strategy"] for row in rows))
        width = 0.8 / len(strategies)
        for position, strategy in enumerate(strategies):
            own = [row for row in rows if row["strategy"] == strategy]
            rows_shown = [
                next(row for row in own if row["sources"] == at and row["bound"] in (None, bound)) for at, bound in groups
            ]
            across = [i + (position - (len(strategies) - 1) / 2) * width for i in range(len(groups))]
            around = [row[str(interval)] or 0.0 for row in rows_shown]
            axes.bar(across, [row[column] or 0.0 for row in rows_shown], width, yerr=around, capsize=2, label=strategy)
        axes.set_xticks(range(len(groups)), [f"{sources}\n{bound:g}x" for sources, bound in groups])
        axes.set(ylabel=label)
        axes.legend()


def _over(x: str, value: Value, label: str, xlabel: str) -> Lines:
    column, interval, ylabel = value
    return Lines(x, column, label, interval, axes={"xlabel": xlabel, "ylabel": ylabel})


def _picture(number: int, figures: str, panels: list[Panel], size: tuple[float, float] | None = None) -> Picture:
    """``figures`` names the rows that figures of the paper share."""
    shown = {"latencies": "true", "figure": figures}
    return Picture(f"{{topology}}-figure{number}", [panels], where=lambda row: shown.items() <= row.items(), size=size)


_TREES, _BOUND = "{strategy}, trees {shape}", "bound on delay (longest direct ones)"
_SOURCES, _SELECTIVITY = "{strategy}, {sources}", "greatest selectivity"
_DISTANCE = "average distance of sources (share of the diameter)"
PICTURES = (
    _picture(6, "6-7", [Bars(RATIO)]),
    _picture(7, "6-7", [Bars(STRETCH)]),
    _picture(8, "8", [_over("asd", RATIO, "{strategy}, {bound:g}x", _DISTANCE)]),
    _picture(9, "9-10", [_over("bound", RATIO, _TREES, _BOUND)]),
    _picture(10, "9-10", [_over("bound", STRETCH, _TREES, _BOUND)]),
    _picture(11, "11-12", [_over("selectivity", value, _SOURCES, _SELECTIVITY) for value in (RATIO, STRETCH)], (10, 4.5)),
    _picture(12, "11-12", [_over("selectivity", value, _SOURCES, _SELECTIVITY) for value in (PROXY, INSIDE)], (10, 4.5)),
)
