"""Choice of an experiment's networks: files of measured RTTs, and generated networks by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from sbon_node.experiments.harness.network import Network, measured
from sbon_node.experiments.harness.topologies import topology_named


def networks_of(data: Sequence[Path], topologies: Sequence[str], seed: int) -> Iterator[Network]:
    """Yield the networks; a seed makes other networks of the same topology.

    Names are unique, because they identify rows, pictures and dumps: the second of several files ``plane.npz`` is
    ``plane-2``.

    Raises :class:`SbonError` ``bad-matrix`` or ``unknown-topology``.
    """
    names_used: set[str] = set()
    for network in itertools.chain((measured(path) for path in data), (topology_named(name, seed) for name in topologies)):
        others = (f"{network.name}-{number}" for number in itertools.count(2))
        name = next(name for name in itertools.chain([network.name], others) if name not in names_used)
        names_used.add(name)
        yield network._replace(name=name)
