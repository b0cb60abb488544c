"""Permitted endpoints, checked by name at declaration and by address at each connection.

Services on loopback and link-local addresses, and on the node's own addresses, often trust every client on this machine; this
node's API is among them. Such an address needs an entry of ``connectors.endpoints`` that names exactly it; patterns do not match
it. No entry permits a port of nodes there (``connectors.own_ports``): a sink could command them.

The node resolves a name once per connection and connects to an address that it checked: a second answer changes nothing.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.settings import ConnectorSettings
from sbon_protocol.errors import SbonError

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_HERE = tuple(
    ipaddress.ip_network(network) for network in ("127.0.0.0/8", "169.254.0.0/16", "0.0.0.0/8", "::1/128", "::/128", "fe80::/10")
)
OUTSIDE = "outside-endpoints"


def check_permitted(host: str, port: int, settings: ConnectorSettings, where: str = "options.url") -> None:
    """Check a host by its written name, or by its address if it is an address. Raises ``outside-endpoints``."""
    if not any(_permits(entry, host, port) for entry in settings.endpoints):
        allowed = ", ".join(settings.endpoints) or "none"
        hint = f"it lets them talk to {allowed}; connectors.endpoints names others when it is started"
        raise SbonError(OUTSIDE, f"{host}:{port} is nothing that this node lets others talk to", where=where, hint=hint)
    host_ip = ip_of("127.0.0.1" if host.lower() == "localhost" else host)
    if host_ip is not None and not is_reachable(host, host_ip, port, settings):
        raise too_near(host, port, settings, where)


def is_named(host: str, port: int, settings: ConnectorSettings) -> bool:
    """Return whether an entry names exactly this host.

    The node sends secrets to no other host. Loopback needs such an entry anyway, since patterns do not match it.
    """
    return is_loopback(host) or any(_names(entry, host, ip_of(host), port, whole=False) for entry in settings.endpoints)


def is_loopback(host: str) -> bool:
    ip = ip_of(host)
    return host.lower() == "localhost" or (ip is not None and ip.is_loopback)


def is_same_host(host: str, other: str) -> bool:
    """Compare two hosts: names in any case, addresses in any spelling."""
    return host.lower() == other.lower() or (ip_of(host) is not None and ip_of(host) == ip_of(other))


def too_near(host: str, port: int, settings: ConnectorSettings, where: str) -> SbonError:
    if port in settings.own_ports:
        message = f"{host}:{port} is an address of a node on this machine"
        return SbonError(OUTSIDE, message, where=where, hint="sources and sinks never talk to nodes here; choose another address")
    message = f"{host}:{port} is an address of this machine, or link-local"
    hint = "an entry of connectors.endpoints that names just this host allows it, such as 127.0.0.1:5432 or localhost"
    return SbonError(OUTSIDE, message, where=where, hint=hint)


def is_reachable(host: str, ip: Ip, port: int, settings: ConnectorSettings, own: frozenset[Ip] = frozenset()) -> bool:
    is_local = any(ip in network for network in _HERE) or ip in own or _is_of_this_machine(ip)
    is_local = is_local or host.lower() in {name.lower() for name in settings.own_hosts}
    if is_local and port in settings.own_ports:
        return False
    return not is_local or any(_names(entry, host, ip, port, whole=True) for entry in settings.endpoints)


def _names(entry: str, host: str, ip: Ip | None, port: int, *, whole: bool) -> bool:
    """Return whether the entry names the host itself, as written or by its address.

    With ``whole``, a network of only loopback or link-local addresses names its hosts too.
    """
    entry, fits = _without_port(entry, port)
    if not fits:
        return False
    try:
        network = ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return not set(entry) & set("*?[") and entry.lower() == host.lower()
    if ip is None or ip not in network:
        return False
    return network.num_addresses == 1 or (whole and any(_is_within(network, near) for near in _HERE))


def _is_within(network: Network, other: Network) -> bool:
    if isinstance(network, ipaddress.IPv4Network):
        return isinstance(other, ipaddress.IPv4Network) and network.subnet_of(other)
    return isinstance(other, ipaddress.IPv6Network) and network.subnet_of(other)


def _permits(entry: str, host: str, port: int) -> bool:
    entry, fits = _without_port(entry, port)
    if not fits:
        return False
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return fnmatchcase(host.lower(), entry.lower())


def _without_port(entry: str, port: int) -> tuple[str, bool]:
    """Return the host of an entry, and whether the entry's port, if any, equals ``port``."""
    name, colon, its_port = entry.rpartition(":")
    if colon and its_port.isdigit() and (":" not in name or name.endswith("]")):
        return name.strip("[]"), int(its_port) == port
    return entry.strip("[]"), True


def ip_of(host: str) -> Ip | None:
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return (ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else ip


def _is_of_this_machine(ip: Ip) -> bool:
    """Return whether the address belongs to this machine.

    The system sends from the destination address itself exactly when it owns it. The check sends no packet.
    """
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(ip), 9))
            return ip_of(str(probe.getsockname()[0])) == ip
    except OSError:
        return False


async def checked_addresses(host: str, port: int, settings: ConnectorSettings, where: str = "options.url") -> list[str]:
    """Resolve a host now; return the permitted addresses. Raises ``outside-endpoints``, and :data:`AWAY` if it has none."""
    check_permitted(host, port, settings, where)
    loop = asyncio.get_running_loop()
    try:
        answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SbonError(AWAY, f"the name {host} cannot be resolved: {error}", where=where) from error
    own = await _own(settings)
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


async def _own(settings: ConnectorSettings) -> frozenset[Ip]:
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
