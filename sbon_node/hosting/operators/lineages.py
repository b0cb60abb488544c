"""The lineages of the streams that components on this node read, stored before the first frame is taken."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sbon_node.base.store import RecordStore


class ReadLineages(msgspec.Struct, frozen=True, kw_only=True):
    """Lineages by stream of one component. They belong to its checkpoint or delivery position, and move with it."""

    by_stream: dict[str, int] = {}


class Lineages:
    """Lineages by component. A component that is removed loses them first, so that a later one of its id starts without."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._known = store.all("lineages", ReadLineages)

    def of(self, component: str, stream: str) -> int:
        """Return the lineage of ``stream`` that the component has read; 0 if it has read none."""
        known = self._known.get(component)
        return known.by_stream.get(stream, 0) if known is not None else 0

    def learner(self, component: str, stream: str) -> Callable[[int], None]:
        """Return the function that stores the lineage of ``stream``; it raises :class:`SbonError` where the disk is full."""

        def learn(lineage: int) -> None:
            known = self._known.get(component, ReadLineages())
            learnt = ReadLineages(by_stream={**known.by_stream, stream: lineage})
            self._store.put("lineages", component, learnt)
            self._known[component] = learnt

        return learn

    def forget(self, component: str) -> None:
        if component in self._known:
            self._store.delete("lineages", component)
            del self._known[component]
