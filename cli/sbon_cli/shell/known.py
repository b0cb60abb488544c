"""The node's names for completion: requested now and then, empty without an error if it does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sbon import SbonError
from sbon.model import StreamInfo
from sbon.states import LIVE
from sbon_cli.client import Client

T = TypeVar("T")

FRESH_S = 5.0
PATIENCE_S = 1.0


class Known:
    """Streams with their columns, and queries, of the connected node."""

    def __init__(self, api: str, now: Callable[[], float] = time.monotonic) -> None:
        self._client = Client(api, patience_s=PATIENCE_S)
        self._now = now
        self._streams: dict[str, tuple[str, ...]] = {}
        self._sources: tuple[str, ...] = ()
        self._members: tuple[str, ...] = ()
        self._states: dict[str, str] = {}
        self._fetched: dict[str, float] = {}

    def streams(self) -> dict[str, tuple[str, ...]]:
        """Return columns by stream."""
        self._ask_streams()
        return self._streams

    def sources(self) -> tuple[str, ...]:
        self._ask_streams()
        return self._sources

    def members(self) -> tuple[str, ...]:
        if self._due("members"):
            self._members = tuple(member.name for member in _listed(self._client.members))
        return self._members

    def queries(self) -> tuple[str, ...]:
        return tuple(self._query_states())

    def live_queries(self) -> tuple[str, ...]:
        """Return the queries that are not over."""
        return tuple(name for name, state in self._query_states().items() if state in LIVE)

    def forget(self) -> None:
        """Forget all names, because they may have changed."""
        self._fetched.clear()

    def _ask_streams(self) -> None:
        if self._due("streams"):
            streams = _listed(self._client.streams)
            self._streams = dict(map(_columns, streams))
            self._sources = tuple(sorted({source.name for info in streams for source in info.entry.sources}))

    def _query_states(self) -> dict[str, str]:
        if self._due("queries"):
            self._states = {query.id: query.state for query in _listed(self._client.queries)}
        return self._states

    def _due(self, what: str) -> bool:
        fetched_s = self._fetched.get(what)
        if fetched_s is not None and self._now() - fetched_s < FRESH_S:
            return False
        self._fetched[what] = self._now()
        return True


def _listed(ask: Callable[[], list[T]]) -> list[T]:
    try:
        return ask()
    except SbonError:
        return []


def _columns(info: StreamInfo) -> tuple[str, tuple[str, ...]]:
    declaration = info.entry.declaration
    return declaration.name, tuple(column.name for column in declaration.schema)
