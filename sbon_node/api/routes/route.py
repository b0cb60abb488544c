"""A route of the HTTP API: request, answer, and the function between them. The function's annotations define both: the server
reads requests and writes answers by them, and the OpenAPI description is generated from them. So the two cannot differ.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from aiohttp import web

from sbon_node.api.encoding import decode
from sbon_node.base.validation_messages import in_plain_words
from sbon_node.config.api import ApiSettings
from sbon_node.node import Node
from sbon_protocol.errors import SbonError, did_you_mean

Q = TypeVar("Q")
B = TypeVar("B")
E = TypeVar("E", bound=msgspec.Struct)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[Q, B]):
    """A request, checked: ``query`` is a struct of its parameters, ``body`` of its JSON; ``None`` where it has none."""

    node: Node
    settings: ApiSettings
    request: web.Request
    query: Q
    body: B

    def path_value(self, name: str) -> str:
        """The part of the path at ``{name}``."""
        return self.request.match_info[name]


Plain = ApiCall[None, None]


@dataclass(frozen=True, slots=True)
class EventStream(Generic[E]):
    """An answer of server-sent events, after ``first``; with ``position``, those of rows say how far the reader is then."""

    events: AsyncIterator[E]
    position: Mapping[str, int] | None = None
    first: msgspec.Struct | None = None


@dataclass(frozen=True, slots=True)
class WithHeaders(Generic[T]):
    """An answer with additional headers, which the route names."""

    value: T
    headers: Mapping[str, str]


class Route(NamedTuple):
    """``handler`` takes an :class:`ApiCall` and is, or returns, the answer: a value (sent as JSON; 204 for None), one
    :class:`WithHeaders`, an :class:`EventStream`, or a response of its own making. Its docstring is the description."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: Callable[[Any], Any]
    status: int = 200
    refusals: tuple[int, ...] = ()
    """Statuses of refusals, besides those of malformed requests and those of any route."""
    uncut: bool = False
    """Whether it changes something, and so runs to its end if the caller hangs up."""
    always: bool = False
    """Whether it is answered before the node has started, and while it stops."""
    media: str = "application/json"
    """Content type of a response that the handler makes itself."""
    takes: tuple[str, ...] = ()
    """Media types of a body that the handler reads itself."""
    headers: tuple[tuple[str, str], ...] = ()
    """Possible headers of an answer :class:`WithHeaders`, with their meanings."""

    @property
    def name(self) -> str:
        return self.handler.__name__


class Shape(NamedTuple):
    """The request and answer types of a handler's annotations; None for a missing one."""

    query: Any
    body: Any
    reply: Any
    events: Any
    own: bool
    """Whether it makes its response itself."""


def shape_of(route: Route) -> Shape:
    hints = get_type_hints(route.handler, include_extras=True)
    reply = hints.pop("return")
    (call,) = hints.values()
    query, body = (None if argument is type(None) else argument for argument in get_args(call))
    if get_origin(reply) is EventStream:
        return Shape(query, body, None, get_args(reply)[0], own=False)
    if get_origin(reply) is WithHeaders:
        (reply,) = get_args(reply)
    own = isinstance(reply, type) and issubclass(reply, web.StreamResponse)
    return Shape(query, body, None if own or reply is type(None) else reply, None, own)


def query_of(request: web.Request, kind: Any) -> Any:
    """The parameters after the path, checked; raises :class:`SbonError` ``bad-request`` naming the parameter."""
    known = {} if kind is None else {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name in request.query:
        if name not in known:
            hint = did_you_mean(name, known, f"known: {', '.join(known)}" if known else "it takes none")
            raise SbonError("bad-request", f"there is no parameter {name!r}", where=name[:100], hint=hint)
        if len(request.query.getall(name)) > 1:
            raise SbonError("bad-request", "is given more than once", where=name)
    if kind is None:
        return None
    try:
        return msgspec.convert(dict(request.query), kind, strict=False)
    except msgspec.ValidationError as error:
        field, message = in_plain_words(error, kind)
        raise SbonError("bad-request", message, where=field, hint="see docs/api.md") from error


async def body_of(request: web.Request, kind: Any, within_s: float) -> Any:
    """The body, checked. Asking for JSON by name keeps a browser's plain forms out."""
    if kind is None:
        return None
    if request.content_type != "application/json":
        raise SbonError("not-json", f"the body is {request.content_type}", where="Content-Type", hint="send application/json")
    try:
        async with asyncio.timeout(within_s):
            body = await request.read()
    except TimeoutError as error:
        message = f"the body did not come within {within_s:g} s"
        raise SbonError("body-too-slow", message, where="body", hint="api.body_s sets the limit") from error
    return decode(body, kind)
