"""Versions of the wire. A change that an old reader cannot ignore takes the next number."""

from __future__ import annotations

from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Hello

VERSION = 1
OLDEST_VERSION = 1


def negotiate(hello: Hello) -> int:
    """The greatest version both sides speak; raises :class:`ProtocolError` ``version``."""
    version = min(VERSION, hello.version)
    if version < max(OLDEST_VERSION, hello.oldest_version):
        spoken = f"{hello.oldest_version} to {hello.version}"
        raise ProtocolError("version", f"the peer speaks versions {spoken}, this node {OLDEST_VERSION} to {VERSION}")
    return version
