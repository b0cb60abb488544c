"""How long a suspect may take to refute (SWIM, section 4.2; Dadgar, Phillips, Currey: Lifeguard, DSN 2018, section IV-B). Pure.

The time grows with the logarithm of the cluster, since the suspicion and its refutation each travel by gossip.
"""

from __future__ import annotations

import math

import msgspec


class _Suspicion(msgspec.Struct):
    incarnation: int
    since: float


class Suspicions:
    """Suspects of one node, each under the incarnation it is suspected in."""

    def __init__(self, factor: float, probe_interval_s: float) -> None:
        self._factor, self._interval_s = factor, probe_interval_s
        self._of: dict[str, _Suspicion] = {}

    def __len__(self) -> int:
        return len(self._of)

    def timeout_s(self, members: int) -> float:
        """factor x log10(n + 9) x probe interval; n living members, this one included."""
        return self._factor * math.log10(members + 9) * self._interval_s

    def begin(self, name: str, incarnation: int, now: float) -> None:
        """Suspecting the same incarnation again changes nothing: its time is running."""
        known = self._of.get(name)
        if known is None or known.incarnation < incarnation:
            self._of[name] = _Suspicion(incarnation, now)

    def end(self, name: str) -> None:
        """It has refuted, or is gone."""
        self._of.pop(name, None)

    def pause(self, lag_s: float) -> None:
        """We were not listening for so long: nobody's time was running."""
        for suspicion in self._of.values():
            suspicion.since += lag_s

    def expired(self, members: int, now: float) -> list[tuple[str, int]]:
        """Suspects whose time is over, with the incarnation they were suspected in, by name."""
        limit = self.timeout_s(members)
        return sorted((name, s.incarnation) for name, s in self._of.items() if now - s.since >= limit)
