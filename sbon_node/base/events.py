"""Events of a node, published to its listeners. Pure; without listeners, events are not even created.

Events are published once, in order. The newest, except log lines, are kept for later listeners that request them. Each listener
has its own queue, and receives the number of events lost because it was too slow.
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import Literal, Protocol

import msgspec

Kind = Literal["membership", "placement", "queries", "logs"]
Level = Literal["debug", "info", "warning", "error"]

LEVELS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    node: str
    """The node that publishes it."""
    at_ms: int
    """Milliseconds since 1970, by that node's clock."""


class Listening(_Event, frozen=True, kw_only=True, tag="listening"):
    """The first event: all of these kinds follow from now on."""

    kinds: tuple[Kind, ...]
    level: Level


class MemberChanged(_Event, frozen=True, kw_only=True, tag="membership"):
    """A change of another node, as this node sees it.

    ``joined``, ``suspected``, ``died``, ``went-away``, ``returned``, ``left``; ``updated`` if it refutes a suspicion or publishes
    new metadata.
    """

    member: str
    change: str
    state: str
    """``alive``, ``suspect``, ``away``, ``dead`` or ``left``."""


class OperatorChanged(_Event, frozen=True, kw_only=True, tag="placement"):
    """A change of an operator.

    The query's leader reports ``placed`` and ``re-placed``. The engine of its host reports its state: ``starting``, ``running``,
    ``stopped``, ``failed``; ``ended`` once its host has removed it. The host from which it moves reports ``moving`` (to
    ``target``), ``moved`` once the target is its host, or ``move-given-up``.
    """

    query: str
    operator: str
    change: str
    host: str
    was: str = ""
    """The previous host of a re-placed or moved operator."""
    target: str = ""
    """The node to which it moves, or would have moved."""
    strategy: str = ""
    reason: str = ""


class MoveDecided(_Event, frozen=True, kw_only=True, tag="decision"):
    """A host's decision about the place of an operator: it ``moves`` to ``target``, or ``stays``; equal ones in a row come once.

    ``usage`` of its links here, and ``usage_there``, are in bytes in transit; None if no other host was looked for.
    """

    query: str
    operator: str
    verdict: str
    code: str
    reason: str
    target: str = ""
    usage: float | None = None
    usage_there: float | None = None
    cost: float | None = None
    probes: int = 0


class QueryChanged(_Event, frozen=True, kw_only=True, tag="queries"):
    """A change of a query whose record this node holds.

    ``placing``, ``running``, ``finished``, ``stopped`` or ``failed``; ``refused`` if its submission was undone.
    """

    query: str
    state: str
    was: str = ""
    consumer: str
    reason: str = ""


class LogLine(_Event, frozen=True, kw_only=True, tag="logs"):
    """A line of the node's log, written or only requested by a listener."""

    level: str
    message: str
    fields: dict[str, str | int | float | bool | None] = {}


class Lost(_Event, frozen=True, kw_only=True, tag="lost"):
    """Number of events that arrived while the listener's queue was full."""

    count: int


NodeEvent = Listening | MemberChanged | OperatorChanged | MoveDecided | QueryChanged | LogLine | Lost


class Made(Protocol):
    """Creates an event; mostly a ``partial`` of its class."""

    def __call__(self, *, node: str, at_ms: int) -> NodeEvent: ...


class Listener:
    """A bounded queue of events for a listener. ``wake`` is called when an event is available, and returns at once."""

    def __init__(
        self, kinds: Collection[Kind], level: Level, limit: int, wake: Callable[[], None], lost: Callable[[int], Lost]
    ) -> None:
        self.kinds, self.least = frozenset(kinds), LEVELS[level]
        self._limit, self._wake, self._loss_event = limit, wake, lost
        self._events: deque[NodeEvent] = deque()
        self._lost = 0

    def offer(self, event: NodeEvent) -> None:
        """Add an event; count it as lost if the queue is full."""
        if isinstance(event, LogLine) and LEVELS.get(event.level, 0) < self.least:
            return
        if len(self._events) >= self._limit:
            self._lost += 1
            return
        if self._lost:
            self._events.append(self._loss_event(self._lost))
            self._lost = 0
        self._events.append(event)
        self._wake()

    def take(self) -> NodeEvent | None:
        """Remove and return the oldest event; None if there is none."""
        if self._events:
            return self._events.popleft()
        if self._lost:
            count, self._lost = self._lost, 0
            return self._loss_event(count)
        return None


class Bus:
    """A node's events, for a single thread: other threads must pass their events to it first."""

    def __init__(self, node: str, wall_ms: Callable[[], int], keep: int = 0) -> None:
        """Create a bus that keeps at most ``keep`` events, and no log lines."""
        self._node, self._wall_ms = node, wall_ms
        self._kept: deque[tuple[Kind, NodeEvent]] = deque(maxlen=keep)
        self._listeners: tuple[Listener, ...] = ()
        self._on_listeners: Callable[[], None] = lambda: None

    def watch_listeners(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever a listener begins or stops to listen; one caller at a time."""
        self._on_listeners = changed

    def wanted(self, kind: Kind) -> bool:
        return any(kind in listener.kinds for listener in self._listeners)

    @property
    def least_level(self) -> int:
        """Return the lowest log level with a listener; above every level if there is none."""
        return min((x.least for x in self._listeners if "logs" in x.kinds), default=max(LEVELS.values()) + 1)

    def publish(self, kind: Kind, made: Made) -> None:
        """Publish the event that ``made`` creates to listeners of ``kind``; without listeners, do not create it."""
        keeps = kind != "logs" and self._kept.maxlen
        if not self._listeners and not keeps:
            return
        listening = [listener for listener in self._listeners if kind in listener.kinds]
        if listening or keeps:
            event = made(node=self._node, at_ms=self._wall_ms())
            if keeps:
                self._kept.append((kind, event))
            for listener in listening:
                listener.offer(event)

    def listen(
        self, kinds: Collection[Kind], *, level: Level = "info", limit: int, wake: Callable[[], None], past: int = 0
    ) -> Listener:
        """Add a listener to these kinds; pass it to :meth:`forget` at the end.

        At most ``limit`` events wait for the listener. Its first event is :class:`Listening`, then follow the last ``past`` kept
        events of these kinds.
        """

        def lost(count: int) -> Lost:
            return Lost(node=self._node, at_ms=self._wall_ms(), count=count)

        listener = Listener(kinds, level, limit, wake, lost)
        self._listeners = (*self._listeners, listener)
        listener.offer(Listening(node=self._node, at_ms=self._wall_ms(), kinds=tuple(sorted(kinds)), level=level))
        kept = [event for kind, event in self._kept if kind in listener.kinds]
        for event in kept[-min(past, limit - 1) :] if past and limit > 1 else ():
            listener.offer(event)
        self._on_listeners()
        return listener

    def forget(self, listener: Listener) -> None:
        self._listeners = tuple(other for other in self._listeners if other is not listener)
        self._on_listeners()
