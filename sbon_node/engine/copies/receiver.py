"""The receiving side of a copy: fetches the files that are missing here, over as many connections as that takes."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from sbon_node.base.backoff import Backoff
from sbon_node.base.clock import Clock
from sbon_node.base.executors import Executor
from sbon_node.engine.copies.listing import FILE_OVERHEAD_BYTES, CopyLimits, decode_list
from sbon_node.engine.copies.received_files import ReceivedFiles
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.manifest import CopiedFile
from sbon_node.net.peers import Peers
from sbon_node.net.transport import ConnectionLostError
from sbon_node.streams.links.channel import FrameChannel
from sbon_node.streams.links.link import Expect, Locate
from sbon_protocol.api.moves import MoveProgress
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.messages import Chunk, CopyOpened, Ended, Frame, OpenCopy, Refused, WantFiles

log = structlog.get_logger()

_AHEAD = 1024
"""Files asked for ahead, so that small files cost no round trip each. No setting, since ``migration.window_bytes`` bounds what is
under way; a sender allows four times as many."""
_TRIED_AGAIN = frozenset({"too-many-copies", "replaced", "peer-unreachable", "node-away", "unknown-node"})
"""Refusals that pass; the others end the copy."""


class CopySource(NamedTuple):
    """The node that offers a copy of the ``operator``, and the attempt for which it does."""

    operator: str
    attempt: str
    locate: Locate
    expect: Expect


class CopyReceiver:
    """Fetches copies to this node."""

    def __init__(
        self,
        opener: Peers,
        *,
        clock: Clock,
        executor: Executor,
        settings: MigrationSettings,
        limits: CopyLimits,
        rng: random.Random,
    ) -> None:
        self.opener, self.clock, self.executor = opener, clock, executor
        self.settings, self.limits, self.rng = settings, limits, rng

    async def receive(
        self, source: CopySource, folder: Path, into: Path, report: Callable[[MoveProgress], None]
    ) -> tuple[CopiedFile, ...]:
        """Fetch the files that are not yet in ``folder``, and assemble all in the new folder ``into`` on the same disk.

        Raises :class:`SbonError`: ``copy-stalled`` without a new byte for ``migration.stall_s``, ``checkpoint-damaged`` if a file
        has twice not been the listed one, ``disk-full``, ``disk-error``, and the sender's refusals.
        """
        received = ReceivedFiles(folder)
        files = await self.fetch(source, received, report)
        await self.executor(partial(received.assemble, files, into))
        return files

    async def fetch(
        self, source: CopySource, received: ReceivedFiles, report: Callable[[MoveProgress], None]
    ) -> tuple[CopiedFile, ...]:
        """Fetch the files that are not among those ``received``; return the list of all. Raises as :meth:`receive`."""
        return await _Copy(self, source, received, report).fetch()


class _Copy:
    """One copy over its connections."""

    def __init__(
        self, receiver: CopyReceiver, source: CopySource, received: ReceivedFiles, report: Callable[[MoveProgress], None]
    ) -> None:
        self._receiver, self._source, self.received, self._report = receiver, source, received, report
        self._clock, self._settings, self._executor = receiver.clock, receiver.settings, receiver.executor
        self._damaged: set[str] = set()
        self._progress_s = self._clock.now()
        self._done_bytes = self._total_bytes = 0

    async def fetch(self) -> tuple[CopiedFile, ...]:
        pauses = Backoff(self._settings.reconnect_s, self._settings.reconnect_max_s, self._receiver.rng)
        while True:
            begun_s = self._progress_s
            try:
                return await self._over_one_connection()
            except (ConnectionLostError, ProtocolError, TimeoutError) as error:
                reason = str(error) or "no answer"
            except SbonError as error:
                if error.code not in _TRIED_AGAIN:
                    raise
                reason = str(error)
            if self._progress_s > begun_s:
                pauses.reset()
            log.info("copy-interrupted", operator=self._source.operator, reason=reason, bytes=self._done_bytes)
            if self._clock.now() - self._progress_s >= self._settings.stall_s:
                raise SbonError(
                    "copy-stalled",
                    reason,
                    where=self._source.operator,
                    hint="see whether the node that has the state can be reached",
                )
            await self._clock.sleep(pauses.next_s())

    async def _over_one_connection(self) -> tuple[CopiedFile, ...]:
        source = self._source
        async with self._clock.timeout(self._settings.stall_s):
            channel = await self._receiver.opener.open_copy(source.locate(), source.expect())
        try:
            return await self._fetch(_Incoming(channel, self._clock, self._settings))
        finally:
            channel.close()

    async def _fetch(self, incoming: _Incoming) -> tuple[CopiedFile, ...]:
        opened = await incoming.open(self._source)
        limits = self._receiver.limits
        if opened.list_bytes > limits.max_list_bytes or opened.files > limits.max_files:
            raise _too_large(self._source.operator, f"its list has {opened.list_bytes:,} bytes")
        await incoming.want([0], 0)
        content = bytearray()
        while len(content) < opened.list_bytes:
            content += await incoming.chunk(0, len(content), opened.list_bytes)
        if hashlib.sha256(content).hexdigest() != opened.list_digest:
            raise ProtocolError("invalid", "the list of files has another digest")
        try:
            files = decode_list(bytes(content), limits)
        except ProtocolError as error:
            if error.reason == "too-large":
                raise _too_large(self._source.operator, error.message) from error
            raise
        missing = await self._executor(partial(self.received.keep, files))
        self._total_bytes = sum({file.digest: file.bytes for file in files}.values())
        self._done_bytes = self._total_bytes - sum(file.bytes for file in missing)
        self._tell()
        numbers = {file.digest: number for number, file in reversed(list(enumerate(files, 1)))}
        await self._take([(numbers[file.digest], file) for file in missing], incoming)
        return files

    async def _take(self, missing: list[tuple[int, CopiedFile]], incoming: _Incoming) -> None:
        """Receive files in order, each asked for while the ones before it are under way."""
        unasked = deque(missing)
        for number, file in missing:
            offset = await self._executor(partial(self.received.begin, file)) if self.received.has_begun(file) else 0
            if unasked and unasked[0][0] == number:  # Nothing is under way, so its offset may be named.
                ahead = [unasked.popleft()[0] for _ in range(min(_AHEAD, len(unasked)))]
                await incoming.want(ahead, offset)
            self._done_bytes += offset
            await self._take_file(number, file, offset, incoming)

    async def _take_file(self, number: int, file: CopiedFile, offset: int, incoming: _Incoming) -> None:
        is_right: bool | None = None
        while is_right is None:
            payload = await incoming.chunk(number, offset, file.bytes)
            is_right = await self._executor(partial(self.received.add, file, offset, payload))
            offset += len(payload)
            self._done_bytes += len(payload)
            self._progress_s = self._clock.now()
            self._tell()
        if is_right:
            return
        self._done_bytes -= file.bytes
        if file.digest in self._damaged:
            raise SbonError("checkpoint-damaged", f"{file.path} is not the listed file", where=self._source.operator)
        self._damaged.add(file.digest)
        raise ConnectionLostError(f"{file.path} has arrived damaged")

    def _tell(self) -> None:
        self._report(MoveProgress(copied_bytes=self._done_bytes, total_bytes=self._total_bytes))


class _Incoming:
    """One connection: its chunks in order, and its credit."""

    def __init__(self, channel: FrameChannel, clock: Clock, settings: MigrationSettings) -> None:
        self._channel, self._clock = channel, clock
        self._window, self._stall_s = settings.window_bytes, settings.stall_s
        self._taken = self._returned = 0

    async def open(self, source: CopySource) -> CopyOpened:
        await self._channel.send(OpenCopy(operator=source.operator, attempt=source.attempt, credit_bytes=self._window))
        answer = await self._receive()
        if not isinstance(answer, CopyOpened):
            raise ProtocolError("unexpected", f"{type(answer).__name__} in answer to an OpenCopy")
        return answer

    async def want(self, numbers: list[int], offset: int) -> None:
        self._returned = self._taken
        await self._channel.send(WantFiles(numbers=tuple(numbers), offset=offset, credit_bytes=self._returned))

    async def chunk(self, number: int, offset: int, size: int) -> bytes:
        """Return the next bytes of a file; raise :class:`ProtocolError` for any others."""
        if self._taken - self._returned > self._window // 4:
            await self.want([], 0)
        chunk = await self._receive()
        if not isinstance(chunk, Chunk):
            raise ProtocolError("unexpected", f"{type(chunk).__name__} came from the sender of a copy")
        self._taken += len(chunk.payload) + FILE_OVERHEAD_BYTES
        if self._taken - self._returned > self._window:
            raise ProtocolError("over-credit", "the sender of a copy has sent more than its credit")
        if (chunk.file, chunk.offset) != (number, offset) or not (chunk.payload or size == 0):
            raise ProtocolError("bad-number", f"byte {chunk.offset} of file {chunk.file} came, not {offset} of {number}")
        if offset + len(chunk.payload) > size:
            raise ProtocolError("too-large", f"file {number} has {size} bytes, more have come")
        return chunk.payload

    async def _receive(self) -> Frame:
        async with self._clock.timeout(self._stall_s):
            message = await self._channel.receive()
        if isinstance(message, Refused | Ended):
            raise SbonError(message.code, message.reason)
        return message


def _too_large(operator: str, reason: str) -> SbonError:
    return SbonError("checkpoint-too-large", reason, where=operator, hint="raise engine.copy_max_files or engine.copy_max_bytes")
