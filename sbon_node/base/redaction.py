"""Redaction: hides secrets in output, by the names of settings and options, and in addresses."""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "(hidden)"
_NAMES = re.compile(
    r"passw|passphrase|secret|token|credential|private|api_?key|access_?key|\bkey\b|dsn|authorization|cookie|\bheaders\b", re.I
)
_USERINFO = re.compile(r"(?<=://)([^\s/@:]*):([^\s/]+)@")
_PAIR = re.compile(r"""(?i)\b(password|passwd|secret|token)(["']?\s*[=:]\s*)('[^']*'|"[^"]*"|[^\s,;&'"]+)""")


def redacted(value: Any, name: str = "") -> Any:
    """Return ``value`` (maps, lists and scalars) without values under names of secrets, and without passwords in texts."""
    if isinstance(value, dict):
        return {key: redacted(one, name if _NAMES.search(name) else str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(one, name) for one in value]
    if value not in (None, "", False, True) and _NAMES.search(name):
        return REDACTED
    return without_passwords(value) if isinstance(value, str) else value


def without_passwords(text: str) -> str:
    """Return ``scheme://user:password@host`` and ``password=…`` without the password."""
    return _PAIR.sub(rf"\1\2{REDACTED}", _USERINFO.sub(rf"\1:{REDACTED}@", text))


def shown(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for display: without credentials."""
    return {name: redacted(value, name) for name, value in options.items()}
