"""Names of subscribers that follow another: an operator's next host reads the same frames as its present one.

A follower's subscription lasts as long as its connection. The frames that the operator's next batches need are kept for the
present host anyway, and a follower that has lost its place is given up.
"""

from __future__ import annotations

_MARK = "~"


def follower_of(subscriber: str, attempt: str) -> str:
    """Return the name under which an attempt to move the subscriber reads."""
    return f"{subscriber}{_MARK}{attempt}"


def is_follower(subscriber: str) -> bool:
    return _MARK in subscriber


def follows(name: str, subscriber: str) -> bool:
    """Return whether ``name`` is that of a follower of the ``subscriber``."""
    return name.startswith(f"{subscriber}{_MARK}")


def attempt_of(follower: str) -> str:
    """Return the attempt of a follower; empty for other subscribers."""
    return follower.partition(_MARK)[2]
