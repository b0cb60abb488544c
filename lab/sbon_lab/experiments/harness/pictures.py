"""Pictures of experiments as declarations: which rows, in which panels, with which lines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from sbon_node.base.extras import matplotlib_figure

FORMATS = ("png", "svg")
Row = dict[str, Any]
Trials = Mapping[Any, Sequence[Sequence[Any]]]
Panel = Callable[[Any, list[Row], Trials], None]
"""Draws rows, or all outcomes by key and seed, into matplotlib's axes."""


def every(row: Row) -> bool:
    return True


class Picture(NamedTuple):
    """A figure for each combination of values in the columns ``each``, which ``name`` may use.

    ``panels`` are lines of panels; ``size`` is in inches, ``projection`` matplotlib's.
    """

    name: str
    panels: Sequence[Sequence[Panel]]
    each: tuple[str, ...] = ("topology",)
    where: Callable[[Row], bool] = every
    size: tuple[float, float] | None = None
    projection: str | None = None


@dataclass(frozen=True)
class Lines:
    """Panel with a line for each label: ``y`` over ``x``, with the confidence interval ``spread``.

    ``label`` and the texts in ``axes``, matplotlib's settings, are format strings over a row. ``ticks`` makes ``x`` logarithmic
    with a tick for each value.
    """

    x: str
    y: str
    label: str
    spread: str | None = None
    where: Callable[[Row], bool] = every
    axes: Mapping[str, Any] = field(default_factory=dict)
    ticks: bool = False

    def __call__(self, axes: Any, rows: list[Row], trials: Trials) -> None:
        own = [row for row in rows if self.where(row)]
        points: dict[str, list[tuple[float, float, float]]] = {}
        for row in own:
            if row[self.y] is not None:
                spread = (row[self.spread] if self.spread else None) or 0.0
                points.setdefault(self.label.format(**row), []).append((row[self.x], row[self.y], spread))
        for label, each in points.items():
            across, up, around = zip(*sorted(each), strict=True)
            axes.errorbar(across, up, around, marker="o", capsize=3, label=label)
        _describe(axes, self.axes, own or rows)
        if points:
            axes.legend(fontsize=7)
        values = sorted({row[self.x] for row in own})
        if self.ticks and values and values[0] > 0:
            axes.set_xscale("log")
            axes.set_xticks(values, [f"{tick:,}" for tick in values], fontsize=8)
            axes.minorticks_off()


@dataclass(frozen=True)
class Distribution:
    """Panel with the cumulative distribution of a figure over all outcomes, a line for each label of a key."""

    of: Callable[[Any], float]
    label: Callable[[Any], str | None]
    axes: Mapping[str, Any] = field(default_factory=dict)
    least_zero: bool = False

    def __call__(self, axes: Any, rows: list[Row], trials: Trials) -> None:
        for key, by_seed in trials.items():
            label = self.label(key)
            if label is not None:
                values = np.sort([self.of(outcome) for seed in by_seed for outcome in seed])
                axes.plot(values, np.linspace(0, 1, len(values)), label=label)
        _describe(axes, self.axes, rows)
        if self.least_zero:
            axes.set_xlim(left=min(0.0, *axes.get_xlim()))
        axes.legend(fontsize=7)


def draw(pictures: Sequence[Picture], result: dict[str, Any], trials: Trials, folder: Path) -> list[Path]:
    """Write all pictures that have rows, and the result as JSON; return the files."""
    figures: dict[str, Any] = {}
    for picture in pictures:
        rows = [row for row in result["rows"] if picture.where(row)]
        for values in dict.fromkeys(tuple(row[column] for column in picture.each) for row in rows):
            same = dict(zip(picture.each, values, strict=True))
            own = [row for row in rows if all(row[column] == value for column, value in same.items())]
            keys = {key: outcomes for key, outcomes in trials.items() if all(getattr(key, c, v) == v for c, v in same.items())}
            figures[picture.name.format(**same)] = _figure(picture, own, keys)
    return save(result, figures, folder)


def _figure(picture: Picture, rows: list[Row], trials: Trials) -> Any:
    figure = matplotlib_figure()()
    if picture.size is not None:
        figure.set_size_inches(*picture.size)
    grid = figure.subplots(
        len(picture.panels), len(picture.panels[0]), squeeze=False, subplot_kw={"projection": picture.projection}
    )
    for line, panels in zip(grid, picture.panels, strict=True):
        for axes, panel in zip(line, panels, strict=True):
            panel(axes, rows, trials)
    if grid.size > 2:
        figure.subplots_adjust(hspace=0.4, wspace=0.35)
    return figure


def _describe(axes: Any, settings: Mapping[str, Any], rows: list[Row]) -> None:
    axes.set(**{name: text.format(**rows[0]) if isinstance(text, str) and rows else text for name, text in settings.items()})


def save(result: dict[str, Any], figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Save the result as JSON, and each figure in every format; return the written files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{result['name']}.json"]
    written[0].write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2))
    for name, figure in figures.items():
        for suffix in FORMATS:
            written.append(folder / f"{name}.{suffix}")
            figure.savefig(written[-1], dpi=120, bbox_inches="tight")
    return written
