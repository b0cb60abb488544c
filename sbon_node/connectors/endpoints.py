"""What sources and sinks talk to: a URL that is read, checked against what the node permits, and shown without its password."""

from __future__ import annotations

import ipaddress
import netrc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.errors import SbonError
from sbon_node.hidden import hidden


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL in parts. ``str`` of it has no password."""

    scheme: str
    host: str
    port: int
    path: str
    query: Mapping[str, str]
    user: str = ""
    password: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def read_endpoint(url: str, ports: Mapping[str, int], settings: ConnectorSettings, where: str = "options.url") -> Endpoint:
    """``ports`` are the schemes that may be, with their usual ports. A password that is not in the URL is taken from the node's
    file of passwords, which binds it to a host. Raises :class:`SbonError` ``bad-option``, ``outside-endpoints``."""
    try:
        parts = urlsplit(url)
        port = parts.port or ports.get(parts.scheme, 0)
    except ValueError as error:
        raise SbonError("bad-option", f"no URL: {error}", where=where) from error
    if parts.scheme not in ports or not parts.hostname:
        hint = f"for instance {next(iter(ports))}://HOST:{next(iter(ports.values()))}/..."
        raise SbonError("bad-option", f"no URL of {' or '.join(ports)} with a host", where=where, hint=hint)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if not password:
        user, password = _remembered(settings, parts.hostname, user)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    found = Endpoint(parts.scheme, parts.hostname, port, parts.path, query, user, password)
    check_permitted(found.host, found.port, settings.endpoints, where)
    return found


def check_permitted(host: str, port: int, endpoints: Sequence[str], where: str = "options.url") -> None:
    """Raises ``outside-endpoints`` where no entry permits the host: its name, a pattern of names, or a network its address is in,
    each with a port or without. A name counts as it is written, whatever it leads to."""
    if not any(_permits(entry, host, port) for entry in endpoints):
        raise SbonError(
            "outside-endpoints",
            f"{host}:{port} is nothing that this node lets others talk to",
            where=where,
            hint=f"it lets them talk to {', '.join(endpoints) or 'none'}; connectors.endpoints names others when it is started",
        )


def _permits(entry: str, host: str, port: int) -> bool:
    name, colon, its_port = entry.rpartition(":")
    if colon and its_port.isdigit() and (":" not in name or name.endswith("]")):
        if int(its_port) != port:
            return False
        entry = name
    entry = entry.strip("[]")
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return fnmatchcase(host.lower(), entry.lower())


def _remembered(settings: ConnectorSettings, host: str, user: str) -> tuple[str, str]:
    """User and password for a host in the file of passwords, if it has one for that host and user."""
    if not settings.passwords:
        return user, ""
    try:
        found = netrc.netrc(settings.passwords).hosts.get(host)
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise SbonError("bad-passwords", f"the file of passwords: {reason}", where="connectors.passwords") from error
    except netrc.NetrcParseError as error:
        message = f"the file of passwords cannot be read: {error.msg} in line {error.lineno}"
        raise SbonError("bad-passwords", message, where="connectors.passwords") from error
    if found is None or (user and found[0] != user):
        return user, ""
    return found[0], found[2] or ""


def shown(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as people may see them: without what gives access."""
    return {name: hidden(value, name) for name, value in options.items()}
