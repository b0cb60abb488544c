"""Following a query from the command line: writes its rows, and reports why none come."""

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass

import msgspec

from sbon import SbonError, endpoints, follower, states
from sbon.client import Client
from sbon.follower import Listening
from sbon.model import Finished, QueryInfo, Rows, SinkInfo
from sbon.synchronous import SynchronousTransport, each
from sbon_cli.terminal.interrupts import whole
from sbon_cli.terminal.output import rows_text
from sbon_protocol.api.catalogue import called

ANY_SINK = "any"
"""In place of a sink's id: the first one, or else one of the follower's own."""
STOP_S = 10.0
"""Longest wait in seconds for a node that is to end what this command has begun: the command itself ends then."""
ROWLESS_S, LONGEST_ROWLESS_S = 9.0, 300.0
"""First and longest time in seconds without rows, after which the query's record is asked for the reason; it doubles each time.

The node sends a sign of life every ``api.keepalive_s``, 10 s by default; the first time is a little less."""


class Silence(Listening):
    """Reports why no rows come, from the query's record: a node that is away, a source that cannot be read or has had no rows, an
    operator that waits.
    """

    def __init__(self, ask: Callable[[], str], notice: Callable[[str], None], now: Callable[[], float]) -> None:
        self._ask, self._notice, self._now = ask, notice, now
        self.broken()

    def broken(self) -> None:
        """Rows have come, and the reader has handled them."""
        self._since, self._ask_after_s, self._last_reason = self._now(), ROWLESS_S, ""

    def lasts(self) -> None:
        """No rows have come, but the node answers."""
        silent_s = self._now() - self._since
        if silent_s < self._ask_after_s:
            return
        self._ask_after_s = silent_s + min(max(silent_s, ROWLESS_S), LONGEST_ROWLESS_S)
        reason = self._ask()
        if reason and reason != self._last_reason:
            self._notice(f"no rows for {silent_s:.0f} s: {reason}")
        self._last_reason = reason


@dataclass
class Follower:
    """Follows one query. ``write`` must have stored the rows when it returns; ``notice`` shows the reason
    why no rows come. Without it, nothing is asked.

    It reads the first ``sink`` by default, a further one by its id, or, with ``any``, one of its own if need be, which it removes
    at its end.
    """

    client: Client
    query: str
    write: Callable[[Rows], None] = lambda frame: None
    notice: Callable[[str], None] | None = None
    now: Callable[[], float] = time.monotonic
    sink: str = ""

    def run(self) -> Finished:
        """Follow until the query ends; raise :class:`SbonError` if it cannot be followed, or no longer."""
        following = follower.Follower(SynchronousTransport(self.client), self.query, sink=self.sink)
        if self.notice is not None:
            following.notice = self.notice
            following.listening = Silence(self._silence_reason, self.notice, self.now)
        try:
            with closing(each(following.frames())) as frames:
                for position, (frame, written) in enumerate(frames):
                    if not position and self.sink == ANY_SINK and following.sink and self.notice is not None:
                        self.notice(self._beside(following.sink))
                    with whole():
                        self.write(frame)
                        written()
        finally:
            if self.sink == ANY_SINK and following.sink not in ("", ANY_SINK):
                with suppress(SbonError):  # Its node removes it a while later.
                    self.client.ask(endpoints.remove_sink(self.query, following.sink)._replace(within_s=STOP_S))
        assert following.end is not None
        return following.end

    def _beside(self, sink: str) -> str:
        """Return that other rows than its own go elsewhere, and with which row it begins."""
        try:
            found = next((one for one in self.client.query(self.query).sinks if one.id == sink), None)
        except SbonError:
            found = None
        start = "" if found is None else f", {begins(found)}"
        return f"{self.query} has another reader: followed beside it as {sink}{start}"

    def _silence_reason(self) -> str:
        try:
            return silence_reason(self.client.query(self.query))
        except SbonError as error:
            return error.message


def begins(sink: SinkInfo) -> str:
    """Return with which row of the result a further sink begins."""
    return "from the first row on" if not sink.begins_after else f"after the first {rows_text(sink.begins_after)}"


def silence_reason(info: QueryInfo) -> str:
    """Return why a query may give no rows, by its record; empty if unknown."""
    return info.reason or "; ".join(
        f"source {called(source.source)} has had no rows yet"
        for source in info.sources
        if source.state == states.RUNNING and not (source.rows or source.late or source.bad or source.too_large)
    )


def unread(info: QueryInfo) -> list[str]:
    """Return a line for each source of the query with unreadable rows."""
    return [
        f"{count:,} row{'s' if count != 1 else ''} of {called(source.source)} could not be read since it was attached; "
        f"see sbon stream show {source.source.stream}"
        for source in info.sources
        if (count := source.bad + source.too_large)
    ]


def skipped(info: QueryInfo) -> list[str]:
    """Return a line with the rows that operators skipped (``on_error`` is ``skip``), if any."""
    count = sum(operator.skipped for operator in info.operators)
    rows = "row was" if count == 1 else "rows were"
    return [f"{count:,} {rows} skipped because expressions raised errors; see sbon query show {info.id}"] if count else []


def row_line(frame: Rows, row: tuple[object, ...]) -> bytes:
    """Return a row as a line of NDJSON."""
    return msgspec.json.encode(dict(zip(frame.columns, row, strict=True)))
