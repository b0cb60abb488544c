"""Turns of a query's followers, one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import NamedTuple

from sbon_node.base.clock import Clock
from sbon_protocol.errors import SbonError


class Follower(NamedTuple):
    """The reader of a query: at this node by a secret ``word``, or at another ``node``, whose relay has the word.

    Followers of equal words are others if their ``reading`` differs.
    """

    word: str
    reading: Hashable
    node: str = ""
    instance: str = ""


IsReader = Callable[[Follower], bool]
"""Says whether a follower is the one that acknowledges."""


class Turn:
    """The follower whose turn it is to read a query. A turn with a limit ends by itself if its follower falls silent."""

    def __init__(self, query: str, clock: Clock) -> None:
        self._query, self._clock = query, clock
        self._follower: Follower | None = None
        self._last: Follower | None = None
        """Whose turn it was before this one; it may have written rows that it has not acknowledged yet."""
        self._until = clock.now()
        """When the turn ends, or the last one has ended."""
        self._requests = 0

    @property
    def idle_s(self) -> float:
        """Seconds since the last turn has ended; 0 while a follower has its turn."""
        now = self._clock.now()
        return max(0.0, now - self._until) if self._follower is None or now >= self._until else 0.0

    @property
    def recent(self) -> tuple[Follower, ...]:
        """Whose turn it is, and whose it was last."""
        return tuple(one for one in (self._follower, self._last) if one is not None)

    def begin(self, follower: Follower, for_s: float = math.inf) -> int:
        """Begin or continue the follower's turn; return the number of this request. Raises ``already-followed``."""
        self.extend(follower, for_s)
        self._requests += 1
        return self._requests

    def extend(self, follower: Follower, for_s: float) -> None:
        """Let the turn last ``for_s`` seconds from now at least. Raises ``already-followed``."""
        now = self._clock.now()
        if self._follower == follower:
            self._until = max(self._until, now + for_s)
        elif self._follower is None or now >= self._until:
            self._last = self._follower or self._last
            self._follower, self._until = follower, now + for_s
        else:
            raise SbonError(
                "already-followed", "another follower reads the query", where=self._query, hint="end the other one first"
            )

    def limit(self, follower: Follower, for_s: float) -> None:
        """Let the follower's turn last no longer than ``for_s`` seconds from now."""
        if self._follower == follower:
            self._until = min(self._until, self._clock.now() + for_s)

    def end(self, follower: Follower, request: int | None = None) -> None:
        """End the follower's turn, unless it has made another request since ``request``."""
        if self._follower == follower and request in (None, self._requests):
            self._follower, self._last, self._until = None, follower, self._clock.now()
