"""Final reports of sinks that were closed here, kept until the query holder has stored them.

The holder learns a sink's final count of rows only in the answer to the call that ends it. If the answer is lost, the sink is
gone.
"""

from __future__ import annotations

import msgspec

from sbon_node.model.delivery import SinkReport
from sbon_node.workflow.store import RecordStore


class EndedSink(msgspec.Struct, frozen=True, kw_only=True):
    """The final report of a sink."""

    rows: int | None
    report: SinkReport | None
    ended_ms: int


class EndedSinks:
    """Final reports by query; beyond ``most`` of them the oldest goes."""

    def __init__(self, store: RecordStore, most: int) -> None:
        self._store, self._most = store, most
        self._ended = store.all("sink-end", EndedSink)

    def keep(self, query: str, ended: EndedSink) -> None:
        """Store a report, unless an earlier one of the same sink is there, which was made while its rows were known."""
        if query in self._ended:
            return
        if len(self._ended) >= self._most:
            self._delete(min(self._ended, key=lambda name: (self._ended[name].ended_ms, name)))
        self._store.put("sink-end", query, ended)
        self._ended[query] = ended

    def get(self, query: str) -> EndedSink | None:
        return self._ended.get(query)

    def confirm(self, query: str) -> None:
        """Forget the report, which the holder has stored."""
        if query in self._ended:
            self._delete(query)

    def _delete(self, query: str) -> None:
        self._store.delete("sink-end", query)
        del self._ended[query]
