"""Checks of host names and origins: a browser lets pages of other sites reach a node in its network.

A page whose own name resolves to this node (DNS rebinding) has an ``Origin`` that equals ``Host``, but this node does not have
that name. An address cannot be rebound, and is always answered.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from sbon_protocol.errors import SbonError

LOCAL = "localhost"
_SHOWN = 200


class HostNames:
    """Host checks; ``names`` are patterns of host names, in which ``*`` matches anything."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(dict.fromkeys(name.lower().rstrip(".") for name in (LOCAL, *names) if name))

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise ``forbidden-host`` for foreign names, ``forbidden-origin`` for pages of other sites."""
        host = headers.get("Host", "")
        if not self._answers_to(_name_of(host)):
            raise SbonError(
                "forbidden-host",
                f"this node is not called {host[:_SHOWN]!r}",
                where="Host",
                hint="use its address, or add the name to api.hosts",
            )
        if headers.get("Sec-Fetch-Site", "").strip().lower() == "cross-site":
            hint = "open the node's page by its address"
            raise SbonError("forbidden-origin", "pages of other sites may not use this API", where="Sec-Fetch-Site", hint=hint)
        origin = headers.get("Origin")
        if origin is not None and _netloc_of(origin) != host.lower():
            raise SbonError("forbidden-origin", f"pages of {origin[:_SHOWN]} may not use this API", where="Origin")

    def _answers_to(self, name: str) -> bool:
        return _is_address(name) or any(fnmatchcase(name, pattern) for pattern in self._names)


def _name_of(host: str) -> str:
    """Return the name in a ``Host`` header, without port, in lower case; empty if malformed."""
    try:
        address = urlsplit(f"//{host}")
        _ = address.port
        name = address.hostname or ""
    except ValueError:
        return ""
    return name.rstrip(".") if address.netloc == host and "@" not in host else ""


def _netloc_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
