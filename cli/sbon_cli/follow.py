"""Following a query: every row once and in order, over lost connections and restarts of the node.

A frame is acknowledged only after its rows have been written out; what the node sends again is recognised by its number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import msgspec

from sbon_cli.acknowledge import Acknowledger
from sbon_cli.client import Client
from sbon_cli.interrupts import whole
from sbon_node.connectors.delivered import Finished, Rows
from sbon_node.control.report import LIVE, QueryInfo
from sbon_node.errors import SbonError
from sbon_node.query.catalog import called

PATIENCE_S = 600.0
"""How long a node may be out of reach before its follower gives up."""
FIRST_PATIENCE_S = 10.0
"""The same before its first event."""
_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)
_PASSING = frozenset(
    {"node-unreachable", "peer-unreachable", "starting", "stopping", "too-many-connections", "too-many-requests", "not-owner"}
)
"""Refusals that a restart brings with it and that pass."""
_PASSING_ONCE_FOLLOWED = frozenset({"already-followed", "not-followable"})

SILENT_S, SILENT_MOST_S = 9.0, 300.0
"""Without rows, after which the query's record is asked why; each time after twice as long, up to the second. That is when the
node says that it lives, every ``api.keepalive_s`` without rows: the first is a little less than the 10 s these are by default."""

Frames = Generator[tuple[Rows, Callable[[], None]], None, Finished]


class Silence:
    """Tells people why no rows come, as far as the query's record knows: a node that is away, a source that cannot be
    read or has had no rows, an operator that waits."""

    def __init__(self, ask: Callable[[], str], notice: Callable[[str], None], now: Callable[[], float]) -> None:
        self._ask, self._notice, self._now = ask, notice, now
        self.broken()

    def broken(self) -> None:
        """Something has come, and the reader is back from it."""
        self._since, self._ask_after_s, self._told = self._now(), SILENT_S, ""

    def lasts(self) -> None:
        """Nothing has, but the node is there."""
        silent_s = self._now() - self._since
        if silent_s < self._ask_after_s:
            return
        self._ask_after_s = silent_s + min(max(silent_s, SILENT_S), SILENT_MOST_S)
        reason = self._ask()
        if reason and reason != self._told:
            self._notice(f"no rows for {silent_s:.0f} s: {reason}")
        self._told = reason


@dataclass
class Follower:
    """Follows one query at its consumer's node. ``write`` must have stored the rows when it returns; ``notice`` tells people,
    and where there are none nobody is asked why no rows come."""

    client: Client
    query: str
    write: Callable[[Rows], None] = lambda frame: None
    notice: Callable[[str], None] | None = None
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    wanted: Callable[[], bool] = lambda: True
    """Asked now and then, also while there are no rows; it ends with ``abandoned`` where they are not."""
    seen: dict[str, int] = field(default_factory=dict)
    rows: int = 0

    def run(self) -> Finished:
        """Until the query is over; raises :class:`SbonError` where it cannot be followed (any more)."""
        with closing(self.frames()) as frames:
            while True:
                try:
                    frame, written = next(frames)
                except StopIteration as end:
                    over: Finished = end.value
                    return over
                with whole():
                    self.write(frame)
                    written()

    def frames(self) -> Frames:
        """Each frame once, with what to call when its rows are stored; returns how the query ended, and raises as :meth:`run`."""
        with Acknowledger(self.client, self.query, self._tell) as acknowledger:
            return (yield from self._frames(acknowledger))

    def _frames(self, acknowledger: Acknowledger) -> Frames:
        lost_since: float | None = None
        tries = 0
        followed = False
        silence = Silence(self._why_silent, self._tell, self.now)
        idle = silence.lasts if self.notice is not None else lambda: None
        while True:
            try:
                for event in self.client.rows(self.query, self.seen, self.wanted, idle):
                    lost_since, tries, followed = None, 0, True
                    if isinstance(event, Finished):
                        return self._told(event)
                    if event.number > self.seen.get(event.stream, 0):
                        yield event, partial(self._written, event, acknowledger)
                    silence.broken()
                if not self.wanted():
                    raise SbonError("abandoned", "its rows are wanted no more", where=self.query)
                error = SbonError("node-unreachable", f"the node at {self.client.api} ended the connection")
            except SbonError as refusal:
                error = refusal
            if (over := self._over(error)) is not None:
                return over
            passing = _PASSING | _PASSING_ONCE_FOLLOWED if followed else _PASSING
            lost_since = lost_since if lost_since is not None else self.now()
            patience_s = PATIENCE_S if followed else FIRST_PATIENCE_S
            if error.code not in passing or self.now() - lost_since > patience_s:
                raise error
            if tries == 0:
                self._tell(f"lost the node ({error.message}); trying again")
            self.sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
            tries += 1

    def _tell(self, text: str) -> None:
        if self.notice is not None:
            self.notice(text)

    def _why_silent(self) -> str:
        try:
            return why_silent(self.client.query(self.query))
        except SbonError as error:
            return error.message

    def _written(self, frame: Rows, acknowledger: Acknowledger) -> None:
        self.rows += len(frame.rows)
        self.seen[frame.stream] = frame.number
        acknowledger.written(frame.stream, frame.number)

    def _told(self, end: Finished) -> Finished:
        """A sink that is closed knows no more than that: why it was, its query's record says."""
        return (self._recorded() if end.state == "stopped" else None) or end

    def _over(self, error: SbonError) -> Finished | None:
        """A query that ended while nobody listened has no sink left to follow: its record says how."""
        if error.code not in ("not-followable", "query-over", "node-unreachable"):
            return None
        return self._recorded()

    def _recorded(self) -> Finished | None:
        try:
            info = self.client.query(self.query)
        except SbonError:
            return None
        return Finished(state=info.state, reason=info.reason) if info.state not in LIVE else None


