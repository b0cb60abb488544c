"""Which networks an experiment runs on: files of measured times, and generated ones by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sbon_node.experiments.network import Network, measured
from sbon_node.experiments.topologies import topology_named


def networks_of(data: Sequence[Path], topologies: Sequence[str], seed: int) -> Iterator[Network]:
    """Raises :class:`SbonError` ``bad-matrix`` or ``unknown-topology``; a seed makes other networks of the same topology."""
    yield from (measured(path) for path in data)
    yield from (topology_named(name, seed) for name in topologies)
