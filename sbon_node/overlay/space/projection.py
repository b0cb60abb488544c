"""The latency dimensions of the cost space in a drawing: their first two principal axes."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def principal_axes(points: ArrayLike, axes: int = 2) -> tuple[NDArray[np.float64], float]:
    """Return ``points`` [n, d] on their principal axes, [n, axes], about their mean, and the share of variance shown.

    The spread is greatest along the first axis, then along the second. The share is 1 where there is no variance. Distances
    between the results are at most those between the points. The signs are fixed: on each axis, the point farthest out is on
    the positive side.
    """
    rows = np.atleast_2d(np.asarray(points, dtype=np.float64))
    centred = rows - rows.mean(axis=0)
    _, spread, directions = np.linalg.svd(centred, full_matrices=False)
    shown = np.zeros((len(rows), axes))
    count = min(axes, len(directions))
    shown[:, :count] = centred @ directions[:count].T
    farthest = shown[np.abs(shown).argmax(axis=0), np.arange(axes)]
    variance = float(np.sum(spread**2))
    share = float(np.sum(spread[:axes] ** 2)) / variance if variance > 0 else 1.0
    return shown * np.where(farthest < 0, -1.0, 1.0), share
