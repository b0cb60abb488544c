"""Latencies between all nodes, for strategies that look at every one: as much as may be, and a part at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sbon_node.errors import SbonError
from sbon_node.placement.instance import Floats
from sbon_node.placement.network_view import NetworkView

MAX_PAIRS = 9_000_000
"""Of nodes, both ways: 3,000 nodes, a matrix of 72 MB."""
PART = 200_000
"""Pairs between two pauses."""


def check_pairs(nodes: Sequence[str], strategy: str) -> None:
    """Raises :class:`SbonError` ``too-large`` beyond ``MAX_PAIRS``."""
    many = len(nodes)
    if many**2 > MAX_PAIRS:
        raise SbonError(
            "too-large",
            f"{strategy} reckons with the ways between all nodes; of {many:,} these are more than {MAX_PAIRS:,}",
            where="strategy",
            hint="take hybrid, relaxation or opb, which look at a part of the nodes",
        )


async def all_pairs_ms(view: NetworkView, nodes: Sequence[str], strategy: str) -> Floats:
    """One way, [n, n], as the view knows them. Raises as :func:`check_pairs`."""
    check_pairs(nodes, strategy)
    many = len(nodes)
    found = np.empty((many, many))
    step = max(PART // max(many, 1), 1)
    for start in range(0, many, step):
        found[start : start + step] = view.latencies_ms(nodes[start : start + step], nodes)
        await view.pause()
    return found
