"""Rules for following a query, each row once and over lost connections, without the waits. Pure."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from sbon_protocol.errors import SbonError

from .model import Finished, QueryInfo, Rows
from .states import LIVE

PATIENCE_S = 600.0
"""Seconds that a node may be unreachable before the reader of its events gives up."""
FIRST_PATIENCE_S = 10.0
"""The same limit before the first event."""
PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between tries; the last value holds for all further tries."""
ACKNOWLEDGE_PAUSE_S = 0.1
"""Shortest time in seconds between two acknowledgements; the next covers the frames written out meanwhile."""
ACKNOWLEDGE_RETRY_S = 1.0

_PASSING = frozenset(
    {"node-unreachable", "peer-unreachable", "starting", "stopping", "too-many-connections", "too-many-requests", "not-owner"}
)
"""Temporary rejections, due to a restart."""
_PASSING_ONCE_FOLLOWED = frozenset(
    {"already-followed", "consumer-unreachable", "not-followable", "holder-unreachable", "no-majority"}
)
_PERHAPS_TERMINAL = frozenset({"consumer-unreachable", "not-followable", "query-over", "node-unreachable"})


class Reconnection:
    """Reaction of a reader of events to lost connections."""

    def __init__(self) -> None:
        self.tries = 0
        self._lost_since: float | None = None
        self._followed = False

    def heard(self) -> None:
        """An event has come."""
        self._lost_since, self.tries, self._followed = None, 0, True

    def pause_s(self, error: SbonError, now: float) -> float:
        """Return the seconds to wait before the next try; raise the error if there is none."""
        passing = _PASSING | _PASSING_ONCE_FOLLOWED if self._followed else _PASSING
        self._lost_since = self._lost_since if self._lost_since is not None else now
        patience_s = PATIENCE_S if self._followed else FIRST_PATIENCE_S
        # A query that existed may be at the nodes that did not answer; the details name them.
        is_unanswered = self._followed and error.code == "unknown-query" and bool(error.details)
        if not (error.code in passing or is_unanswered) or now - self._lost_since > patience_s:
            raise error
        self.tries += 1
        return PAUSES_S[min(self.tries, len(PAUSES_S)) - 1]


class Following(Reconnection):
    """A follower's record of events, and its reaction to errors."""

    def __init__(self, seen: dict[str, int]) -> None:
        super().__init__()
        self.seen = seen

    def is_new(self, event: Rows | Finished) -> bool:
        """Whether the event is not a repeated frame."""
        self.heard()
        return isinstance(event, Rows) and event.number > self.seen.get(event.stream, 0)


def perhaps_terminal(error: SbonError) -> bool:
    """Whether the query may have ended without a listener; its record answers that."""
    return error.code in _PERHAPS_TERMINAL


def recorded_end(record: QueryInfo) -> Finished | None:
    return Finished(state=record.state, reason=record.reason) if record.state not in LIVE else None


def connection_ended(api: str) -> SbonError:
    return SbonError("node-unreachable", f"the node at {api} ended the connection")


class Unacknowledged:
    """The newest frame number of each stream that is written out but not acknowledged; safe for threads."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._changing = threading.Lock()

    def written(self, stream: str, number: int) -> None:
        """Record that all rows up to frame ``number`` have been written out."""
        with self._changing:
            self.numbers = {**self.numbers, stream: number}

    def sent(self, numbers: Mapping[str, int]) -> None:
        """Record that these numbers have been acknowledged; later numbers stay."""
        with self._changing:
            self.numbers = {stream: number for stream, number in self.numbers.items() if number > numbers.get(stream, 0)}
