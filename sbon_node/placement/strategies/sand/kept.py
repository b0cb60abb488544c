"""Entries kept for others: limited in number, in all and for each peer, and forgotten after a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Entry(NamedTuple, Generic[V]):
    """A value, the peer that it is kept for, and when it is forgotten."""

    value: V
    peer: str
    until_s: float


class Kept(Generic[K, V]):
    """At most ``most`` entries, ``most_of_peer`` for a peer, each forgotten ``kept_s`` after it was put.

    A peer with too many loses its oldest. If there are too many of all, the peer with the most loses its oldest: so one that
    floods this node displaces nobody else's.
    """

    def __init__(self, most: int, most_of_peer: int, kept_s: float) -> None:
        self._most, self._most_of_peer, self._kept_s = most, most_of_peer, kept_s
        self._entries: dict[K, Entry[V]] = {}
        """In the order in which they were put."""
        self._of_peer: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now_s: float) -> Entry[V] | None:
        """Return the entry; None if there is none, or none any more."""
        self._forget(now_s)
        return self._entries.get(key)

    def put(self, key: K, value: V, peer: str, now_s: float) -> None:
        """Keep a value instead of an earlier one."""
        self._forget(now_s)
        self.drop(key)
        if self._of_peer[peer] >= self._most_of_peer:
            self._drop_oldest(peer)
        elif len(self._entries) >= self._most:
            self._drop_oldest(max(self._of_peer, key=lambda other: self._of_peer[other]))
        self._entries[key] = Entry(value, peer, now_s + self._kept_s)
        self._of_peer[peer] += 1

    def drop(self, key: K) -> None:
        """Forget the entry, if there is one."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._of_peer[entry.peer] -= 1
            if not self._of_peer[entry.peer]:
                del self._of_peer[entry.peer]

    def items(self, now_s: float) -> list[tuple[K, V]]:
        """Return the keys and values, the oldest first."""
        self._forget(now_s)
        return [(key, entry.value) for key, entry in self._entries.items()]

    def _drop_oldest(self, peer: str) -> None:
        self.drop(next(key for key, entry in self._entries.items() if entry.peer == peer))

    def _forget(self, now_s: float) -> None:
        while self._entries:
            key = next(iter(self._entries))
            if self._entries[key].until_s > now_s:
                return
            self.drop(key)
