"""The mark of a drained node, which takes no part in queries (:mod:`sbon_node.operations.draining`)."""

from __future__ import annotations

import msgspec
import structlog

from sbon_node.errors import SbonError
from sbon_node.workflow.store import RecordStore

log = structlog.get_logger()


class DrainMark(msgspec.Struct, frozen=True, kw_only=True):
    """The stored form of the mark."""

    since_ms: int


class Drained:
    """Whether this node is drained; a restart does not change it."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._mark = store.get("drain", "self", DrainMark)

    def __bool__(self) -> bool:
        return self._mark is not None

    def check(self) -> None:
        """Raise ``node-drained`` for a request to host a part of a query here."""
        if self._mark is not None:
            raise SbonError(
                "node-drained", "this node has been drained: it takes no part in queries any more", hint="name another node"
            )

    def mark(self, now_ms: int) -> None:
        if self._mark is None:
            mark = DrainMark(since_ms=now_ms)
            self._store.put("drain", "self", mark)
            self._mark = mark
            log.warning("drained", hint="it takes no operators, sources, sinks or queries any more")
