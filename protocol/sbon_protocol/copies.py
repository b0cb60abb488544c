"""Messages of connections that carry the files of a copy (SPEC.md, section 6a)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sbon_protocol.base import Count, Line, Message


class OpenCopy(Message, frozen=True, tag="open-copy"):
    """Request for the files of a copy that the receiver has made ready for this node.

    ``credit_bytes`` is the weight of chunks that may be under way or unread.
    """

    operator: Line
    attempt: Line
    credit_bytes: Count


class CopyOpened(Message, frozen=True, tag="copy-opened"):
    """Acceptance: the number of ``files``, and size and SHA-256 digest (hexadecimal) of file 0, which lists the others."""

    files: Count
    list_bytes: Count
    list_digest: Line


class WantFiles(Message, frozen=True, tag="want-files"):
    """Request for files in this order, the first from byte ``offset`` on; ``credit_bytes`` is as in Progress."""

    numbers: Annotated[tuple[Count, ...], Meta(max_length=4096)]
    offset: Count = 0
    credit_bytes: Count = 0


class Chunk(Message, frozen=True, tag="chunk"):
    """Bytes of a file from ``offset`` on; only an empty file has an empty chunk."""

    file: Count
    offset: Count
    payload: bytes
