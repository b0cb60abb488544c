"""End the components of a query whose record its acceptors have lost with their data directories.

A host does not end them by itself: a missing record is no proof that the query is over. A user's stop is.
"""

from __future__ import annotations

import asyncio

from sbon_node.errors import SbonError
from sbon_node.model.queries import ForeignComponent, QueryInfo
from sbon_node.model.query_ids import name_of
from sbon_node.model.states.lifecycle import LOST
from sbon_node.workflow.context import Context
from sbon_protocol.calls import ComponentsDestroyed, DestroyComponents, ListQueries, QueryRecords
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError


async def end_components(context: Context, query: str) -> QueryInfo:
    """Ask all hosts that answer to end their components of ``query``, a uid or name, whose record this node kept.

    Raises :class:`SbonError` ``unknown-query`` if there are none. A host that does not answer keeps its components until the
    query is stopped again.
    """
    nodes = [member.name for member in context.membership.members() if member.state != "left"]
    listed = await asyncio.gather(*(_components(context, node, query) for node in nodes))
    ended = []
    for node, components in zip(nodes, listed, strict=True):
        for uid in dict.fromkeys(component.query for component in components):
            ids = tuple(component.component for component in components if component.query == uid)
            call = DestroyComponents(query=uid, components=ids)
            await context.ask(node, call, ComponentsDestroyed, timeout_s=context.settings.call_timeout_s * 3)
            ended += [f"{one} at {node}" for one in ids]
    if not ended:
        raise SbonError("unknown-query", f"there is no query {query!r} here", where="query")
    reason = f"its record was lost; ended {', '.join(ended)}"
    return QueryInfo(id=name_of(query), sql="", state=LOST, reason=reason, node=context.name, consumer="")


async def _components(context: Context, node: str, query: str) -> list[ForeignComponent]:
    """Return the components of ``query``, a uid or name, at ``node`` whose record this node kept; none if it does not answer."""
    try:
        answer = await context.ask(node, ListQueries(query=query), QueryRecords, timeout_s=context.settings.component_timeout_s)
        components: list[ForeignComponent] = [decode_record(value, ForeignComponent) for value in answer.components]
    except (SbonError, ProtocolError) as error:
        context.counters.refuse("queries-not-listed", node=node, reason=str(error))
        return []
    return [one for one in components if query in (one.query, name_of(one.query)) and context.name in one.acceptors]
