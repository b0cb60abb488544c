"""Hides secrets in what is shown to people or handed on: by the names of settings and options, and in addresses."""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "(hidden)"
_NAMES = re.compile(
    r"passw|passphrase|secret|token|credential|private|api_?key|access_?key|\bkey\b|dsn|authorization|cookie|\bheaders\b", re.I
)
_USERINFO = re.compile(r"(?<=://)([^\s/@:]*):([^\s/]+)@")
_PAIR = re.compile(r"""(?i)\b(password|passwd|secret|token)(["']?\s*[=:]\s*)('[^']*'|"[^"]*"|[^\s,;&'"]+)""")


def hidden(value: Any, name: str = "") -> Any:
    """``value`` (of maps, lists and scalars) with what stands under a telling name replaced, and passwords in texts."""
    if isinstance(value, dict):
        return {key: hidden(one, name if _NAMES.search(name) else str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [hidden(one, name) for one in value]
    if value not in (None, "", False, True) and _NAMES.search(name):
        return HIDDEN
    return without_passwords(value) if isinstance(value, str) else value


def without_passwords(text: str) -> str:
    """``scheme://user:password@host`` and ``password=…`` without the password."""
    return _PAIR.sub(rf"\1\2{HIDDEN}", _USERINFO.sub(rf"\1:{HIDDEN}@", text))
