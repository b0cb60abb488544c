"""Rows posted to a source, memory for their bodies, and the reply once they are durable."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sbon_node.base.clock import Clock
from sbon_node.connectors.settings import ConnectorSettings
from sbon_protocol.api.streams import Pushed
from sbon_protocol.errors import SbonError

MAX_KEY = 255


@dataclass(frozen=True, slots=True)
class Post:
    """Rows of a ``media_type`` in a ``body`` that arrives in pieces. Posts of equal ``key`` count once; empty means no key."""

    media_type: str
    body: AsyncIterator[bytes]
    key: str = ""


@runtime_checkable
class Pushable(Protocol):
    """A source that accepts posts."""

    async def push(self, post: Post) -> Pushed:
        """Take a post; return once all of it is durable.

        Raises :class:`sbon_protocol.errors.SbonError` if nothing of it is taken: ``unknown-format``, ``post-too-large``,
        ``source-busy``, ``key-reused``, ``source-stopped``. After the last it may have been taken: repeat it with its key.
        """
        ...


class PostBuffer:
    """Bodies of posts in memory, with one bound for all of them (``connectors.push_buffer_bytes``)."""

    def __init__(self, settings: ConnectorSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._bytes = 0

    def hold(self, size: int) -> None:
        self._bytes += size

    def release(self, size: int) -> None:
        self._bytes -= size

    async def read_post(self, post: Post, most_bytes: int, where: str) -> bytes:
        """Read the body of a post, and hold its bytes. They count at once, so that many simultaneous posts share the limit.

        Raises :class:`SbonError` ``bad-request`` for a key that is too long, ``post-too-large``, ``post-too-slow`` or
        ``source-busy``; nothing is held then.
        """
        if len(post.key) > MAX_KEY:
            raise SbonError("bad-request", f"the key has more than {MAX_KEY} characters", where="Idempotency-Key")
        chunks: list[bytes] = []
        size = 0
        settings = self._settings
        try:
            async with self._clock.timeout(settings.push_timeout_s):
                async for chunk in post.body:
                    size += len(chunk)
                    self.hold(len(chunk))
                    chunks.append(chunk)
                    if size > most_bytes:
                        message = f"a post has at most {most_bytes:,} bytes"
                        raise SbonError("post-too-large", message, where="body", hint="post its rows in parts")
                    if self._bytes > settings.push_buffer_bytes:
                        message = "more is being posted than is stored meanwhile"
                        raise SbonError("source-busy", message, where=where, hint="post it again a little later")
        except TimeoutError as error:
            self.release(size)
            message = f"the body did not come within {settings.push_timeout_s:g} s"
            raise SbonError("post-too-slow", message, where="body", hint="post its rows in parts") from error
        except BaseException:
            self.release(size)
            raise
        return b"".join(chunks)
