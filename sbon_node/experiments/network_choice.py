"""Which networks an experiment runs on: files of measured times, and generated ones by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from sbon_node.experiments.network import Network, measured
from sbon_node.experiments.topologies import topology_named


def networks_of(data: Sequence[Path], topologies: Sequence[str], seed: int) -> Iterator[Network]:
    """Raises :class:`SbonError` ``bad-matrix`` or ``unknown-topology``; a seed makes other networks of the same topology.

    No two have the same name, which tells their rows, pictures and dumps apart: of several files ``plane.npz``, the second is
    ``plane-2``.
    """
    taken: set[str] = set()
    for network in itertools.chain((measured(path) for path in data), (topology_named(name, seed) for name in topologies)):
        others = (f"{network.name}-{number}" for number in itertools.count(2))
        name = next(name for name in itertools.chain([network.name], others) if name not in taken)
        taken.add(name)
        yield network._replace(name=name)
