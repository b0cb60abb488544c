"""Profiles of the strategies in words, for ``sbon explain placement`` and docs/placement.md, which a test compares."""

from __future__ import annotations

import msgspec


class Profile(msgspec.Struct, frozen=True):
    """A strategy in words: its knowledge, its messages, how its queries adapt, and the loss if a node dies meanwhile."""

    knows: str
    sends: str
    adapts: str
    lost: str


NOTHING_SENT = "a probe to each host"
KNOWN = "the latencies between all nodes, as far as known, else by coordinates"
ENDS = "the query's ends and rates"

BY_HOSTS = "local, or full: also placed again by the strategy"
NOT_FULL = "local; full places it again by chance, and moves only if that pays"

REFUSED = "a dead host refuses, and the query is placed again without it"
