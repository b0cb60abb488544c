"""The HTTP statuses of the user's errors, by their codes."""

from pathlib import Path

import msgspec


class Status(msgspec.Struct, frozen=True):
    """The meaning of a status, and the codes that have it: by name, by their beginning or by their end."""

    meaning: str = ""
    """Empty for one that no described request can have."""
    codes: tuple[str, ...] = ()
    beginnings: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()


STATUSES = msgspec.toml.decode(Path(__file__).with_name("statuses.toml").read_bytes(), type=dict[int, Status])

_BY_CODE = {code: number for number, status in STATUSES.items() for code in status.codes}
RETRY_AFTER_S = {"source-behind": 5, "source-paused": 5}
"""Seconds to wait before repeating a temporarily rejected request, where more than 1."""


def status_of(code: str) -> int:
    """Return the HTTP status of an error's code; 400 by default."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    by_affix = (n for n, status in STATUSES.items() if code.startswith(status.beginnings) or code.endswith(status.ends))
    return next(by_affix, 400)
