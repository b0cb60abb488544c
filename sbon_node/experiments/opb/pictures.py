"""Pictures of OPB's Figures 3, 4 and 5 with our results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sbon_node.experiments.harness.pictures import Lines, Panel, Picture, Row

CONTENDERS = ("opb", "relaxation", "min-delay", "random", "hybrid")
"""Compared strategies; ``relaxation`` is the paper's SBON."""
REFERENCE = "best-response"
SEARCHING = ("opb", "relaxation", "min-delay")
"""Strategies whose discoveries are reported."""
SHOWN_F_TP = (1, 5, 10)
"""Values of f_tp in Figure 3."""


@dataclass(frozen=True)
class Shares:
    """Panel with the distribution of a figure over the applications that all strategies placed, at a factor of throughput."""

    of: Callable[[Any], float]
    f_tp: int
    axes: dict[str, str]

    def __call__(self, axes: Any, rows: list[Row], trials: Any) -> None:
        runs = [
            run
            for key, seeds in trials.items()
            if (key.cell.part, key.cell.f_tp) == ("table1", self.f_tp)
            for seed in seeds
            for run in seed
            if REFERENCE in run
        ]
        for strategy in CONTENDERS:
            values = np.sort([self.of(run[strategy]) for run in runs])
            axes.plot(values, np.linspace(0, 1, len(values)), label=strategy)
        axes.set(ylabel="share of placements", title=f"f_tp = {self.f_tp}", **self.axes)
        axes.legend(fontsize=7)


def _distributions() -> list[list[Panel]]:
    usage, delay = {"xlabel": "network usage (bytes in flight)", "xscale": "log"}, {"xlabel": "end-to-end delay (ms)"}
    return [
        [Shares(lambda outcome: outcome.usage, f_tp, usage) for f_tp in SHOWN_F_TP],
        [Shares(lambda outcome: outcome.delay_ms, f_tp, delay) for f_tp in SHOWN_F_TP],
    ]


def _success(part: str, latencies: str, x: str, scale: str) -> Lines:
    shown = {"part": part, "latencies": latencies}
    axes = {"xlabel": x, "ylabel": "placements that succeed (%)", "ylim": (0, 102), "title": "{topology}, {latencies}"}
    where = lambda row: shown.items() <= row.items() and row["strategy"] in CONTENDERS  # noqa: E731
    return Lines(x, "success_pct", "{strategy}", "success_ci95_pct", where, {**axes, "xscale": scale})


def _discoveries(part: str, x: str) -> Lines:
    shown = {"part": part, "latencies": "coordinates"}
    axes = {"xlabel": x, "ylabel": "resource discoveries", "ylim": (0, None), "title": "{topology}"}
    where = lambda row: shown.items() <= row.items() and row["strategy"] in SEARCHING  # noqa: E731
    return Lines(x, "discoveries_mean", "{strategy}", None, where, axes)


PICTURES = (
    Picture("{topology}-opb-figure3", _distributions(), where=lambda row: row["part"] == "table1", size=(12, 7)),
    Picture(
        "{topology}-opb-figure4",
        [
            [
                _success("delay", "coordinates", "f_d", "log"),
                _success("delay", "pinged", "f_d", "log"),
                _success("throughput", "coordinates", "f_tp", "linear"),
            ]
        ],
        where=lambda row: row["part"] in ("delay", "throughput"),
        size=(12, 4),
    ),
    Picture(
        "{topology}-opb-figure5",
        [[_discoveries("table1", "f_tp"), _discoveries("delay", "f_d")]],
        where=lambda row: row["part"] in ("delay", "table1"),
        size=(9, 4),
    ),
)
