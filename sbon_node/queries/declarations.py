"""Declarations of streams, and of views: names for queries, which are read in their place when a query is planned."""

from __future__ import annotations

from sbon_node.catalogue.catalogue import Catalogue
from sbon_node.errors import SbonError
from sbon_node.model.catalogue import StreamDeclaration, ViewDeclaration
from sbon_node.model.queries import QuerySpec
from sbon_node.model.schema import check_stream
from sbon_node.queries.planning import Planning
from sbon_node.sql.stream_names import check_name


class Declarations:
    """Declares streams and views in the catalogue."""

    def __init__(self, planning: Planning, catalogue: Catalogue) -> None:
        self._planning, self._catalogue = planning, catalogue

    async def create_stream(self, declaration: StreamDeclaration) -> None:
        """Declare a stream; raise ``bad-schema``, ``bad-name``, ``stream-exists``, ``too-many-streams`` and others."""
        if declaration.sql:
            raise SbonError("bad-request", "a stream has no SQL", where="sql", hint="create a view: POST /v1/views")
        check_stream(declaration)
        check_name(declaration.name)
        await self._catalogue.create(declaration)

    async def create_view(self, view: ViewDeclaration) -> None:
        """Plan the view's query, for its columns, and declare it. Raises as a submission of the query, and ``stream-exists``."""
        check_name(view.name)
        self._catalogue.check_new(view.name)
        plan = await self._planning.plan(QuerySpec(sql=view.sql), view.name)
        declaration = StreamDeclaration(
            name=view.name, schema=plan.schema, event_time=plan.event_time, comment=view.comment, sql=view.sql.strip()
        )
        check_stream(declaration)
        await self._catalogue.create(declaration)
