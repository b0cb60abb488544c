"""Round-trip times of an emulated wide area: named cities by their distance, or a measured matrix."""

from __future__ import annotations

import json
import sys
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from math import asin, cos, radians, sin, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sbon_protocol.errors import SbonError
from sbon_protocol.rtt_matrix import MAX_RTT_MS, timeouts_text, without_timeouts

CITIES = {
    "new-york": (40.71, -74.01),
    "london": (51.51, -0.13),
    "frankfurt": (50.11, 8.68),
    "singapore": (1.35, 103.82),
    "sao-paulo": (-23.55, -46.63),
    "san-francisco": (37.77, -122.42),
}
"""Coordinates in degrees north and east."""

EARTH_RADIUS_KM = 6371.0
FIBRE_KM_MS = 299.792 * 2 / 3
"""Speed of light in glass in kilometres a millisecond: two thirds of its speed in vacuum."""
ROUTE_FACTOR = 1.6
"""Ratio of cable length to great circle, including equipment on the path (measured ratios are about 1.5 to 2)."""
LAST_MILE_MS = 2.0
"""Fixed share of a round trip, however near the other end is."""


class WideArea(NamedTuple):
    """Sites and the round-trip times between them; ``rtt_ms[i][j]`` from ``names[i]`` to ``names[j]``."""

    names: tuple[str, ...]
    rtt_ms: tuple[tuple[float, ...], ...]

    def chosen(self, count: int, flag: str = "latency") -> WideArea:
        """Return the first ``count`` sites; raise ``bad-latency`` if there are fewer."""
        if count > len(self.names):
            raise SbonError("bad-latency", f"{count} nodes, but only {len(self.names)} sites", where=flag)
        return WideArea(self.names[:count], tuple(row[:count] for row in self.rtt_ms[:count]))


def great_circle_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the haversine distance of two points in degrees."""
    (north_a, east_a), (north_b, east_b) = ((radians(x), radians(y)) for x, y in (a, b))
    h = sin((north_b - north_a) / 2) ** 2 + cos(north_a) * cos(north_b) * sin((east_b - east_a) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * asin(min(1.0, sqrt(h)))


def rtt_between_ms(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the emulated round trip: both directions through fibre along a route, and the last miles."""
    return LAST_MILE_MS + 2 * great_circle_km(a, b) * ROUTE_FACTOR / FIBRE_KM_MS


def cities(places: Mapping[str, tuple[float, float]] = CITIES) -> WideArea:
    points = list(places.values())
    rows = (tuple(0.0 if i == j else round(rtt_between_ms(a, b), 2) for j, b in enumerate(points)) for i, a in enumerate(points))
    return WideArea(tuple(places), tuple(rows))


def of_mapping(rtts: Mapping[tuple[str, str], float], names: Sequence[str]) -> WideArea:
    """Convert ``{(a, b): rtt_ms}``, an entry for each pair; raise ``bad-latency`` for a missing pair."""

    def rtt(a: str, b: str) -> float:
        rtt_ms = 0.0 if a == b else rtts.get((a, b), rtts.get((b, a)))
        if rtt_ms is None:
            raise SbonError("bad-latency", f"no round-trip time between {a} and {b}", where="latency")
        return rtt_ms

    return WideArea(tuple(names), tuple(tuple(rtt(a, b) for b in names) for a in names))


def load_wide_area(path: Path) -> WideArea:
    """Load a JSON file ``{"names", "rtt_ms"}``, or a NumPy archive with ``rtt_ms`` and perhaps ``names``.

    In an archive ``rtt_ms`` is n x n, or rounds x n x n, of which the median counts. Times above ``MAX_RTT_MS`` are missing,
    and are counted on stderr. A missing pair takes the other direction, or else the shortest path over a third site; raises
    ``bad-latency`` if there is none.
    """
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                matrix = np.asarray(archive["rtt_ms"], dtype=np.float64)
                site_names = [str(name) for name in archive["names"]] if "names" in archive.files else None
        else:
            content = json.loads(path.read_text(encoding="utf-8"))
            matrix, site_names = np.asarray(content["rtt_ms"], dtype=np.float64), content.get("names")
            if site_names is not None and not isinstance(site_names, list):
                raise TypeError("names is no list")
    except OSError as error:
        raise SbonError("bad-latency", f"cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, KeyError, TypeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        hint = 'a JSON file {"names": [...], "rtt_ms": [[...]]}, or an .npz file with an array rtt_ms, milliseconds'
        raise SbonError("bad-latency", f"not a latency matrix: {error}", where=str(path), hint=hint) from error
    try:
        matrix, count = without_timeouts(matrix)
    except ValueError as error:
        raise SbonError("bad-latency", str(error), where=str(path), hint="rtt_ms is in milliseconds") from error
    if count:
        print(f"{path}: {timeouts_text(count)}", file=sys.stderr)
    if matrix.ndim == 3:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a pair missing in every round stays missing
            matrix = np.nanmedian(matrix, axis=0)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise SbonError("bad-latency", f"a square matrix is needed, not {matrix.shape}", where=str(path))
    matrix = _filled(matrix)
    if not np.isfinite(matrix).all() or (matrix < 0).any():
        raise SbonError("bad-latency", "a pair has no round-trip time, not even over a third site", where=str(path))
    if (matrix > MAX_RTT_MS).any():
        raise SbonError("bad-latency", f"a time of {matrix.max():g} ms, at most {MAX_RTT_MS:,} are allowed", where=str(path))
    if site_names is not None and len(site_names) != len(matrix):
        raise SbonError("bad-latency", f"{len(site_names)} names for {len(matrix)} sites", where=str(path))
    return WideArea(
        _unique(site_names or [f"site {i}" for i in range(len(matrix))]),
        tuple(tuple(round(float(x), 3) for x in row) for row in matrix),
    )


def _filled(rtt_ms: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    known = np.where(np.isnan(rtt_ms), rtt_ms.T, rtt_ms)
    np.fill_diagonal(known, 0.0)
    reach = np.where(np.isnan(known), np.inf, known)
    for i, j in np.argwhere(np.isnan(known)):
        known[i, j] = np.min(reach[i] + reach[:, j])
    return known


def site_name(text: str) -> str:
    """Convert a text to a valid node name: ``São Paulo (SP)`` becomes ``s-o-paulo-sp``."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in text.lower()).split()
    return "-".join(words)[:63].strip("-") or "site"


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """Return unique site names; a repeated name gets a number."""
    counts: dict[str, int] = {}
    names_of_rows = []
    for name in map(site_name, names):
        counts[name] = counts.get(name, 0) + 1
        names_of_rows.append(name if counts[name] == 1 else f"{name[:58]}.{counts[name]}")
    return tuple(names_of_rows)
