"""Latencies between all nodes, limited in number and computed a part at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sbon_node.placement.model.instance import Floats
from sbon_node.placement.model.network_view import NetworkView
from sbon_protocol.errors import SbonError

MAX_PAIRS = 9_000_000
"""Most ordered pairs of nodes: 3,000 nodes, a matrix of 72 MB."""
PART = 200_000
"""Pairs between two pauses."""


def check_pairs(nodes: Sequence[str], strategy: str) -> None:
    """Check the number of nodes. Raises :class:`SbonError` ``too-large`` beyond ``MAX_PAIRS``."""
    many = len(nodes)
    if many**2 > MAX_PAIRS:
        raise SbonError(
            "too-large",
            f"{strategy} uses the latencies between all nodes; of {many:,} these are more than {MAX_PAIRS:,}",
            where="strategy",
            hint="take hybrid, relaxation or opb, which look at a part of the nodes",
        )


async def all_pairs_ms(view: NetworkView, nodes: Sequence[str], strategy: str) -> Floats:
    """Return the one-way latencies [n, n] that the view knows. Raises as :func:`check_pairs`."""
    check_pairs(nodes, strategy)
    many = len(nodes)
    latency_ms = np.empty((many, many))
    step = max(PART // max(many, 1), 1)
    for start in range(0, many, step):
        latency_ms[start : start + step] = view.latencies_ms(nodes[start : start + step], nodes)
        await view.pause()
    return latency_ms
