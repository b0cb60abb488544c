"""Matrices of round-trip times between many nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sbon_node.directory.pairs import Pair
from sbon_node.space.apart import apart
from sbon_node.space.coordinate import Coordinate


def apart_ms(sources: Sequence[Coordinate | None], targets: Sequence[Coordinate | None]) -> NDArray[np.float64]:
    """Return the distance in latency from each to each; NaN where either has no coordinate."""
    estimates_ms = np.full((len(sources), len(targets)), np.nan)
    rows = [i for i, coordinate in enumerate(sources) if coordinate is not None]
    columns = [i for i, coordinate in enumerate(targets) if coordinate is not None]
    if rows and columns:
        start_coordinates, other = (
            [coordinate for coordinate in coordinates if coordinate is not None] for coordinates in (sources, targets)
        )
        ends = [np.array([coordinate.vector for coordinate in coordinates]) for coordinates in (start_coordinates, other)]
        heights = [np.array([coordinate.height for coordinate in coordinates]) for coordinates in (start_coordinates, other)]
        estimates_ms[np.ix_(rows, columns)] = apart(*ends) + heights[0][:, None] + heights[1][None, :]
    return estimates_ms


def positions(nodes: Sequence[str]) -> dict[str, list[int]]:
    """Return the indices of each node; a node may be named twice."""
    positions: dict[str, list[int]] = {}
    for position, node in enumerate(nodes):
        positions.setdefault(node, []).append(position)
    return positions


def put_ms(
    matrix_ms: NDArray[np.float64], rows: Mapping[str, list[int]], columns: Mapping[str, list[int]], pair: Pair, rtt_ms: float
) -> None:
    """Store a pair's value in both directions, where its nodes are a row and a column."""
    for a, b in (pair, pair[::-1]):
        for row in rows.get(a, ()):
            for column in columns.get(b, ()):
                matrix_ms[row, column] = rtt_ms
