"""Rows that are handed to a source from outside: a post, and what is answered once its rows are durable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec

MAX_TOLD = 100
"""Refused rows that an answer names."""
MAX_KEY = 255


@dataclass(frozen=True, slots=True)
class Post:
    """``media_type`` says what ``body``, which comes piece by piece, is; ``key`` names the post, so that it counts once however
    often it is made (empty: it has none)."""

    media_type: str
    body: AsyncIterator[bytes]
    key: str = ""


class RefusedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that could not be taken: its line in the body, from 1, and why."""

    line: int
    reason: str


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the post has brought is durable: ``rows`` of it are in the stream, ``late`` ones were dropped, ``bad`` ones are
    in the source's dead-letter file, the first of them in ``refused``. A post that was made before is ``repeated``: its rows are
    as they were read then, late ones included."""

    source: str
    rows: int
    late: int = 0
    bad: int = 0
    refused: tuple[RefusedRow, ...] = ()
    ignored: tuple[str, ...] = ()
    """Names of columns or members that are not in the stream's schema, the first of them: their values are nowhere."""
    repeated: bool = False


@runtime_checkable
class Pushable(Protocol):
    """A source that takes posts."""

    async def push(self, post: Post) -> Pushed:
        """Returns once all of it is durable. Raises :class:`sbon_node.errors.SbonError` where nothing of it is taken:
        ``unknown-format``, ``post-too-large``, ``source-busy``, ``key-reused``, ``source-stopped`` (it may have been taken then:
        who has named it with a key makes it again)."""
        ...
