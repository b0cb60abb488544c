"""Rows posted to a source, and the reply once they are durable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sbon_protocol.api.streams import Pushed

MAX_REPORTED = 100
"""Refused rows that a reply lists."""
MAX_KEY = 255


@dataclass(frozen=True, slots=True)
class Post:
    """A post.

    ``media_type`` describes ``body``, which arrives in pieces. ``key`` identifies the post, so that repetitions count once; empty
    means no key.
    """

    media_type: str
    body: AsyncIterator[bytes]
    key: str = ""


@runtime_checkable
class Pushable(Protocol):
    """A source that accepts posts."""

    async def push(self, post: Post) -> Pushed:
        """Take a post; return once all of it is durable.

        Raises :class:`sbon_protocol.errors.SbonError` if nothing of it is taken: ``unknown-format``, ``post-too-large``,
        ``source-busy``, ``key-reused``, ``source-stopped``. After ``source-stopped`` the post may have been taken; a client that
        used a key repeats it.
        """
        ...
