"""Declarations of streams, and of views: names for queries, which are read in their place when a query is planned."""

import re
from collections.abc import Awaitable, Callable

from sbon_node.connectors.sources.result import check_not_result, query_of
from sbon_node.model.schema import check_stream
from sbon_node.ownership.catalogue import Catalogue
from sbon_node.planning.sql.syntax.lexical import check_name
from sbon_node.queries.submitting.planning import Planning
from sbon_protocol.api.catalogue import StreamDeclaration, ViewDeclaration
from sbon_protocol.api.queries import QuerySpec
from sbon_protocol.errors import SbonError

CheckUnread = Callable[[str], Awaitable[None]]
"""Raises ``stream-in-use`` while a query reads the stream."""
OVER = frozenset({"unknown-query", "query-over", "record-unknown"})
"""Codes of a query of which nothing is left to stop."""
StopQuery = Callable[[str], Awaitable[object]]


class Declarations:
    """Declares streams and views in the catalogue, drops them, and detaches sources."""

    def __init__(self, planning: Planning, catalogue: Catalogue, check_unread: CheckUnread, stop: StopQuery) -> None:
        self._planning, self._catalogue, self._check_unread, self._stop = planning, catalogue, check_unread, stop

    async def create_stream(self, declaration: StreamDeclaration) -> None:
        """Declare a stream; raise ``bad-schema``, ``bad-name``, ``stream-exists``, ``too-many-streams`` and others."""
        if declaration.sql:
            raise SbonError("bad-request", "a stream has no SQL", where="sql", hint="create a view: POST /v1/views")
        check_stream(declaration)
        check_name(declaration.name)
        await self._catalogue.create(declaration)

    async def create_view(self, view: ViewDeclaration) -> None:
        """Plan the view's query, for its columns, and declare it. Raises as a submission of the query, and ``stream-exists``.

        A view that it replaces stays until then, and is no stream that the query may read. Raises ``not-a-view``, or
        ``stream-in-use`` if another view reads it.
        """
        check_name(view.name)
        self._catalogue.check_new(view.name, replace=view.replace)
        if view.name in self._catalogue.entries:
            await self._check_in_no_view(view.name)
        plan = await self._planning.plan(QuerySpec(sql=view.sql), view.name, without=view.name)
        declaration = StreamDeclaration(
            name=view.name, schema=plan.schema, event_time=plan.event_time, comment=view.comment, sql=view.sql.strip()
        )
        check_stream(declaration)
        await self._catalogue.create(declaration, replace=view.replace)

    async def detach(self, stream: str, source: str) -> None:
        """Take a source away; raise ``unknown-stream``, ``unknown-source``, ``stream-in-use``, ``is-a-result``."""
        check_not_result(self._catalogue.entry(stream))
        await self._check_unread(stream)
        await self._catalogue.detach(stream, source)

    async def drop(self, name: str) -> None:
        """Drop a stream or view, and end the query whose result it is; raise ``unknown-stream``, ``stream-in-use``."""
        entry = self._catalogue.entry(name)
        await self._check_in_no_view(name)
        await self._check_unread(name)
        for source in entry.sources:
            if query := query_of(source):
                try:
                    await self._stop(query)
                except SbonError as error:
                    if error.code not in OVER:
                        raise
        if name in self._catalogue.entries:
            await self._catalogue.drop(name)

    async def _check_in_no_view(self, name: str) -> None:
        named = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)
        texts = {view: entry.declaration.sql for view, entry in self._catalogue.entries.items() if view != name}
        readers = [view for view, sql in sorted(texts.items()) if named.search(sql) and await self._planning.reads(sql, name)]
        if readers:
            views = f"view{'s' if len(readers) > 1 else ''} {', '.join(readers)}"
            raise SbonError("stream-in-use", f"{name} is read by the {views}", where="stream", hint="drop them first")
