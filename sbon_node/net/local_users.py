"""The user at the other end of a TCP connection on this machine, by the kernel's table of sockets.

Only the socket of a living process counts: one that its process has closed is shown as root's.
"""

import ipaddress
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from sbon_node.net.counters import Counters
from sbon_node.net.settings import LocalUsers

log = structlog.get_logger()

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
ROOT = 0
_ESTABLISHED = "01"

End = tuple[str, int]
"""Address and port; an IPv4 address as such, also where a socket of IPv6 has it."""


def user_of(end: End, other: End) -> int | None:
    """Return the uid of the process that holds the ``end`` of a connection; None if none here does."""
    for near, far, state, uid, inode in _sockets():
        if near == end and far == other and state == _ESTABLISHED and inode:
            return uid
    return None


def _sockets() -> Iterator[tuple[End, End, str, int, int]]:
    for table in TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except FileNotFoundError:  # no IPv6
            continue
        for line in lines:
            fields = line.split()
            yield _end(fields[1]), _end(fields[2]), fields[3], int(fields[7]), int(fields[9])


def _end(text: str) -> End:
    """Return an address of the table: words of four bytes in the machine's order, and the port."""
    host, _, port = text.partition(":")
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    return _plain(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))), int(port, 16)


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    return str(getattr(address, "ipv4_mapped", None) or address)


class UserCheck:
    """Says whether an accepted connection may stay, by its transport: any, or those of this user and of root alone."""

    def __init__(self, users: LocalUsers, counters: Counters) -> None:
        self._users, self._counters = users, counters

    def permits(self, transport: Any) -> bool:
        if self._users == "any":
            return True
        ours, theirs = (_socket_end(transport.get_extra_info(name)) for name in ("sockname", "peername"))
        user = user_of(theirs, ours) if theirs is not None and ours is not None else None
        if user in (ROOT, os.getuid()):
            return True
        self._counters.refuse("user-refused", peer=str(theirs), user=user)
        return False


def _socket_end(name: Any) -> End | None:
    return (_plain(ipaddress.ip_address(name[0].partition("%")[0])), int(name[1])) if name else None
