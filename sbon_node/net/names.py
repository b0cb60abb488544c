"""IP addresses of peers' host names, for datagrams, which cannot wait for a name server: the first ones are lost."""

import asyncio
import ipaddress

from sbon_node.net.counters import Counters

TRUSTED_S = 60.0


class Names:
    """Caches at most ``limit`` names; each is looked up again after a minute, while the old answer still serves."""

    def __init__(self, counters: Counters, limit: int) -> None:
        self._counters, self._limit = counters, limit
        self._known: dict[str, tuple[str, float]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def lookup(self, host: str) -> str | None:
        """Return the address of ``host``, or None while the lookup is under way."""
        known = self._known.get(host)
        if known is None and is_address(host):
            known = self._remember(host, host, float("inf"))
        if known is None or known[1] < asyncio.get_running_loop().time():
            self._ask(host)
        return None if known is None else known[0]

    def close(self) -> None:
        for task in list(self._asking.values()):
            task.cancel()

    def _remember(self, host: str, address: str, until: float) -> tuple[str, float]:
        self._known.pop(host, None)
        if len(self._known) >= self._limit:
            del self._known[next(iter(self._known))]
        self._known[host] = known = (address, until)
        return known

    def _ask(self, host: str) -> None:
        if host in self._asking or len(self._asking) >= self._limit:
            return
        task = asyncio.get_running_loop().create_task(self._resolve(host), name=f"resolve {host}")
        self._asking[host] = task
        task.add_done_callback(lambda _: self._asking.pop(host, None))

    async def _resolve(self, host: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.getaddrinfo(host, None)
            self._remember(host, str(answers[0][4][0]), loop.time() + TRUSTED_S)
        except (OSError, UnicodeError):
            self._counters.refuse("name-unresolved", host=host)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach it."""
    return ipaddress.ip_address(host).is_loopback if is_address(host) else host == "localhost"


def is_address(host: str) -> bool:
    """Return whether the host is an IP address, and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def site_of(host: str) -> str:
    """Return the address that counts connections: for IPv6 the first 64 bits, a site's smallest network."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)
