"""Counters of refused, dropped or broken messages, by kind; and log lines about them, whose rate is limited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from sbon_node.net.traffic import Traffic

log = structlog.get_logger()

MAX_KINDS = 256
WARNINGS_IN_A_PERIOD = 5
PERIOD_S = 10.0
_MAX_FACT_CHARACTERS = 300


class Counters:
    """A node's counters; ``now`` returns monotonic seconds. ``traffic`` counts accepted messages."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.traffic = Traffic()
        self._counts: dict[str, int] = {}
        self._warned: dict[str, tuple[float, int]] = {}

    def count(self, kind: str, by: int = 1) -> None:
        """Count; kinds beyond the bound are counted together as ``other``."""
        if kind not in self._counts and len(self._counts) >= MAX_KINDS:
            kind = "other"
        self._counts[kind] = self._counts.get(kind, 0) + by

    def refuse(self, kind: str, **facts: Any) -> None:
        """Count, and log a warning within the kind's limit for the period. Facts from a peer are cut short."""
        if self.may_log(kind):
            log.warning(kind, total=self._counts[kind], **_cut(facts))

    def note(self, kind: str, **facts: Any) -> None:
        """Count an ordinary event, and log it at level info within the kind's limit for the period."""
        if self.may_log(kind):
            log.info(kind, total=self._counts[kind], **_cut(facts))

    def may_log(self, kind: str) -> bool:
        """Count; return whether this kind has lines left in this period."""
        self.count(kind)
        if kind not in self._counts:
            return False
        now = self._now()
        since, lines = self._warned.get(kind, (now, 0))
        if now - since > PERIOD_S:
            since, lines = now, 0
        self._warned[kind] = (since, lines + 1)
        return lines < WARNINGS_IN_A_PERIOD

    def snapshot(self) -> dict[str, int]:
        return dict(sorted(self._counts.items()))


def _cut(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: fact[:_MAX_FACT_CHARACTERS] if isinstance(fact, str) else fact for name, fact in facts.items()}
