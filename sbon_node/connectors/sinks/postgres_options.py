"""Options of the sink ``postgres`` and their checks, apart from the sink, whose library takes memory."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_node.connectors.access.endpoints import Endpoint, has_secret_channel, no_cleartext, read_endpoint
from sbon_node.connectors.access.permitted import is_named
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.postgres_table import read_name
from sbon_protocol.errors import SbonError

PORTS = {"postgres": 5432, "postgresql": 5432}
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


class PostgresOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the sink ``postgres``."""

    url: Annotated[str, Meta(min_length=1, max_length=4096)]
    """postgres://USER@HOST:PORT/DATABASE?sslmode=require"""
    password: Annotated[str, Meta(max_length=256)] = ""
    """of the user: env:SBON_SECRET_NAME or file:NAME, read by the node that connects"""
    table: Annotated[str, Meta(min_length=1, max_length=200)]
    """TABLE or SCHEMA.TABLE; made where there is none"""
    timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    """seconds a statement may take"""


def check_postgres(options: PostgresOptions, settings: ConnectorSettings) -> Endpoint:
    """Check the options; raise ``bad-option``, ``outside-endpoints``."""
    read_name(options.table)
    endpoint = read_endpoint(options.url, PORTS, settings, password=options.password)
    for name, value in endpoint.query.items():
        if name != "sslmode" or value not in SSL_MODES:
            message = f"{name}={value[:40]} is not known" if name == "sslmode" else f"a parameter {name[:40]!r} is not known"
            raise SbonError("bad-option", message, where="options.url", hint=f"sslmode={'|'.join(SSL_MODES)}")
    if not endpoint.path.strip("/") or "/" in endpoint.path.strip("/"):
        hint = "postgres://USER@HOST:PORT/DATABASE"
        raise SbonError("bad-option", "the URL names no database, or more", where="options.url", hint=hint)
    in_the_clear = endpoint.query.get("sslmode") in ("disable", "allow") and may_have_password(endpoint, settings)
    if in_the_clear and not has_secret_channel(endpoint.host, endpoint.port, settings):
        raise no_cleartext("options.url", "set sslmode=require, or name the host in connectors.cleartext")
    return endpoint


def may_have_password(endpoint: Endpoint, settings: ConnectorSettings) -> bool:
    """Return whether a password may be sent.

    It is the endpoint's own, or that of the environment, which goes only to hosts named in the configuration.
    """
    return bool(endpoint.password) or is_named(endpoint.host, endpoint.port, settings)


def ssl_mode(endpoint: Endpoint, settings: ConnectorSettings) -> str:
    """Return the requested TLS mode. TLS is required where a password would otherwise travel in the clear."""
    mode = endpoint.query.get("sslmode", "prefer")
    open_channel = has_secret_channel(endpoint.host, endpoint.port, settings) or not may_have_password(endpoint, settings)
    return "require" if mode == "prefer" and not open_channel else mode
