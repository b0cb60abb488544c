"""Secrets of sources and sinks: options hold a reference, which the connecting node reads.

``env:SBON_SECRET_NAME`` is a variable of the node's environment, ``file:NAME`` a file in the folder ``connectors.secrets``.
Options are stored with queries and streams and sent to other nodes, so options that hold a secret itself are refused. A node
sends its secrets only to hosts that ``connectors.endpoints`` names, since anybody who may submit a query may name a host.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from sbon_node.connectors.settings import ConnectorSettings
from sbon_protocol.errors import SbonError

PREFIX = "SBON_SECRET_"
"""Prefix of the environment variables that options may reference; all others stay private."""
MAX_BYTES = 65_536

_REFERENCE = re.compile(r"env:[A-Za-z0-9_]{1,128}|file:[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_TELLING = re.compile(r"passw|passphrase|secret|token|credential|private|api.?key|access.?key|\bauth|cookie|\bdsn\b", re.I)
_HINT = f"set it to env:{PREFIX}NAME or file:NAME, which the node that connects reads from its environment or connectors.secrets"


def is_reference(value: object) -> bool:
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


def check_no_secrets(options: Mapping[str, Any]) -> None:
    """Raise ``literal-secret`` for options that hold a secret instead of a reference."""
    for name, value in options.items():
        _check(str(name), str(name), value)


def _check(name: str, where: str, value: Any) -> None:
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check(str(key), f"{where}.{str(key)[:40]}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check(name, where, item)
    elif isinstance(value, str) and value and not is_reference(value):
        if _TELLING.search(name):
            raise _literal(where, _HINT)
        if "://" in value[:40] and _has_secret(value):
            raise _literal(where, f"leave it out of the URL; {_HINT.replace('set it', 'set the option password')}")


def _has_secret(url: str) -> bool:
    try:
        address = urlsplit(url)
    except ValueError:
        return "@" in url
    if address.password or (address.scheme and "@" in address.netloc and ":" in address.netloc.rpartition("@")[0]):
        return True
    return any(value and _TELLING.search(name) for name, value in parse_qsl(address.query))


def _literal(where: str, hint: str) -> SbonError:
    message = "a secret in an option would be stored with it and sent to other nodes"
    return SbonError("literal-secret", message, where=f"options.{where}", hint=hint)


def read_secret(reference: str, settings: ConnectorSettings, where: str) -> str:
    """Return the referenced secret, or ``reference`` itself if it is none. Raises ``secret-missing``."""
    if not is_reference(reference):
        return reference
    kind, _, name = reference.partition(":")
    if kind == "env":
        secret = os.environ.get(name, "") if name.startswith(PREFIX) else ""
        if not secret:
            hint = f"set it for the node; its name begins with {PREFIX}"
            raise SbonError("secret-missing", f"the node's environment has no {name}", where=where, hint=hint)
        return secret
    try:
        with open(Path(settings.secrets or os.devnull) / name, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        hint = "put it into the folder connectors.secrets of the node that connects"
        raise SbonError("secret-missing", f"there is no secret {name!r} that can be read", where=where, hint=hint) from error
    if len(content) > MAX_BYTES or not text:
        raise SbonError("secret-missing", f"the secret {name!r} is empty, or larger than {MAX_BYTES:,} bytes", where=where)
    return text
