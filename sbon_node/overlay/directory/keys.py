"""Key ownership by rendezvous hashing, or highest random weight (Thaler, Ravishankar, IEEE/ACM ToN 1998, section 3).

Each node has a weight of its own for each key, and the key belongs to the greatest; so nodes that know the same members name
the same owners, and a node that leaves moves no keys but its own. All nodes count alike, however large they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

WEIGHT_BYTES = 16


def owners(key: str, names: Iterable[str], r: int) -> list[str]:
    """Return the ``r`` names of the greatest weights for ``key``, the first owner first; all names if there are fewer.

    The second to r-th nodes own the key when those before them are gone.
    """
    return sorted(names, key=lambda name: (weight(key, name), name), reverse=True)[: max(0, r)]


def weight(key: str, name: str) -> bytes:
    """Return the 16-byte BLAKE2b of the name's length in decimal, a colon, the name and the key, in UTF-8: big-endian numbers."""
    return hashlib.blake2b(f"{len(name)}:{name}{key}".encode(), digest_size=WEIGHT_BYTES).digest()
