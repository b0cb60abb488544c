"""Measured round-trip times for experiments: a matrix, or one for each round, with samples drawn from it."""

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_protocol.errors import SbonError
from sbon_protocol.rtt_matrix import timeouts_text as timeouts_text
from sbon_protocol.rtt_matrix import without_timeouts

Floats = NDArray[np.float64]

QUEUEING = 0.05
"""Mean extra delay of a sample, as a share of the round-trip time, exponential."""
SPIKES, SPIKE = 0.03, 5.0
"""Share of slow samples, and their factor: a queue on the path is full, or a host is busy."""
MIN_NODES, MAX_MADE = 4, 4000
SAMPLES_SHOWN = 500


LEAST = 0.05
"""Least share of its RTT that noise leaves of a sample."""


class Weather(NamedTuple):
    """Disturbance of a matrix's RTTs: Gaussian ``noise`` and queueing.

    ``noise`` is the standard deviation as a share of the RTT; queueing is on or off.
    """

    noise: float = 0.0
    queueing: bool = True


QUEUES = Weather()


class RttMatrix:
    """``rounds`` [t, n, n] in milliseconds, row to column, NaN where a pair is missing; ``truth`` [n, n] is its median."""

    def __init__(self, name: str, rounds: Floats, weather: Weather = QUEUES) -> None:
        self.name = name
        self._rounds, self._weather = rounds, weather
        known = np.isfinite(rounds).any(axis=0)
        self.truth: Floats = np.full(known.shape, np.nan)
        self.truth[known] = np.nanmedian(rounds[:, known], axis=0)

    @property
    def nodes(self) -> int:
        return len(self.truth)

    @property
    def rounds(self) -> Floats:
        """The rounds, [t, n, n]; a pair that a round lacks has its median."""
        return np.where(np.isfinite(self._rounds), self._rounds, self.truth)

    def sample(self, sources: NDArray[np.int_], targets: NDArray[np.int_], rng: np.random.Generator) -> Floats:
        """Return an RTT for each pair, from any round, with its weather; NaN for a missing pair."""
        count = len(sources)
        times = self._rounds[rng.integers(len(self._rounds), size=count), sources, targets]
        if self._weather.queueing:
            slower = 1 + rng.exponential(QUEUEING, count)
            times = times * np.where(rng.random(count) < SPIKES, SPIKE, 1.0) * slower
        if self._weather.noise:
            times = times * np.maximum(1 + rng.normal(0, self._weather.noise, count), LEAST)
        return times

    def samples_of_median_link(self, rng: np.random.Generator) -> Floats:
        """Return ``SAMPLES_SHOWN`` samples of the pair with the (lower) median of all RTTs."""
        pairs = np.argwhere(np.isfinite(self.truth))
        source, target = pairs[np.argsort(self.truth[pairs[:, 0], pairs[:, 1]])[(len(pairs) - 1) // 2]]
        samples = self.sample(np.full(4 * SAMPLES_SHOWN, source), np.full(4 * SAMPLES_SHOWN, target), rng)
        return np.resize(samples[np.isfinite(samples)], SAMPLES_SHOWN)


def read_matrix(path: Path, weather: Weather = QUEUES) -> RttMatrix:
    """Read the array ``rtt_ms`` of an .npz file, [n, n] or [t, n, n], in milliseconds; drop nodes without any RTT.

    An RTT is missing if it is not positive, or a timeout (:func:`~sbon_protocol.rtt_matrix.without_timeouts`).

    Raises :class:`SbonError` ``bad-matrix``.
    """
    return _matrix(path.stem, _rounds_of(path), weather, str(path))


def timeouts_in(path: Path) -> int:
    """Count the RTTs that :func:`read_matrix` regards as timeouts. Raises its errors."""
    return _without_timeouts(_rounds_of(path), str(path))[1]


def _rounds_of(path: Path) -> Floats:
    """Return the unchanged rounds, [t, n, n]."""
    hint = "an .npz file with an array rtt_ms [n, n] or [t, n, n] of milliseconds: numpy.savez(FILE, rtt_ms=...)"
    if not zipfile.is_zipfile(path):
        raise SbonError("bad-matrix", "it is no .npz file", where=str(path), hint=hint)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if "rtt_ms" not in arrays:
                names = ", ".join(arrays) or "none"
                raise SbonError("bad-matrix", f"it has no array rtt_ms; its arrays: {names}", where=str(path), hint=hint)
            rtt_ms = arrays["rtt_ms"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise SbonError("bad-matrix", f"cannot be read: {error}", where=str(path), hint=hint) from error
    if rtt_ms.dtype.kind not in "iuf":
        raise SbonError("bad-matrix", f"rtt_ms holds {rtt_ms.dtype.name}, not milliseconds", where=str(path), hint=hint)
    rtt_ms = rtt_ms.astype(np.float64)
    rounds: Floats = rtt_ms[None] if rtt_ms.ndim == 2 else rtt_ms
    if rounds.ndim != 3 or rounds.shape[1] != rounds.shape[2] or not len(rounds):
        raise SbonError("bad-matrix", f"rtt_ms is {list(rtt_ms.shape)}, neither [n, n] nor [t, n, n]", where=str(path))
    return rounds


def made_matrix(text: str, seed: int, weather: Weather = QUEUES) -> RttMatrix:
    """Generate a matrix of a kind of :data:`MADE` with so many nodes: ``access:100``. Raise :class:`SbonError`
    ``bad-matrix``.
    """
    kind, _, count = text.partition(":")
    if kind not in MADE or not count.isdecimal() or not MIN_NODES <= int(count) <= MAX_MADE:
        hint = f"KIND:NODES with {MIN_NODES} to {MAX_MADE} nodes and a kind of " + ", ".join(MADE)
        raise SbonError("bad-matrix", f"{text!r} cannot be made", where="--made", hint=hint)
    made = MADE[kind](int(count), np.random.default_rng((seed, 4)))
    return _matrix(f"{kind}{int(count)}", made[None], weather, "--made")


def _matrix(name: str, raw: Floats, weather: Weather, where: str) -> RttMatrix:
    raw, _ = _without_timeouts(raw, where)
    rounds: Floats = np.where(np.isfinite(raw) & (raw > 0), raw, np.nan)
    rounds[:, range(rounds.shape[1]), range(rounds.shape[1])] = np.nan
    known = _any(np.isfinite(rounds), 0)
    present = _any(known, 0) | _any(known, 1)
    rounds = _both_directions(rounds[:, present][:, :, present])
    if rounds.shape[1] < MIN_NODES:
        raise SbonError("bad-matrix", f"{rounds.shape[1]} nodes with times, at least {MIN_NODES} are needed", where=where)
    return RttMatrix(name, rounds, weather)


def _without_timeouts(rtt_ms: Floats, where: str) -> tuple[Floats, int]:
    try:
        return without_timeouts(rtt_ms)
    except ValueError as error:
        raise SbonError("bad-matrix", str(error), where=where, hint="rtt_ms is in milliseconds") from error


def _both_directions(rounds: Floats) -> Floats:
    """Fill missing directions with the known direction, because a round trip takes as long from either end.

    This covers triangular matrices, and nodes measured in a single direction.
    """
    known = _any(np.isfinite(rounds), 0)
    mirrored = rounds.transpose(0, 2, 1)
    if not np.any(known & known.T):
        return np.where(np.isfinite(rounds), rounds, mirrored)
    return np.where(_any(known, 1)[:, None] & _any(known, 0), rounds, mirrored)


def _any(flags: NDArray[np.bool_], axis: int) -> NDArray[np.bool_]:
    return np.asarray(np.logical_or.reduce(flags, axis=axis))


# -- Generated true round-trip times, for tests of coordinates without measured data ----------------------------------

# Each is a matrix in milliseconds with a zero diagonal, the same for the same seed.

Matrix = NDArray[np.float64]


def space(n: int, rng: np.random.Generator) -> Matrix:
    """Return distances of points in a cube with edges of 150 ms: coordinates of three dimensions can be exact."""
    return _distances(rng.uniform(0, 150, size=(n, 3)))


def access(n: int, rng: np.random.Generator) -> Matrix:
    """Return :func:`space` plus each node's access link, 6 ms in the mean, on every path: no point in the cube covers it."""
    heights = rng.exponential(6, size=n)
    return _without_diagonal(space(n, rng) + heights[:, None] + heights[None, :])


def continents(n: int, rng: np.random.Generator) -> Matrix:
    """Return four clusters, some 10 ms wide and up to 200 ms apart: a small relative error afar is a large error at home."""
    centres = rng.uniform(0, 150, size=(4, 3))
    return _distances(centres[np.arange(n) % 4] + rng.normal(0, 5, size=(n, 3)))


def detours(n: int, rng: np.random.Generator) -> Matrix:
    """Return :func:`access` with each path longer by its own share (lognormal, sigma 0.15), due to routing.

    The triangle inequality does not hold.
    """
    longer = np.exp(np.abs(rng.normal(0, 0.15, size=(n, n))))
    return np.asarray(access(n, rng) * np.maximum(longer, longer.T))


def inflated(n: int, rng: np.random.Generator) -> Matrix:
    """Return :func:`access` with 62 % of the paths longer by 40 % in the mean (exponential), due to routing."""
    longer = np.where(rng.random((n, n)) < 0.62, 1 + rng.exponential(0.4, (n, n)), 1.0)
    longer = np.triu(longer, 1)
    return np.asarray(access(n, rng) * (longer + longer.T))


def lopsided(n: int, rng: np.random.Generator) -> Matrix:
    """Return :func:`access` with a constant error of each direction (lognormal, sigma 0.1).

    No coordinates can express it.
    """
    return np.asarray(access(n, rng) * np.exp(rng.normal(0, 0.1, size=(n, n))))


def sparse(n: int, rng: np.random.Generator) -> Matrix:
    """Return :func:`access`; 30 % of the pairs cannot reach each other (NaN)."""
    missing = np.triu(rng.random((n, n)) < 0.3, 1)
    return np.where(missing | missing.T, np.nan, access(n, rng))


TRUTHS: dict[str, Callable[[int, np.random.Generator], Matrix]] = {
    make.__name__: make for make in (space, access, continents, detours)
}
"""Symmetric matrices without gaps."""
MADE = TRUTHS | {make.__name__: make for make in (inflated, lopsided, sparse)}


def _distances(positions: Matrix) -> Matrix:
    return np.asarray(np.linalg.norm(positions[:, None] - positions[None, :], axis=2))


def _without_diagonal(matrix: Matrix) -> Matrix:
    np.fill_diagonal(matrix, 0.0)
    return matrix
