"""Bounds of the HTTP API."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on requests to this node."""

    max_body_bytes: Annotated[
        int,
        Meta(ge=1024, le=2**30, description="largest request body in bytes; larger ones are refused; raise it for huge queries"),
    ] = 1024 * 1024
    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="open connections, one per follower and per browser; one more replaces one that waits for a request, "
            "or gets the hint to retry",
        ),
    ] = 256
    max_connections_per_address: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="open connections of one client address; one more replaces one that waits for a request, or gets the "
            "hint to retry; raise it if many clients share an address, as behind a proxy",
        ),
    ] = 128
    header_s: Annotated[
        float,
        Meta(gt=0, le=600, description="seconds in which the headers of a request must arrive, else the connection is closed"),
    ] = 5.0
    body_s: Annotated[
        float,
        Meta(gt=0, le=3600, description="seconds in which the JSON body of a request must arrive; raise it for slow uplinks"),
    ] = 30.0
    hosts: Annotated[
        tuple[str, ...],
        Meta(
            max_length=256,
            description="further host names by which this API may be called, patterns too (*.example.org); addresses, "
            "localhost and the names in node.bind, advertise, api_bind and api_advertise always may; others are refused, "
            "because a web page could control the node through a name of its own",
        ),
    ] = ()
    keepalive_s: Annotated[
        float, Meta(gt=0, le=30, description="seconds of silence on an event stream after which a comment shows it is alive")
    ] = 10.0
    requests_per_s: Annotated[
        float,
        Meta(
            gt=0,
            le=1e6,
            description="requests a second that one client address may make in the long run; more get the hint to retry",
        ),
    ] = 500.0
    request_burst: Annotated[
        int, Meta(ge=1, le=1_000_000, description="requests that one client address may make at once, before the rate counts")
    ] = 2000
    event_queue: Annotated[
        int,
        Meta(
            ge=10,
            le=1_000_000,
            description="events that wait for one slow listener of /v1/events; further ones are counted as lost",
        ),
    ] = 1000
    idle_s: Annotated[float, Meta(gt=0, le=3600, description="seconds an idle connection is kept open")] = 60.0
    shutdown_s: Annotated[
        float, Meta(gt=0, le=600, description="seconds that requests under way are given when the node stops")
    ] = 5.0
