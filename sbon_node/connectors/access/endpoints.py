"""Endpoints of sources and sinks: parsed URLs, checked against the node's permissions, shown without passwords."""

import netrc
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from sbon_node.connectors.access.permitted import check_permitted, is_loopback, is_named
from sbon_node.connectors.access.secrets import is_reference, read_secret
from sbon_node.connectors.settings import ConnectorSettings
from sbon_protocol.errors import SbonError


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Parts of a URL. ``str`` of it has no password."""

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


def read_endpoint(
    url: str, ports: Mapping[str, int], settings: ConnectorSettings, where: str = "options.url", *, password: str = ""
) -> Endpoint:
    """Parse and check an endpoint's URL.

    ``ports`` maps the accepted schemes to their default ports. ``url`` and ``password`` may be references to this node's secrets;
    the node sends those only to a host that ``connectors.endpoints`` names. Without ``password`` the password file supplies it,
    which binds it to a host. Raises ``bad-option``, ``outside-endpoints``, ``secret-missing``, ``secret-refused``.
    """
    secret = is_reference(url) or is_reference(password)
    url = read_secret(url, settings, where)
    try:
        address = urlsplit(url)
        port = address.port or ports.get(address.scheme, 0)
    except ValueError as error:
        raise SbonError("bad-option", f"no URL: {error}", where=where) from error
    if address.scheme not in ports or not address.hostname:
        hint = f"for instance {next(iter(ports))}://HOST:{next(iter(ports.values()))}/..."
        raise SbonError("bad-option", f"no URL of {' or '.join(ports)} with a host", where=where, hint=hint)
    check_permitted(address.hostname, port, settings, where)
    if secret:
        check_named(address.hostname, port, settings)
    user, url_password = unquote(address.username or ""), unquote(address.password or "")
    password = read_secret(password, settings, "options.password") or url_password
    if not password:
        user, password = _remembered(settings, address.hostname, user)
    query = dict(parse_qsl(address.query, keep_blank_values=True))
    return Endpoint(address.scheme, address.hostname, port, address.path, query, user, password)


def check_named(host: str, port: int, settings: ConnectorSettings) -> None:
    """Raise ``secret-refused`` unless an entry of ``connectors.endpoints`` names the host."""
    if not is_named(host, port, settings):
        hint = f"start it with an entry that is no pattern: --set connectors.endpoints={host}:{port}"
        raise SbonError("secret-refused", f"this node gives no secret of its own to {host}:{port}", where="options", hint=hint)


def has_secret_channel(host: str, port: int, settings: ConnectorSettings) -> bool:
    """Return whether a secret may travel to the host without TLS: within this machine, or where the operator permits it."""
    if is_loopback(host):
        return True
    permitted = {entry.lower() for entry in settings.cleartext}
    return bool(permitted & {host.lower(), f"{host.lower()}:{port}", f"[{host.lower()}]:{port}"})


def no_cleartext(where: str, hint: str) -> SbonError:
    return SbonError("cleartext-password", "a password would travel without encryption", where=where, hint=hint)


def _remembered(settings: ConnectorSettings, host: str, user: str) -> tuple[str, str]:
    """Return user and password for a host from the password file, if it has them."""
    if not settings.passwords:
        return user, ""
    try:
        entry = netrc.netrc(settings.passwords).hosts.get(host)
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise SbonError("bad-passwords", f"the file of passwords: {reason}", where="connectors.passwords") from error
    except netrc.NetrcParseError as error:
        message = f"the file of passwords cannot be read: {error.msg} in line {error.lineno}"
        raise SbonError("bad-passwords", message, where="connectors.passwords") from error
    if entry is None or (user and entry[0] != user):
        return user, ""
    return entry[0], entry[2] or ""
