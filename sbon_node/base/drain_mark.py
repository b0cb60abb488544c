"""A node's own records: its identity, and the mark of a drained node, which takes no part in queries."""

import random

import msgspec
import structlog

from sbon_node.base.store import RecordStore
from sbon_protocol.errors import SbonError

log = structlog.get_logger()


class DrainMark(msgspec.Struct, frozen=True, kw_only=True):
    """The stored form of the mark."""

    since_ms: int


class Drained:
    """Whether this node is drained; a restart does not change it, unless it was drained because it stops."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._mark = store.get("drain", "self", DrainMark)
        self._is_stored = self._mark is not None

    def __bool__(self) -> bool:
        return self._mark is not None

    def check(self) -> None:
        """Raise ``node-drained`` for a request to host a part of a query here."""
        if self._mark is not None:
            raise SbonError(
                "node-drained", "this node has been drained: it takes no part in queries any more", hint="name another node"
            )

    def mark(self, now_ms: int, *, until_stop: bool = False) -> None:
        """Drain this node; only for as long as this process runs if ``until_stop``."""
        if self._mark is None:
            log.warning("drained", hint="it takes no operators, sources, sinks or queries any more", until_stop=until_stop)
        mark = self._mark or DrainMark(since_ms=now_ms)
        if not (until_stop or self._is_stored):
            self._store.put("drain", "self", mark)
            self._is_stored = True
        self._mark = mark


class StoredIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a node over all its lives, stored in its data directory at the first start."""

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
