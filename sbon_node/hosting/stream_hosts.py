"""Present hosts of the streams that components on this node read: those of the plan, until an operator has moved.

The register of an operator knows its host. A reader asks for it, at the acceptors of its query, when the last known host refuses
or is out of reach; and goes on at the present one with its own position, since frame numbers and lineage move along.
"""

from collections.abc import Iterable

import msgspec
import structlog

from sbon_node.base.store import RecordStore
from sbon_node.context import Context
from sbon_node.net.peers import Expected
from sbon_node.net.transport import Address
from sbon_node.overlay.membership.clocks import ROUNDING_MS
from sbon_node.ownership.acceptors import RecordAcceptors
from sbon_node.ownership.consensus.states import Acceptor
from sbon_node.streams.outbox.outbox import MOVED
from sbon_protocol.api.catalogue import is_source, parts_of
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import ComponentHost, LocateComponent

log = structlog.get_logger()

PATIENCE_S = 5.0
"""Least pause between two questions about a host that does not answer: it usually returns, with all it had. Of one that members
call dead, or away, a backup may have taken the stream over: the question is asked at each attempt."""
_GONE = frozenset({MOVED, "stream-unknown", "fenced"})
"""Refusals by a node that hosts the stream no more."""


class StreamHost:
    """The host of one stream for one reader, at first ``node``."""

    def __init__(
        self, context: Context, records: RecordAcceptors, query: str, stream: str, node: str, acceptors: Iterable[Acceptor]
    ) -> None:
        self._context, self._records = context, records
        self._query, self._stream, self._acceptors = query, stream, tuple(acceptors)
        self.node = node
        self._ask_at_s: float | None = None
        self._is_lost = False

    def locate(self) -> Address:
        if self._is_lost:
            source = parts_of(self._stream)
            reason = f"{source.stream}/{source.name} at {self.node} was detached after the query was planned"
            raise SbonError("source-lost", reason, where=self._stream, hint="submit the query again")
        return self._context.membership.address_of(self.node)

    def expect(self) -> Expected:
        return self._context.membership.expected(self.node)

    def own_time(self, stated_ms: int) -> int:
        """Return the host's time by this node's clock; 0 while the host's clock is unknown."""
        return self._context.membership.clocks.own_ms(stated_ms, self.node)

    @property
    def clock_error_ms(self) -> float | None:
        """The largest error of :meth:`own_time`; None while the host's clock is unknown."""
        if self.node == self._context.name:
            return 0.0
        offset = self._context.membership.clocks.offset(self.node)
        return None if offset is None else offset.error_ms + ROUNDING_MS

    async def search(self, code: str) -> bool:
        """Look for the host after a failure with that code, a source's in the catalogue; return whether there is another."""
        if is_source(self._stream):
            self._is_lost = code == "stream-unknown" and self._records.is_detached(self._stream)
            if self._is_lost:
                return True
            return self._goes_on_at(self._records.node_of(self._stream) or self.node)
        now, is_gone = self._context.clock.now(), code in _GONE or self._context.presence.away(self.node) != ""
        if not is_gone and (self._ask_at_s is None or now < self._ask_at_s):
            self._ask_at_s = now + PATIENCE_S if self._ask_at_s is None else self._ask_at_s
            return False
        self._ask_at_s = now + PATIENCE_S
        try:
            async with self._context.clock.timeout(self._context.settings.component_timeout_s):
                call = LocateComponent(query=self._query, component=self._stream)
                host = await self._records.ask(self._query, self._acceptors, call, ComponentHost)
        except (SbonError, TimeoutError) as error:
            log.info("host-not-found", stream=self._stream, reason=str(error))
            return False
        return self._goes_on_at(host.node)

    def _goes_on_at(self, node: str) -> bool:
        before, self.node = self.node, node
        if before != node:
            log.info("stream-moved", stream=self._stream, before=before, host=node)
        return before != node


class ReadLineages(msgspec.Struct, frozen=True, kw_only=True):
    """Lineages by stream that a component reads, stored before the first frame. They move with its checkpoint or position."""

    by_stream: dict[str, int] = {}


class Lineages:
    """Lineages by component. A component that is removed loses them first, so that a later one of its id starts without."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._known = store.all("lineages", ReadLineages)

    def of(self, component: str, stream: str) -> int:
        """Return the lineage of ``stream`` that the component has read; 0 if it has read none."""
        known = self._known.get(component)
        return known.by_stream.get(stream, 0) if known is not None else 0

    def learn(self, component: str, stream: str, lineage: int) -> None:
        """Store the lineage of ``stream``; raises :class:`SbonError` where the disk is full."""
        known = self._known.get(component, ReadLineages())
        learnt = ReadLineages(by_stream={**known.by_stream, stream: lineage})
        self._store.put("lineages", component, learnt)
        self._known[component] = learnt

    def forget(self, component: str) -> None:
        if component in self._known:
            self._store.delete("lineages", component)
            del self._known[component]
