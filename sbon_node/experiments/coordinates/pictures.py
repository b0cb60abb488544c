"""Pictures of a coordinate experiment, after SBON's Figures 3 to 5, and their JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sbon_node.experiments.coordinates.experiment import Pictured
from sbon_node.experiments.coordinates.rtt_matrix import SAMPLES_SHOWN, RttMatrix
from sbon_node.extras import matplotlib_figure
from sbon_node.space.filters import LinkFilter
from sbon_node.space.local import percentile_of
from sbon_node.space.settings import SpaceSettings

FORMATS = ("png", "svg")


def draw(result: dict[str, Any], pictured: Sequence[Pictured], folder: Path) -> list[Path]:
    """Draw each matrix's node map, samples of a link, and settling; write ``coordinates.json``.

    Raises :class:`SbonError` ``input-missing`` where matplotlib is not installed.
    """
    figure_of = matplotlib_figure()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "coordinates.json").write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2))
    written: list[Path] = []
    for name in dict.fromkeys(found.row["data"] for found in pictured):
        group = [found for found in pictured if found.row["data"] == name]
        placed = next((found for found in group if found.places.shape[1] >= 5), None)
        figures = {"errors": _errors(figure_of(), group), "samples": _samples(figure_of(), group[0].matrix)}
        if placed is not None:
            figures["map"] = _map(figure_of(), placed)
        if any(found.curve for found in group):
            figures["settling"] = _settling(figure_of(), group)
        for kind, figure in figures.items():
            for suffix in FORMATS:
                written.append(folder / f"{name}-{kind}.{suffix}")
                figure.savefig(written[-1], dpi=120, bbox_inches="tight")
    return written


def _map(figure: Any, found: Pictured) -> Any:
    """Draw Figure 3: the latency space; a larger point has a larger height."""
    axes = figure.add_subplot(projection="3d")
    x, y, z, height = found.places[:, 0], found.places[:, 1], found.places[:, 2], found.places[:, -2]
    shown = axes.scatter(x, y, z, s=8 + 2 * height, c=height, cmap="viridis")
    figure.colorbar(shown, label="height (ms)", shrink=0.6)
    axes.set(xlabel="ms", ylabel="ms", zlabel="ms", title=f"{found.row['data']}: places by {found.row['algorithm']}")
    return figure


def _samples(figure: Any, matrix: RttMatrix) -> Any:
    """Draw Figure 4: samples of the link of median length, raw and filtered, and their distribution."""
    samples = matrix.samples_of_median_link(np.random.default_rng(1))
    settings = SpaceSettings()
    link = LinkFilter(settings.filter_samples, percentile_of(settings))
    filtered = [link.add(sample) for sample in samples]
    left, right = figure.subplots(1, 2)
    left.plot(samples, lw=0.5, label="raw")
    left.plot(filtered, lw=1.5, label="filtered")
    left.set(xlabel="sample", ylabel="round-trip time (ms)", title=f"{matrix.name}: a link")
    left.legend()
    for values, label in ((samples, "raw"), (filtered, "filtered")):
        right.plot(np.sort(values), np.linspace(0, 1, SAMPLES_SHOWN), label=label)
    right.set(xlabel="round-trip time (ms)", ylabel="share of samples")
    return figure


def _settling(figure: Any, group: Sequence[Pictured]) -> Any:
    """Draw Figure 5: movement of coordinates and median error, by probes."""
    left, right = figure.subplots(1, 2)
    for found in group:
        if found.curve:
            probes, median, _, moved = zip(*found.curve, strict=True)
            left.semilogy(probes, moved, label=found.row["algorithm"])
            right.semilogy(probes, median, label=found.row["algorithm"])
    left.set(xlabel="probes of a node", ylabel="movement of a coordinate (ms a probe)", title=str(group[0].row["data"]))
    right.set(xlabel="probes of a node", ylabel="median relative error")
    right.legend()
    return figure


def _errors(figure: Any, group: Sequence[Pictured]) -> Any:
    """Draw the distribution of the relative error of all pairs."""
    axes = figure.subplots()
    for found in group:
        known = np.sort(found.errors[np.isfinite(found.errors)])
        axes.plot(known, np.linspace(0, 1, len(known)), label=found.row["algorithm"])
    axes.set(xlabel="relative error", ylabel="share of pairs", xlim=(0, 1), title=str(group[0].row["data"]))
    axes.legend()
    return figure
