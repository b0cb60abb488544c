"""Query records: registers changed by compare-and-set.

The interface allows a majority of holders later. For now the node that took the submission is the only holder of a query's record
(docs/design.md, section 10).
"""

from __future__ import annotations

import msgspec

from sbon_node.errors import SbonError
from sbon_node.model.records import QueryRecord
from sbon_node.model.states.query_states import LIVE
from sbon_node.workflow.store import RecordStore


class Records:
    """This node's registers.

    Bounded: the oldest query that is over makes room for a new query, and queries whose end all hosts know go first.
    """

    def __init__(self, store: RecordStore, most: int) -> None:
        self._store, self._most = store, most
        self._records = store.all("query", QueryRecord)

    def all(self) -> list[QueryRecord]:
        return sorted(self._records.values(), key=lambda r: (r.submitted_ms, r.id))

    def get(self, query: str) -> QueryRecord | None:
        return self._records.get(query)

    def compare_and_set(self, expected_version: int, record: QueryRecord) -> QueryRecord:
        """Store ``record`` as the successor of ``expected_version`` (0: it must be new).

        Raises :class:`SbonError` ``record-changed`` if another change came first, ``too-many-queries`` if there is no room.
        """
        current = self._records.get(record.id)
        if (current.version if current else 0) != expected_version:
            raise SbonError("record-changed", f"the record of {record.id} has changed meanwhile", where=record.id)
        if current is None:
            self._delete_ended()
        stored = msgspec.structs.replace(record, version=expected_version + 1)
        self._store.put("query", record.id, stored)
        self._records[record.id] = stored
        return stored

    def delete(self, query: str) -> None:
        self._store.delete("query", query)
        self._records.pop(query, None)

    def _delete_ended(self) -> None:
        if len(self._records) < self._most:
            return
        ended = sorted((r for r in self.all() if r.state not in LIVE), key=lambda r: not r.cleaned)
        if not ended:
            raise SbonError("too-many-queries", f"{self._most} queries run from this node", hint="stop one, or submit elsewhere")
        self.delete(ended[0].id)