def why_silent(info: QueryInfo) -> str:
    """Why a query may give no rows, as far as its record knows; empty where it does not."""
    return info.reason or "; ".join(
        f"source {called(one.source)} has had no rows yet"
        for one in info.sources
        if one.state == "running" and not (one.rows or one.late or one.bad or one.too_large)
    )


def unread(info: QueryInfo) -> list[str]:
    """What the sources of a query had that could not be read, a line for each."""
    return [
        f"{count:,} row{'s' if count != 1 else ''} of {called(one.source)} could not be read since it was attached: "
        f"see sbon stream show {one.source.stream}"
        for one in info.sources
        if (count := one.bad + one.too_large)
    ]


def consumer_client(client: Client, consumer: str) -> Client:
    """A client of the node where the query's rows arrive; raises ``unknown-node``, ``consumer-unreachable``."""
    return client_at(client, consumer, "the rows arrive at", "follow the query")


def client_at(client: Client, consumer: str, why_there: str, what: str) -> Client:
    """A client of another node; raises ``unknown-node``, ``consumer-unreachable`` saying why it is needed, and that one could do
    ``what`` there."""
    if not consumer or client.status().name == consumer:
        return client
    member = next((m for m in client.members() if m.name == consumer), None)
    if member is None:
        raise SbonError("unknown-node", f"{why_there} {consumer!r}, which is not known here", hint="see: sbon members")
    found = Client(f"http://{member.api}")
    try:
        name = found.status().name
        why = f"the node {name} answers there"
    except SbonError as error:
        name, why = "", error.message
        if error.code in ("starting", "stopping"):
            return found
    if name == consumer:
        return found
    reached = f"{what} on the machine of {consumer}, or start that node with --api-bind at an address reached from here "
    raise SbonError(
        "consumer-unreachable",
        f"{why_there} {consumer}, whose API cannot be reached from here at {member.api}: {why}",
        hint=reached + "(the API has no passwords)"
        if member.state == "alive"
        else f"{consumer} is {member.state}: start it again",
    )


def row_line(frame: Rows, row: tuple[object, ...]) -> bytes:
    """One row as a line of NDJSON."""
    return msgspec.json.encode(dict(zip(frame.columns, row, strict=True)))
