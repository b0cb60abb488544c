"""Time that a suspect has to refute (SWIM, section 4.2; Lifeguard: Dadgar, Phillips, Currey, DSN 2018, section IV-B). Pure.

The more nodes confirm its silence independently, the sooner the suspect is dead:

    time(c) = max(min, max - (max - min) x log(c + 1) / log(k + 1))

Departures from Lifeguard. The nack of a helper that took the time to ping counts as a confirmation at once: the helper has
tested the suspect itself, over its own path. And a *witness*, whose probe of the suspect failed, keeps pinging it, so that
the refutation reaches the deciding nodes without gossip. It stops being a witness once its probe is answered, however late. A
node that has only heard of the suspicion waits longer, to leave the witnesses time; if no word of theirs arrives, it probes the
suspect, to become a witness:

    time(heard) = time(c) + 2 x gossip interval x log2(n + 1)
"""

import math
from collections.abc import Iterable

import msgspec

from sbon_node.overlay.membership.settings import MembershipSettings


class Suspicion(msgspec.Struct):
    """One suspicion: ``by`` are the confirming nodes; ``insist_at`` is when a witness pings next, None if this node is none."""

    incarnation: int
    since: float
    by: dict[str, None]
    insist_at: float | None = None


class Suspicions:
    """One node's suspects, each with its suspected incarnation."""

    def __init__(self, settings: MembershipSettings) -> None:
        self._settings = settings
        self._of: dict[str, Suspicion] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, name: object) -> bool:
        return name in self._of

    def witnessed(self, name: str) -> bool:
        """Return whether a probe of this node's own failed."""
        known = self._of.get(name)
        return known is not None and known.insist_at is not None

    def timeout_s(self, confirmations: int, *, witness: bool, members: int) -> float:
        """Return the time to refute, as in the module's text; ``members`` living ones, this one included."""
        least, needed = self._settings.suspicion_min_s, self._settings.suspicion_confirmations
        longest = self._settings.suspicion_max_factor * least
        share = math.log(min(confirmations, needed) + 1) / math.log(needed + 1) if needed else 1.0
        hearsay_s = 0.0 if witness else 2 * self._settings.gossip_interval_s * math.log2(members + 1)
        return max(least, longest - (longest - least) * share) + hearsay_s

    def begin(self, name: str, incarnation: int, now: float, by: Iterable[str] = (), *, witness: bool = False) -> bool:
        """Begin a suspicion, or continue one of the same incarnation.

        Returns whether a new node confirms it and confirmations are still wanted.
        """
        known = self._of.get(name)
        if known is None or known.incarnation < incarnation:
            self._of[name] = known = Suspicion(incarnation, now, {})
        if known.incarnation > incarnation:
            return False
        fresh = [name for name in by if name not in known.by][: max(0, self._settings.suspicion_confirmations - len(known.by))]
        known.by.update(dict.fromkeys(fresh))
        if witness and known.insist_at is None:
            known.insist_at = known.since = now
        return bool(fresh)

    def end(self, name: str) -> None:
        """End the suspicion: the member has refuted, or is gone."""
        self._of.pop(name, None)

    def answered(self, name: str, now: float) -> None:
        """Stop being a witness after a late answer, and leave the suspect the longer ``time(heard)`` to refute."""
        known = self._of.get(name)
        if known is not None and known.insist_at is not None:
            known.insist_at, known.since = None, now

    def renew(self, name: str, now: float) -> None:
        """Restart the suspect's time."""
        self._of[name].since = now

    def pause(self, lag_s: float) -> None:
        """Extend all times by ``lag_s``: this process did not listen meanwhile."""
        for suspicion in self._of.values():
            suspicion.since += lag_s

    def insistent(self, now: float) -> list[str]:
        """Return the suspects that this node, as a witness, should ping again now."""
        due = [name for name, s in self._of.items() if s.insist_at is not None and s.insist_at <= now]
        for name in due:
            self._of[name].insist_at = now + self._settings.insist_s
        return due

    def expired(self, members: int, now: float) -> list[tuple[str, int]]:
        """Return suspects whose time is over, with the suspected incarnation, by name."""
        if not self._of:
            return []
        return sorted((name, s.incarnation) for name, s in self._of.items() if now >= self._deadline(s, members))

    def due_at(self, members: int) -> float:
        """Return when :meth:`insistent` or :meth:`expired` has a result next."""
        if not self._of:
            return math.inf
        times = [min(self._deadline(s, members), s.insist_at or math.inf) for s in self._of.values()]
        return min(times)

    def _deadline(self, suspicion: Suspicion, members: int) -> float:
        witness = suspicion.insist_at is not None
        return suspicion.since + self.timeout_s(len(suspicion.by), witness=witness, members=members)
