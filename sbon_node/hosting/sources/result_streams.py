"""Streams that queries make: declared and attached by the query's sink, at its node."""

from __future__ import annotations

import pyarrow as pa

from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.sinks.results import StreamSinkOptions
from sbon_node.connectors.sources.result import QUERY, ResultSource, query_of
from sbon_node.context import Context
from sbon_node.hosting.sources.host import SourceHost
from sbon_node.model.schema import check_stream
from sbon_node.ownership.catalogue import Catalogue
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.states import source_states
from sbon_protocol.errors import SbonError

LOOKS, LOOK_S = 50, 0.1
"""Looks for a source that is about to be opened, and the time between two."""


class ResultStreams:
    """Implements :class:`sbon_node.connectors.sinks.results.ResultStreams`."""

    def __init__(self, context: Context, catalogue: Catalogue, sources: SourceHost) -> None:
        self._context, self._catalogue, self._sources = context, catalogue, sources

    async def make(self, query: str, options: StreamSinkOptions, schema: Schema) -> None:
        declaration = StreamDeclaration(name=options.stream, schema=schema, event_time=options.event_time)
        check_stream(declaration)
        await self._catalogue.create(declaration)
        await self._attach(query, options.stream)

    async def _attach(self, query: str, stream: str) -> None:
        source = SourceDeclaration(stream=stream, name=QUERY, node=self._context.name, connector=QUERY, options={"query": query})
        await self._catalogue.attach(source)

    async def source(self, query: str, stream: str, schema: Schema) -> ResultSource:
        for _ in range(LOOKS):
            found = self._opened(query, stream, schema)
            if found is not None:
                return found
            await self._context.clock.sleep(LOOK_S)
        raise SbonError(AWAY, "its source is not open yet", where=stream)

    def _opened(self, query: str, stream: str, schema: Schema) -> ResultSource | None:
        declared = self._declared(query, stream)
        if declared is None:
            raise SbonError("sink-lost", f"the stream {stream!r} was dropped", where=query)
        if self._catalogue.entry(stream).declaration.schema != schema:
            raise SbonError("sink-lost", f"another stream {stream!r} was declared at the same time", where=query)
        runner = self._sources.runner(declared.id)
        if runner is None or not isinstance(runner.source, ResultSource):
            return None
        if runner.state == source_states.FAILED:
            raise SbonError("sink-lost", f"the source of the stream {stream!r} has failed: {runner.reason}", where=query)
        if runner.state == source_states.ENDED:
            runner.source.resume(runner.position)
            return runner.source
        return runner.source if runner.source.is_open else None

    def _declared(self, query: str, stream: str) -> SourceDeclaration | None:
        """Return the source of the query's stream; None if there is none."""
        entry = self._catalogue.entries.get(stream)
        return next((one for one in entry.sources if query_of(one) == query), None) if entry else None

    async def drop(self, query: str, stream: str, schema: Schema) -> None:
        if self._declared(query, stream) is None:
            return
        if self._catalogue.entry(stream).declaration.schema == schema:
            await self._catalogue.drop(stream)
        else:
            await self._catalogue.detach(stream, QUERY)

    def end(self, query: str, stream: str, schema: pa.Schema) -> None:
        declared = self._declared(query, stream)
        runner = self._sources.runner(declared.id) if declared is not None else None
        if runner is not None and isinstance(runner.source, ResultSource):
            runner.source.fail(f"the query {query} is over, and its result is not whole", schema)
