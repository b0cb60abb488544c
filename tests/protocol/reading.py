"""Frames out of bytes, as a connection reads them."""

from __future__ import annotations

from sbon_protocol.frames import read_frame
from sbon_protocol.messages import Frame


async def frames_in(sent: bytes) -> list[Frame]:
    """All of them; raises what :func:`read_frame` does, and ``EOFError`` where the last one is not whole."""
    rest = memoryview(sent)

    async def read_exactly(count: int) -> bytes:
        nonlocal rest
        if len(rest) < count:
            raise EOFError
        taken, rest = bytes(rest[:count]), rest[count:]
        return taken

    found: list[Frame] = []
    while rest:
        found.append(await read_frame(read_exactly))
    return found
