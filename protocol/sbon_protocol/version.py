"""Versions of the wire format. A change that an old reader cannot ignore takes the next number."""

from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Hello

VERSION = 3
OLDEST_VERSION = 3
SHARED_STREAMS = "shared-streams"
"""Capability of a node that serves several subscriptions on one connection."""
CAPABILITIES = (SHARED_STREAMS,)


def negotiate(hello: Hello) -> int:
    """Return the greatest version that both sides speak; raise :class:`ProtocolError` ``version``."""
    version = min(VERSION, hello.version)
    if version < max(OLDEST_VERSION, hello.oldest_version):
        spoken = f"{hello.oldest_version} to {hello.version}"
        raise ProtocolError("version", f"the peer speaks versions {spoken}, this node {OLDEST_VERSION} to {VERSION}")
    return version
