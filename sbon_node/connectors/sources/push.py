"""Rows posted to a source, and the reply once they are durable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec

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


class RefusedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A refused row: its line in the body, from 1, and the reason."""

    line: int
    reason: str


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to a post whose rows are all durable.

    ``rows`` are in the stream, ``late`` rows were dropped, ``bad`` rows are in the source's dead-letter file, the first of them
    in ``refused``. ``repeated`` marks a post that was made before: its ``rows`` are the rows read then, late rows included.
    """

    source: str
    rows: int
    late: int = 0
    bad: int = 0
    refused: tuple[RefusedRow, ...] = ()
    ignored: tuple[str, ...] = ()
    """First names of columns or members outside the stream's schema; their values are dropped."""
    repeated: bool = False


@runtime_checkable
class Pushable(Protocol):
    """A source that accepts posts."""

    async def push(self, post: Post) -> Pushed:
        """Take a post; return once all of it is durable.

        Raises :class:`sbon_node.errors.SbonError` if nothing of it is taken: ``unknown-format``, ``post-too-large``,
        ``source-busy``, ``key-reused``, ``source-stopped``. After ``source-stopped`` the post may have been taken; a client that
        used a key repeats it.
        """
        ...
