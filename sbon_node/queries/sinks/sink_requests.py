"""Users' requests for further sinks: any node takes them, and passes them on to a node that keeps the query's record."""

from __future__ import annotations

import msgspec

from sbon_node.connectors.access.secrets import check_no_secrets
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.registry import check_sink
from sbon_node.context import Context
from sbon_node.hosting.components import new_claim
from sbon_node.ownership.acceptors import in_turn
from sbon_node.queries.describing.lookup import Kept, QueryLookup
from sbon_node.queries.sinks.further_sinks import OPENING_CALLS
from sbon_node.queries.submitting.planning import Planning
from sbon_protocol.api.queries import SinkInfo, SinkRequest
from sbon_protocol.calls import AddQuerySink, QuerySink, RemoveQuerySink
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError

PASSES_ON = frozenset({"peer-unreachable", "node-away", "unknown-node", "record-unknown"})
"""Codes of a node after which another one that keeps the record is asked."""


class SinkRequests:
    """Adds sinks to queries of the cluster, and removes them."""

    def __init__(self, context: Context, lookup: QueryLookup, planning: Planning, settings: ConnectorSettings) -> None:
        self._context, self._lookup, self._planning, self._settings = context, lookup, planning, settings

    async def add(self, query: str, request: SinkRequest) -> SinkInfo:
        """Add a sink to a query, by uid or name; return it once it is open. A refusal leaves nothing behind.

        Raises ``query-over``, ``too-many-sinks``, ``not-retained``, and as a submission with that sink does.
        """
        self._context.drained.check()
        request.check()
        check_no_secrets(request.sink.options)
        consumer = self._planning.consumer(request.consumer)
        if consumer == self._context.name:
            check_sink(request.sink.kind, request.sink.options, self._settings)
        asked = msgspec.structs.replace(request, consumer=consumer)
        kept = await self._lookup.keepers(query)
        return await self._first(kept, AddQuerySink(query=kept.uid, request=asked, claim=new_claim(self._context.rng)))

    async def remove(self, query: str, sink: str, claim: str = "") -> SinkInfo:
        """Remove a further sink from a query; return its last state. Raises ``unknown-sink``, ``bad-sink``."""
        kept = await self._lookup.keepers(query)
        return await self._first(kept, RemoveQuerySink(query=kept.uid, sink=sink, claim=claim))

    async def _first(self, kept: Kept, call: AddQuerySink | RemoveQuerySink) -> SinkInfo:
        """Return the answer of the first node that gives one; a repeated call does no harm."""
        timeout_s = self._context.settings.call_timeout_s * (OPENING_CALLS + 2)

        async def ask(node: str) -> SinkInfo:
            answer = await self._context.ask(node, call, QuerySink, timeout_s=timeout_s)
            try:
                info: SinkInfo = decode_record(answer.sink, SinkInfo)
            except ProtocolError as error:
                raise SbonError("bad-answer", str(error), where=node, hint="do all nodes run the same version?") from error
            return info

        return await in_turn(self._context, kept.nodes, ask, is_final=lambda error: error.code not in PASSES_ON)
