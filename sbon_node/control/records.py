"""Query records: registers changed by compare-and-set, behind the interface that a majority of holders will later keep.

For now the node that took the submission is the only holder of a query's record (docs/design.md, section 10).
"""

from __future__ import annotations

import msgspec

from sbon_node.control.report import LIVE as LIVE
from sbon_node.control.report import Bill, QueryInfo, QueryState, SinkSpec
from sbon_node.control.store import Store
from sbon_node.errors import SbonError
from sbon_node.placement.goal import Goal
from sbon_node.placement.problem import Placement
from sbon_node.query.plan import Plan


class QueryRecord(Goal, frozen=True, kw_only=True):
    """The truth about a query, with what it is placed for. ``hosts`` and ``epochs`` are by part: operators, and ``<query>.sink``.

    A query that is over keeps its record as a tombstone, with its last description and bill, so that a host that was away does
    not revive it; ``cleaned`` says that its hosts have been told, ``accepted`` that whoever submitted it has been told it runs.
    """

    id: str
    sql: str
    state: QueryState
    reason: str = ""
    submitted_ms: int = 0
    consumer: str
    sink: SinkSpec
    plan: Plan
    placement: Placement | None = None
    hosts: dict[str, str] = msgspec.field(default_factory=dict)
    epochs: dict[str, int] = msgspec.field(default_factory=dict)
    last: QueryInfo | None = None
    bill: Bill | None = None
    cleaned: bool = False
    accepted: bool = False
    version: int = 0

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(sorted({p.source.stream for p in self.plan.sources}))

    @property
    def refused(self) -> bool:
        """Whether nothing of it is to stay, should it end now: results of a submission that was refused are nobody's."""
        return not self.accepted and self.state != "finished"

    @property
    def sink_part(self) -> str:
        return f"{self.id}.sink"


class Records:
    """This node's registers; bounded: the oldest query that is over makes room for a new one, those all hosts know of first."""

    def __init__(self, store: Store, most: int) -> None:
        self._store, self._most = store, most
        self._records = store.all("query", QueryRecord)

    def all(self) -> list[QueryRecord]:
        return sorted(self._records.values(), key=lambda r: (r.submitted_ms, r.id))

    def get(self, query: str) -> QueryRecord | None:
        return self._records.get(query)

    def compare_and_set(self, expected_version: int, record: QueryRecord) -> QueryRecord:
        """Stores ``record`` as the successor of ``expected_version`` (0: it must be new).

        Raises :class:`SbonError` ``record-changed`` where somebody was faster, ``too-many-queries`` where there is no room.
        """
        current = self._records.get(record.id)
        if (current.version if current else 0) != expected_version:
            raise SbonError("record-changed", f"the record of {record.id} has changed meanwhile", where=record.id)
        if current is None:
            self._make_room()
        stored = msgspec.structs.replace(record, version=expected_version + 1)
        self._store.put("query", record.id, stored)
        self._records[record.id] = stored
        return stored

    def delete(self, query: str) -> None:
        self._store.delete("query", query)
        self._records.pop(query, None)

    def _make_room(self) -> None:
        if len(self._records) < self._most:
            return
        over = sorted((r for r in self.all() if r.state not in LIVE), key=lambda r: not r.cleaned)
        if not over:
            raise SbonError("too-many-queries", f"{self._most} queries run from this node", hint="stop one, or submit elsewhere")
        self.delete(over[0].id)
