"""Pictures of a coordinate experiment, after SBON's Figures 3 to 5."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_lab.experiments.coordinates.rtt_matrix import SAMPLES_SHOWN, RttMatrix
from sbon_lab.experiments.harness.pictures import Picture, Row, Trials
from sbon_node.overlay.space.filters import LinkFilter
from sbon_node.overlay.space.local import percentile_of
from sbon_node.overlay.space.settings import SpaceSettings

Floats = NDArray[np.float64]
Curve = list[tuple[int, float, float, float]]


class Pictured(NamedTuple):
    """An algorithm's row, and the data of its pictures."""

    row: dict[str, Any]
    matrix: RttMatrix
    places: Floats
    errors: Floats
    curve: Curve


def _all(trials: Trials) -> Iterator[Pictured]:
    return (run for by_seed in trials.values() for seed in by_seed for run in seed)


def _errors(axes: Any, rows: list[Row], trials: Trials) -> None:
    """Draw the distribution of the relative error of all pairs."""
    for run in _all(trials):
        known = np.sort(run.errors[np.isfinite(run.errors)])
        axes.plot(known, np.linspace(0, 1, len(known)), label=run.row["algorithm"])
    axes.set(xlabel="relative error", ylabel="share of pairs", xlim=(0, 1), title=str(rows[0]["data"]))
    axes.legend()


def _map(axes: Any, rows: list[Row], trials: Trials) -> None:
    """Draw Figure 3: the latency space of the first algorithm; a larger point has a larger height."""
    run = next(_all(trials))
    x, y, z, height = run.places[:, 0], run.places[:, 1], run.places[:, 2], run.places[:, -2]
    shown = axes.scatter(x, y, z, s=8 + 2 * height, c=height, cmap="viridis")
    axes.figure.colorbar(shown, label="height (ms)", shrink=0.6)
    axes.set(xlabel="ms", ylabel="ms", zlabel="ms", title=f"{run.row['data']}: coordinates by {run.row['algorithm']}")


def _link(trials: Trials) -> tuple[RttMatrix, dict[str, list[float]]]:
    """Return samples of the link of median length, raw and filtered."""
    matrix = next(_all(trials)).matrix
    samples = [float(sample) for sample in matrix.samples_of_median_link(np.random.default_rng(1))]
    settings = SpaceSettings()
    link = LinkFilter(settings.filter_samples, percentile_of(settings))
    return matrix, {"raw": samples, "filtered": [link.add(sample) for sample in samples]}


def _samples(axes: Any, rows: list[Row], trials: Trials) -> None:
    """Draw Figure 4: samples of a link in their order."""
    matrix, samples = _link(trials)
    for (label, values), width in zip(samples.items(), (0.5, 1.5), strict=True):
        axes.plot(values, lw=width, label=label)
    axes.set(xlabel="sample", ylabel="round-trip time (ms)", title=f"{matrix.name}: a link")
    axes.legend()


def _sorted_samples(axes: Any, rows: list[Row], trials: Trials) -> None:
    """Draw their distribution."""
    for label, values in _link(trials)[1].items():
        axes.plot(np.sort(values), np.linspace(0, 1, SAMPLES_SHOWN), label=label)
    axes.set(xlabel="round-trip time (ms)", ylabel="share of samples")


def _movement(axes: Any, rows: list[Row], trials: Trials) -> None:
    """Draw Figure 5: movement of coordinates by probes."""
    for run in _all(trials):
        if run.curve:
            axes.semilogy([at[0] for at in run.curve], [at[3] for at in run.curve], label=run.row["algorithm"])
    axes.set(xlabel="probes of a node", ylabel="movement of a coordinate (ms a probe)", title=str(rows[0]["data"]))


def _settling(axes: Any, rows: list[Row], trials: Trials) -> None:
    """Draw the median error by probes."""
    for run in _all(trials):
        if run.curve:
            axes.semilogy([at[0] for at in run.curve], [at[1] for at in run.curve], label=run.row["algorithm"])
    axes.set(xlabel="probes of a node", ylabel="median relative error")
    axes.legend()


def _simulated(row: Row) -> bool:
    """A floor has no probes."""
    return row["movement_ms"] is not None


PICTURES = (
    Picture("{data}-errors", [[_errors]], each=("data",)),
    Picture("{data}-samples", [[_samples, _sorted_samples]], each=("data",)),
    Picture("{data}-map", [[_map]], each=("data",), projection="3d"),
    Picture("{data}-settling", [[_movement, _settling]], each=("data",), where=_simulated),
)
