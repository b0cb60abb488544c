"""Identity of a node over all its lives: stored in its data directory at the first start."""

from __future__ import annotations

import random

import msgspec

from sbon_node.base.store import RecordStore
from sbon_protocol.errors import SbonError


class StoredIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity stored in a data directory."""

    name: str
    cluster: str
    instance: str
    incarnation: int


def identify(store: RecordStore, *, name: str, cluster: str, where: str, rng: random.Random) -> StoredIdentity:
    """Return the next incarnation of the owner of the data directory ``where``.

    Raises ``not-my-data`` if the owner is another node.
    """
    stored = store.get("identity", "self", StoredIdentity)
    if stored is None:
        stored = StoredIdentity(name=name, cluster=cluster, instance=f"{rng.getrandbits(64):016x}", incarnation=0)
    if (stored.name, stored.cluster) != (name, cluster):
        owner = f"belongs to node {stored.name!r} of cluster {stored.cluster!r}"
        raise SbonError("not-my-data", owner, where=where, hint="give each node a data directory of its own")
    identity = msgspec.structs.replace(stored, incarnation=stored.incarnation + 1)
    store.put("identity", "self", identity, sync=True)
    return identity
