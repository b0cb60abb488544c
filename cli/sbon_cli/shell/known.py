"""What the node knows that can be completed: asked now and then, and silently nothing where it does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sbon_cli.client import Client
from sbon_node.control.report import StreamInfo
from sbon_node.errors import SbonError

T = TypeVar("T")

FRESH_S = 5.0
PATIENCE_S = 1.0


class Known:
    """Streams with their columns, and queries, of the node asked."""

    def __init__(self, api: str, now: Callable[[], float] = time.monotonic) -> None:
        self._client = Client(api, patience_s=PATIENCE_S)
        self._now = now
        self._streams: dict[str, tuple[str, ...]] = {}
        self._queries: tuple[str, ...] = ()
        self._asked: dict[str, float] = {}

    def streams(self) -> dict[str, tuple[str, ...]]:
        """Columns by stream."""
        if self._due("streams"):
            self._streams = dict(map(_columns, _asked(self._client.streams)))
        return self._streams

    def queries(self) -> tuple[str, ...]:
        if self._due("queries"):
            self._queries = tuple(query.id for query in _asked(self._client.queries))
        return self._queries

    def forget(self) -> None:
        """What is known may have changed."""
        self._asked.clear()

    def _due(self, what: str) -> bool:
        asked = self._asked.get(what)
        if asked is not None and self._now() - asked < FRESH_S:
            return False
        self._asked[what] = self._now()
        return True


def _asked(ask: Callable[[], list[T]]) -> list[T]:
    try:
        return ask()
    except SbonError:
        return []


def _columns(info: StreamInfo) -> tuple[str, tuple[str, ...]]:
    declaration = info.entry.declaration
    return declaration.name, tuple(column.name for column in declaration.schema)
