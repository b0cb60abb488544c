"""Addresses for connections: each connection resolves the host once and checks the result."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

from sbon_node.connectors.access.permitted import Ip, check_permitted, ip_of, is_reachable, too_near
from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.settings import ConnectorSettings
from sbon_protocol.errors import SbonError


async def checked_addresses(host: str, port: int, settings: ConnectorSettings, where: str = "options.url") -> list[str]:
    """Resolve a host now and return the permitted addresses.

    Raises ``outside-endpoints`` if all addresses are refused, and :data:`AWAY` if the host has none.
    """
    check_permitted(host, port, settings, where)
    loop = asyncio.get_running_loop()
    try:
        answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SbonError(AWAY, f"the name {host} cannot be resolved: {error}", where=where) from error
    own = await _own(settings, host)
    addresses = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
    allowed = [
        address for address in addresses if (ip := ip_of(address)) is not None and is_reachable(host, ip, port, settings, own)
    ]
    if not allowed:
        raise too_near(host, port, settings, where)
    return allowed


class PinnedLoop:
    """An event loop that connects to ``addresses`` for any requested host. TLS alone uses the host's name."""

    def __init__(self, loop: asyncio.AbstractEventLoop, addresses: Sequence[str]) -> None:
        self._loop, self._addresses = loop, addresses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, factory: Any, host: str, port: int, **more: Any) -> Any:
        failed: OSError = OSError("no address")
        for address in self._addresses:
            try:
                return await self._loop.create_connection(factory, address, port, **more)
            except OSError as error:
                failed = error
        raise failed


async def _own(settings: ConnectorSettings, host: str) -> frozenset[Ip]:
    """Return the addresses of the names under which this node is announced."""
    own: set[Ip] = set()
    for name in settings.own_hosts:
        ip = ip_of(name)
        if ip is None:
            try:
                answers = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError):
                continue
            own.update(address for entry in answers if (address := ip_of(str(entry[4][0]))) is not None)
        else:
            own.add(ip)
    return frozenset(own)
