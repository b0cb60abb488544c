"""Knobs of the network package."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

LocalUsers = Literal["any", "own"]

KIB = 1024
MIB = 1024 * KIB


class NetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of datagrams, connections and requests between nodes."""

    connect_timeout_s: Annotated[float, Meta(gt=0, le=120)] = 5.0
    """wait for a connection and its handshake; seconds; raise it on very slow links"""
    call_timeout_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """wait for the answer to a request, if the caller sets no other limit; seconds"""
    max_connections: Annotated[int, Meta(ge=1, le=65_536)] = 1024
    """connections accepted at once, and kept to others; more are closed unanswered"""
    max_connections_per_address: Annotated[int, Meta(ge=1, le=65_536)] = 256
    """of these, connections accepted from one address; more are closed unanswered; raise it if many nodes share an address"""
    max_requests: Annotated[int, Meta(ge=1, le=4096)] = 32
    """requests of one connection served at once; the peer waits with more"""
    idle_s: Annotated[float, Meta(gt=0, le=86_400)] = 300.0
    """a kept connection without requests is closed after this; seconds"""
    dead_after_s: Annotated[float, Meta(ge=4, le=3600)] = 20.0
    """a connection counts as lost if its other side acknowledges nothing for this time; seconds; raise it for unstable links"""
    linger_s: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """time for which a closed connection still delivers written bytes; seconds"""
    write_buffer_bytes: Annotated[int, Meta(ge=64 * KIB, le=2**30)] = MIB
    """bytes queued on a connection above which its writer waits"""
    read_buffer_bytes: Annotated[int, Meta(ge=4 * KIB, le=2**30)] = 256 * KIB
    """bytes taken from a connection ahead of its reader; memory each one may cost"""
    datagram_buffer_bytes: Annotated[int, Meta(ge=1200, le=2**30)] = 256 * KIB
    """bytes of datagrams waiting for the system to send them; more are dropped, counted"""
    max_names: Annotated[int, Meta(ge=1, le=1_000_000)] = 4096
    """host names of peers whose IP address is remembered; one for each is enough"""
    local_users: LocalUsers = "any"
    """whose TCP connections are accepted, of peers and of the API: `any`, or `own`, those of processes of this machine that
    belong to the node's own user or to root; clusters of one machine have `own`"""
    emulated_flight_bytes: Annotated[int, Meta(ge=64 * KIB, le=2**34)] = 16 * MIB
    """bytes an emulated wide area holds back on one connection, and of datagrams in all; at least bandwidth x delay, or it
    becomes the bottleneck"""
