"""Options of the sink ``postgres``, and whether they can be; apart from the sink itself, whose library takes memory."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_node.connectors.endpoints import Endpoint, read_endpoint
from sbon_node.connectors.postgres_table import read_name
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.errors import SbonError

PORTS = {"postgres": 5432, "postgresql": 5432}
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


class PostgresOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the sink ``postgres``."""

    url: Annotated[
        str, Meta(min_length=1, max_length=4096, description="postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=require")
    ]
    table: Annotated[str, Meta(min_length=1, max_length=200, description="TABLE or SCHEMA.TABLE; made where there is none")]
    timeout_s: Annotated[float, Meta(gt=0, le=3600, description="seconds a statement may take")] = 60.0


def check_postgres(options: PostgresOptions, settings: ConnectorSettings) -> Endpoint:
    """Raises ``bad-option``, ``outside-endpoints``."""
    read_name(options.table)
    endpoint = read_endpoint(options.url, PORTS, settings)
    for name, value in endpoint.query.items():
        if name != "sslmode" or value not in SSL_MODES:
            message = f"{name}={value[:40]} is not known" if name == "sslmode" else f"a parameter {name[:40]!r} is not known"
            raise SbonError("bad-option", message, where="options.url", hint=f"sslmode={'|'.join(SSL_MODES)}")
    if not endpoint.path.strip("/") or "/" in endpoint.path.strip("/"):
        hint = "postgres://USER@HOST:PORT/DATABASE"
        raise SbonError("bad-option", "the URL names no database, or more", where="options.url", hint=hint)
    return endpoint
