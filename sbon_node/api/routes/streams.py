"""Routes about streams and their sources."""

from collections.abc import AsyncIterator

from aiohttp import web

from sbon_node.api.routes.bodies import PushQuery
from sbon_node.api.routes.route import ApiCall, Plain, Route
from sbon_node.connectors.sources.http import MEDIA_TYPES
from sbon_node.connectors.sources.push import Post
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration, ViewDeclaration
from sbon_protocol.api.streams import Pushed, StreamInfo
from sbon_protocol.errors import SbonError


async def streams(call: Plain) -> list[StreamInfo]:
    """Every stream of the cluster, with its sources."""
    return await call.node.hosting.sources.all()


async def create_stream(call: ApiCall[None, StreamDeclaration]) -> StreamInfo:
    """Declares a stream."""
    await call.node.queries.declarations.create_stream(call.body)
    return await call.node.hosting.sources.describe(call.body.name)


async def create_view(call: ApiCall[None, ViewDeclaration]) -> StreamInfo:
    """Creates a view, a name for the query ``sql``, after planning that. Refused as a submission of it would be."""
    await call.node.queries.declarations.create_view(call.body)
    return await call.node.hosting.sources.describe(call.body.name)


async def stream(call: Plain) -> StreamInfo:
    """A stream, with the states and counts of its sources."""
    return await call.node.hosting.sources.describe(call.path_value("name"))


async def drop_stream(call: Plain) -> None:
    """Drops a stream with its sources and what they keep. Refused with ``stream-in-use`` while a query reads it."""
    await call.node.queries.declarations.drop(call.path_value("name"))


async def attach_source(call: ApiCall[None, SourceDeclaration]) -> StreamInfo:
    """Attaches a source, at the node it names (empty: the one asked)."""
    source, name = call.body, call.path_value("name")
    if source.stream != name:
        raise SbonError("bad-request", f"the body names stream {source.stream!r}, the path {name!r}", where="stream")
    await call.node.hosting.sources.attach(source)
    return await call.node.hosting.sources.describe(name)


async def push_rows(call: ApiCall[PushQuery, None]) -> Pushed:
    """Hands rows to a source of the stream, at whatever node; answered once they are durable. The header Idempotency-Key names
    the post, so that it counts once however often it is made."""
    headers = call.request.headers
    key = headers.get("Idempotency-Key", "").strip()
    # The draft of the header's standard writes a string of structured fields (RFC 8941), most clients a plain word.
    plain = key[1:-1] if len(key) > 1 and key[0] == key[-1] == '"' else key
    post = Post(headers.get("Content-Type", ""), _pieces(call.request), plain)
    return await call.node.hosting.pushes.push(call.path_value("name"), call.query.source, post)


async def _pieces(request: web.Request) -> AsyncIterator[bytes]:
    """Yield the body in pieces; nothing is read before a source accepts the post."""
    async for chunk in request.content.iter_any():
        yield chunk


async def detach_source(call: Plain) -> StreamInfo:
    """Detaches a source, and deletes its stored data. Refused with ``stream-in-use`` while a query reads the stream."""
    await call.node.queries.declarations.detach(call.path_value("name"), call.path_value("source"))
    return await call.node.hosting.sources.describe(call.path_value("name"))


ROUTES = (
    Route("GET", "/v1/streams", streams),
    Route("POST", "/v1/streams", create_stream, status=201, uncut=True, refusals=(409,)),
    Route("POST", "/v1/views", create_view, status=201, uncut=True, refusals=(409, 422)),
    Route("GET", "/v1/streams/{name}", stream),
    Route("DELETE", "/v1/streams/{name}", drop_stream, uncut=True, refusals=(409,)),
    Route("POST", "/v1/streams/{name}/sources", attach_source, status=201, uncut=True, refusals=(409,)),
    Route("POST", "/v1/streams/{name}/rows", push_rows, refusals=(408, 421, 422), takes=tuple(MEDIA_TYPES)),
    Route("DELETE", "/v1/streams/{name}/sources/{source}", detach_source, uncut=True, refusals=(409,)),
)
