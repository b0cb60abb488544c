"""Follow a query: every row once and in order, over lost connections and restarts of the node.

The follower acknowledges a frame only after its rows have been written out. It recognises a repeated frame by its number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from sbon_protocol.errors import SbonError

from . import states
from .acknowledge import Acknowledger
from .following import Following, Recorded, connection_ended, perhaps_terminal, recorded_end
from .model import Finished, Reader, Rows

Frames = Generator[tuple[Rows, Callable[[], None]], None, Finished]


class Followed(Protocol):
    """A client of a query's consumer."""

    @property
    def api(self) -> str: ...

    def rows(
        self, query_id: str, after: dict[str, int] | None = None, idle: Callable[[], None] = ..., sink: str = ""
    ) -> Iterator[Reader | Rows | Finished]: ...

    def query(self, query_id: str) -> Recorded: ...

    def acknowledge(self, query_id: str, numbers: dict[str, int], reader: str, sink: str = "") -> None: ...


class Listening:
    """A listener for a follower's rows and waits; this base class does nothing."""

    def broken(self) -> None:
        """Rows have come, and have been taken."""

    def lasts(self) -> None:
        """No rows have come, but the node answers."""


@dataclass
class Follower:
    """A follower of a query. ``notice`` reports lost connections to the user.

    It reads the query's first sink, a further ``sink``, or, with ``any``, one of its own where the first has another follower or
    delivers by itself; ``sink`` is the id of that then.
    """

    client: Followed
    query: str
    notice: Callable[[str], None] = lambda text: None
    listening: Listening = field(default_factory=Listening)
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    seen: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    sink: str = ""

    def frames(self) -> Frames:
        """Yield each frame once, with a callback for when its rows are stored; return the query's end.

        Raises :class:`SbonError` if the query cannot be followed, or no longer.
        """
        with Acknowledger(self.client, self.query, self.notice) as acknowledger:
            return (yield from self._frames(acknowledger))

    def _frames(self, acknowledger: Acknowledger) -> Frames:
        state = Following(self.seen)
        while True:
            try:
                for event in self.client.rows(self.query, self.seen, self.listening.lasts, self.sink):
                    if isinstance(event, Reader):
                        acknowledger.reader = event.word
                        continue
                    new = state.is_new(event)
                    if isinstance(event, Finished):
                        return self._with_reason(event)
                    self.sink = acknowledger.sink = event.sink
                    if new:
                        yield event, partial(self._written, event, acknowledger)
                    self.listening.broken()
                error = connection_ended(self.client.api)
            except SbonError as refusal:
                error = refusal
            if perhaps_terminal(error) and (end := self._recorded()) is not None:
                return end
            pause_s = state.pause_s(error, self.now())
            if state.tries == 1:
                self.notice(f"lost the node ({error.message}); trying again")
            self.sleep(pause_s)

    def _written(self, frame: Rows, acknowledger: Acknowledger) -> None:
        self.rows += len(frame.rows)
        self.seen[frame.stream] = frame.number
        acknowledger.written(frame.stream, frame.number)

    def _with_reason(self, end: Finished) -> Finished:
        """Return the end with the reason from the query's record; a closed sink does not know the reason."""
        return (self._recorded() if end.state == states.STOPPED else None) or end

    def _recorded(self) -> Finished | None:
        try:
            return recorded_end(self.client.query(self.query))
        except SbonError:
            return None
