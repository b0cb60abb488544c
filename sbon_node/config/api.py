"""Bounds of the HTTP API."""

from typing import Annotated

import msgspec
from msgspec import Meta


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on requests to this node."""

    max_body_bytes: Annotated[int, Meta(ge=1024, le=2**30)] = 1024 * 1024
    """largest request body in bytes; larger ones are refused; raise it for huge queries"""
    max_connections: Annotated[int, Meta(ge=1, le=65_536)] = 256
    """open connections, one per follower and per browser; one more replaces one that waits for a request, or gets the hint to
    retry"""
    max_connections_per_address: Annotated[int, Meta(ge=1, le=65_536)] = 128
    """open connections of one client address; one more replaces one that waits for a request, or gets the hint to retry;
    raise it if many clients share an address, as behind a proxy"""
    header_s: Annotated[float, Meta(gt=0, le=600)] = 5.0
    """seconds in which the headers of a request must arrive, else the connection is closed"""
    body_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """seconds in which the JSON body of a request must arrive; raise it for slow uplinks"""
    hosts: Annotated[tuple[str, ...], Meta(max_length=256)] = ()
    """further host names by which this API may be called, patterns too (*.example.org); addresses, localhost and the names in
    node.bind, advertise, api_bind and api_advertise always may; others are refused, because a web page could control the node
    through a name of its own"""
    keepalive_s: Annotated[float, Meta(gt=0, le=30)] = 10.0
    """seconds of silence on an event stream after which a comment shows it is alive"""
    requests_per_s: Annotated[float, Meta(gt=0, le=1e6)] = 500.0
    """requests a second that one client address may make in the long run; more get the hint to retry"""
    request_burst: Annotated[int, Meta(ge=1, le=1_000_000)] = 2000
    """requests that one client address may make at once, before the rate counts"""
    event_queue: Annotated[int, Meta(ge=10, le=1_000_000)] = 1000
    """events that wait for one slow listener of /v1/events; further ones are counted as lost"""
    idle_s: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    """seconds an idle connection is kept open"""
    shutdown_s: Annotated[float, Meta(gt=0, le=600)] = 5.0
    """seconds that requests under way are given when the node stops"""
