"""Counts of what was refused, dropped or broken, by kind; and warnings that a flood cannot turn into a flood of lines."""

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
    """A node's counts; ``now`` tells monotonic seconds. ``traffic`` is what was not refused."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.traffic = Traffic()
        self._counts: dict[str, int] = {}
        self._warned: dict[str, tuple[float, int]] = {}

    def count(self, kind: str, by: int = 1) -> None:
        """Kinds beyond the bound are counted together as ``other``."""
        if kind not in self._counts and len(self._counts) >= MAX_KINDS:
            kind = "other"
        self._counts[kind] = self._counts.get(kind, 0) + by

    def refuse(self, kind: str, **facts: Any) -> None:
        """Counts, and logs a warning unless this kind has had its share of the period's lines. Facts that come from a peer
        are cut short."""
        self.count(kind)
        if kind not in self._counts:
            return
        now = self._now()
        since, lines = self._warned.get(kind, (now, 0))
        if now - since > PERIOD_S:
            since, lines = now, 0
        self._warned[kind] = (since, lines + 1)
        if lines < WARNINGS_IN_A_PERIOD:
            short = {name: fact[:_MAX_FACT_CHARACTERS] if isinstance(fact, str) else fact for name, fact in facts.items()}
            log.warning(kind, total=self._counts[kind], **short)

    def snapshot(self) -> dict[str, int]:
        return dict(sorted(self._counts.items()))
