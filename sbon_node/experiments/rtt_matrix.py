"""Measured round-trip times, as experiments are given them: a matrix, or one for each round, and samples drawn from it."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_node.errors import SbonError
from sbon_node.experiments.made_matrix import MADE
from sbon_node.net.delays import MAX_RTT_MS

Floats = NDArray[np.float64]

QUEUEING = 0.05
"""Mean extra delay of a sample, as a share of the round-trip time, exponential."""
SPIKES, SPIKE = 0.03, 5.0
"""Share of the samples that take so many times as long: a queue somewhere is full, or a host is busy."""
MIN_NODES, MAX_MADE = 4, 4000
SAMPLES_SHOWN = 500


LEAST = 0.05
"""Of its time, that noise leaves of a sample."""


class Weather(NamedTuple):
    """What comes on top of the times of a matrix: ``noise``, the standard deviation of symmetric (Gaussian) noise as a share of
    the time, and whether there is queueing."""

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

    def sample(self, sources: NDArray[np.int_], targets: NDArray[np.int_], rng: np.random.Generator) -> Floats:
        """A round-trip time for each pair, of any round, with its weather; NaN where there is none."""
        count = len(sources)
        times = self._rounds[rng.integers(len(self._rounds), size=count), sources, targets]
        if self._weather.queueing:
            slower = 1 + rng.exponential(QUEUEING, count)
            times = times * np.where(rng.random(count) < SPIKES, SPIKE, 1.0) * slower
        if self._weather.noise:
            times = times * np.maximum(1 + rng.normal(0, self._weather.noise, count), LEAST)
        return times

    def samples_of_median_link(self, rng: np.random.Generator) -> Floats:
        """``SAMPLES_SHOWN`` of the pair with the (lower) median of all times."""
        pairs = np.argwhere(np.isfinite(self.truth))
        source, target = pairs[np.argsort(self.truth[pairs[:, 0], pairs[:, 1]])[(len(pairs) - 1) // 2]]
        samples = self.sample(np.full(4 * SAMPLES_SHOWN, source), np.full(4 * SAMPLES_SHOWN, target), rng)
        return np.resize(samples[np.isfinite(samples)], SAMPLES_SHOWN)


def read_matrix(path: Path, weather: Weather = QUEUES) -> RttMatrix:
    """The array ``rtt_ms`` of an .npz file, [n, n] or [t, n, n], in milliseconds; nodes without any time are left out.
    What is no positive time is missing.

    Raises :class:`SbonError` ``bad-matrix``.
    """
    hint = "an .npz file with an array rtt_ms [n, n] or [t, n, n] of milliseconds: numpy.savez(FILE, rtt_ms=...)"
    if not zipfile.is_zipfile(path):
        raise SbonError("bad-matrix", "it is no .npz file", where=str(path), hint=hint)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if "rtt_ms" not in arrays:
                found = ", ".join(arrays) or "none"
                raise SbonError("bad-matrix", f"it has no array rtt_ms; its arrays: {found}", where=str(path), hint=hint)
            rtt_ms = arrays["rtt_ms"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise SbonError("bad-matrix", f"cannot be read: {error}", where=str(path), hint=hint) from error
    if rtt_ms.dtype.kind not in "iuf":
        raise SbonError("bad-matrix", f"rtt_ms holds {rtt_ms.dtype.name}, not milliseconds", where=str(path), hint=hint)
    rtt_ms = rtt_ms.astype(np.float64)
    given = rtt_ms[None] if rtt_ms.ndim == 2 else rtt_ms
    if given.ndim != 3 or given.shape[1] != given.shape[2] or not len(given):
        raise SbonError("bad-matrix", f"rtt_ms is {list(rtt_ms.shape)}, neither [n, n] nor [t, n, n]", where=str(path))
    return _matrix(path.stem, given, weather, str(path))


def made_matrix(text: str, seed: int, weather: Weather = QUEUES) -> RttMatrix:
    """Of a kind of :data:`MADE` and so many nodes, such as ``access:100``. Raises :class:`SbonError` ``bad-matrix``."""
    kind, _, count = text.partition(":")
    if kind not in MADE or not count.isdecimal() or not MIN_NODES <= int(count) <= MAX_MADE:
        hint = f"KIND:NODES with {MIN_NODES} to {MAX_MADE} nodes and a kind of " + ", ".join(MADE)
        raise SbonError("bad-matrix", f"{text!r} cannot be made", where="--made", hint=hint)
    made = MADE[kind](int(count), np.random.default_rng((seed, 4)))
    return _matrix(f"{kind}{int(count)}", made[None], weather, "--made")


def _matrix(name: str, given: Floats, weather: Weather, where: str) -> RttMatrix:
    longest_ms = np.max(given, where=np.isfinite(given), initial=0.0)
    if longest_ms > MAX_RTT_MS:
        raise SbonError("bad-matrix", f"a time of {longest_ms:g} ms, at most {MAX_RTT_MS:,} are allowed", where=where)
    rounds: Floats = np.where(np.isfinite(given) & (given > 0), given, np.nan)
    rounds[:, range(rounds.shape[1]), range(rounds.shape[1])] = np.nan
    known = _any(np.isfinite(rounds), 0)
    there = _any(known, 0) | _any(known, 1)
    rounds = _both_ways(rounds[:, there][:, :, there])
    if rounds.shape[1] < MIN_NODES:
        raise SbonError("bad-matrix", f"{rounds.shape[1]} nodes with times, at least {MIN_NODES} are needed", where=where)
    return RttMatrix(name, rounds, weather)


def _both_ways(rounds: Floats) -> Floats:
    """A round trip takes as long seen from either end: of a triangle, and of nodes that were measured in one direction only, what
    is known stands for the other direction too."""
    known = _any(np.isfinite(rounds), 0)
    mirrored = rounds.transpose(0, 2, 1)
    if not np.any(known & known.T):
        return np.where(np.isfinite(rounds), rounds, mirrored)
    return np.where(_any(known, 1)[:, None] & _any(known, 0), rounds, mirrored)


def _any(found: NDArray[np.bool_], axis: int) -> NDArray[np.bool_]:
    return np.asarray(np.logical_or.reduce(found, axis=axis))
