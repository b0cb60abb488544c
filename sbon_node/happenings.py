"""What happens at a node, told to whoever listens: a bus of events. Pure; while nobody listens, nothing is even put into words.

Events are told once, in order, and not kept: a listener that comes back has missed what happened meanwhile. Each listener has a
queue of its own, and is told in its place how much it was too slow for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Literal, Protocol

import msgspec

Kind = Literal["membership", "placement", "queries", "logs"]
Level = Literal["debug", "info", "warning", "error"]

LEVELS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    node: str
    """Who tells it."""
    at_ms: int
    """Milliseconds since 1970, by that node's clock."""


class Listening(_Event, frozen=True, kw_only=True, tag="listening"):
    """The first event: from now on all of these kinds are told."""

    kinds: tuple[Kind, ...]
    level: Level


class MemberChanged(_Event, frozen=True, kw_only=True, tag="membership"):
    """Another node, as this one sees it: ``joined``, ``suspected``, ``died``, ``went-away``, ``returned``, ``left``; ``updated``
    where it refutes a suspicion or describes itself anew."""

    member: str
    change: str
    state: str
    """``alive``, ``suspect``, ``away``, ``dead`` or ``left``."""


class OperatorChanged(_Event, frozen=True, kw_only=True, tag="placement"):
    """An operator was ``placed`` or ``re-placed`` (told by the holder of the query's record), or the engine of its host tells its
    state: ``starting``, ``running``, ``stopped``, ``failed``; ``ended`` once its host has forgotten it."""

    query: str
    operator: str
    change: str
    host: str
    was: str = ""
    """The host before, of one that was re-placed."""
    strategy: str = ""
    reason: str = ""


class QueryChanged(_Event, frozen=True, kw_only=True, tag="queries"):
    """A query whose record this node holds: ``placing``, ``running``, ``finished``, ``stopped`` or ``failed``; ``refused`` where
    its submission was undone."""

    query: str
    state: str
    was: str = ""
    consumer: str
    reason: str = ""


class LogLine(_Event, frozen=True, kw_only=True, tag="logs"):
    """A line of the node's log, whether it was written or only asked for here."""

    level: str
    message: str
    fields: dict[str, str | int | float | bool | None] = {}


class Lost(_Event, frozen=True, kw_only=True, tag="lost"):
    """So many events came here while the listener's queue was full."""

    count: int


Happening = Listening | MemberChanged | OperatorChanged | QueryChanged | LogLine | Lost


class Made(Protocol):
    """Makes an event; mostly a ``partial`` of its class."""

    def __call__(self, *, node: str, at_ms: int) -> Happening: ...


class Listener:
    """A bounded queue of events for one who takes them; ``wake`` is called when there is one to take, and returns at once."""

    def __init__(
        self, kinds: Collection[Kind], level: Level, limit: int, wake: Callable[[], None], told: Callable[[int], Lost]
    ) -> None:
        self.kinds, self.least = frozenset(kinds), LEVELS[level]
        self._limit, self._wake, self._told = limit, wake, told
        self._events: deque[Happening] = deque()
        self._lost = 0

    def offer(self, event: Happening) -> None:
        """What finds no room is counted."""
        if isinstance(event, LogLine) and LEVELS.get(event.level, 0) < self.least:
            return
        if len(self._events) >= self._limit:
            self._lost += 1
            return
        if self._lost:
            self._events.append(self._told(self._lost))
            self._lost = 0
        self._events.append(event)
        self._wake()

    def take(self) -> Happening | None:
        """The oldest event; None where there is none."""
        if self._events:
            return self._events.popleft()
        if self._lost:
            count, self._lost = self._lost, 0
            return self._told(count)
        return None


class Bus:
    """A node's events. For one thread: those of other threads have to be brought there first."""

    def __init__(self, node: str, wall_ms: Callable[[], int]) -> None:
        self._node, self._wall_ms = node, wall_ms
        self._listeners: tuple[Listener, ...] = ()
        self.on_listeners: Callable[[], None] = lambda: None
        """Is told whenever somebody begins or ceases to listen."""

    def wanted(self, kind: Kind) -> bool:
        return any(kind in listener.kinds for listener in self._listeners)

    @property
    def least_level(self) -> int:
        """Of the log lines somebody listens to; above every level where nobody does."""
        return min((x.least for x in self._listeners if "logs" in x.kinds), default=max(LEVELS.values()) + 1)

    def tell(self, kind: Kind, made: Made) -> None:
        """Tells those who listen to ``kind`` what ``made`` makes; where nobody does, it is not called."""
        if not self._listeners:
            return
        listening = [listener for listener in self._listeners if kind in listener.kinds]
        if listening:
            event = made(node=self._node, at_ms=self._wall_ms())
            for listener in listening:
                listener.offer(event)

    def listen(self, kinds: Collection[Kind], *, level: Level = "info", limit: int, wake: Callable[[], None]) -> Listener:
        """``limit`` events wait for the listener at most; its first is :class:`Listening`. To be given back to :meth:`forget`."""

        def told(count: int) -> Lost:
            return Lost(node=self._node, at_ms=self._wall_ms(), count=count)

        listener = Listener(kinds, level, limit, wake, told)
        self._listeners = (*self._listeners, listener)
        listener.offer(Listening(node=self._node, at_ms=self._wall_ms(), kinds=tuple(sorted(kinds)), level=level))
        self.on_listeners()
        return listener

    def forget(self, listener: Listener) -> None:
        self._listeners = tuple(other for other in self._listeners if other is not listener)
        self.on_listeners()
