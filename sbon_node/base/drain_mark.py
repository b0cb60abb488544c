"""The mark of a drained node, which takes no part in queries (:mod:`sbon_node.adaptation.drain.draining`)."""

from __future__ import annotations

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
