"""The sending side of copies: serves files that are ready for one node, within its credit and this node's rate.

Files are read off the event loop in small chunks, so that a copy delays neither probes nor rows.
"""

import hashlib
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import structlog

from sbon_node.base.clock import Clock
from sbon_node.base.disk import named_errors
from sbon_node.base.executors import Executor
from sbon_node.base.failpoints import Failpoints, unobserved
from sbon_node.base.token_buckets import TokenBucket
from sbon_node.engine.copies.listing import FILE_OVERHEAD_BYTES, encode_list
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.engine.manifest import CopiedFile
from sbon_node.net.peers import Expected
from sbon_node.net.transport import ConnectionLostError
from sbon_node.streams.links.channel import FrameChannel, race
from sbon_node.streams.links.credit import Credit
from sbon_node.streams.outbox.signals import Signal
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.messages import Chunk, CopyOpened, Ended, Hello, OpenCopy, Refused, WantFiles

log = structlog.get_logger()

CHUNK_BYTES = 128 * 1024
MAX_WANTED = 4096
"""Files that a receiver may ask for ahead. A rule of the protocol and no setting: a receiver asks for fewer, whatever the
configuration of the sender is."""


class _Offer:
    """A copy that is ready for the node ``receiver``; file 0 is the list of the others."""

    def __init__(self, operator: str, receiver: Expected, folder: Path, files: Sequence[CopiedFile]) -> None:
        self.operator, self.receiver, self.folder, self.files = operator, receiver, folder, tuple(files)
        self.listing = encode_list(files)
        self.sizes = [len(self.listing), *(file.bytes for file in files)]
        self.serving: _Serving | None = None

    def read(self, number: int, offset: int) -> bytes:
        """Return the next bytes of a file. Blocks; raises :class:`SbonError` ``disk-error``."""
        size = min(CHUNK_BYTES, self.sizes[number] - offset)
        if number == 0:
            return self.listing[offset : offset + size]
        path = self.folder / self.files[number - 1].path
        with named_errors(path), path.open("rb") as file:
            file.seek(offset)
            content = file.read(size)
        if len(content) != size:
            raise SbonError("disk-error", "the file has become shorter", where=str(path))
        return content


class _Serving:
    """One connection to the receiver of an offer."""

    def __init__(self, offer: _Offer, channel: FrameChannel, credit_bytes: int) -> None:
        self.offer, self.channel = offer, channel
        self.credit = Credit(credit_bytes)
        self.wanted: deque[tuple[int, int]] = deque()
        """Numbers of files, each with the offset of its next byte."""
        self.changed = Signal()
        self.ending: SbonError | None = None

    def end(self, code: str, reason: str) -> None:
        self.ending = self.ending or SbonError(code, reason)
        self.changed.notify()

    def want(self, message: WantFiles) -> None:
        """Add the files asked for; raise :class:`ProtocolError` for numbers and offsets that do not exist."""
        numbers = message.numbers
        if len(self.wanted) + len(numbers) > MAX_WANTED:
            raise ProtocolError("over-credit", f"more than {MAX_WANTED} files are asked for ahead")
        if any(number >= len(self.offer.sizes) for number in numbers):
            raise ProtocolError("bad-number", f"the copy has {len(self.offer.sizes) - 1} files")
        if message.offset and (not numbers or message.offset >= self.offer.sizes[numbers[0]]):
            raise ProtocolError("bad-number", f"the first file has no byte {message.offset}")
        self.wanted += [(number, message.offset if place == 0 else 0) for place, number in enumerate(numbers)]
        self.credit.returned(message.credit_bytes)
        self.changed.notify()


class CopySender:
    """Offers copies to other nodes, and serves them."""

    def __init__(self, clock: Clock, settings: MigrationSettings, executor: Executor, failpoint: Failpoints = unobserved) -> None:
        self._clock, self._settings, self._executor, self._failpoint = clock, settings, executor, failpoint
        self._offers: dict[str, _Offer] = {}
        self._rate = TokenBucket(max(CHUNK_BYTES + FILE_OVERHEAD_BYTES, settings.bytes_s // 20), settings.bytes_s)
        self.sent_bytes = 0

    @property
    def connections(self) -> int:
        return sum(offer.serving is not None for offer in self._offers.values())

    def offer(self, attempt: str, operator: str, receiver: Expected, folder: Path, files: Sequence[CopiedFile]) -> None:
        """Make the ``files`` in ``folder`` ready for one node, in place of the attempt's earlier offer.

        They must not change until :meth:`withdraw`.
        """
        self.withdraw(attempt)
        self._offers[attempt] = _Offer(operator, receiver, folder, files)

    def withdraw(self, attempt: str) -> None:
        """End an offer and the connection that it is served on; unknown attempts are ignored."""
        offer = self._offers.pop(attempt, None)
        if offer is not None and offer.serving is not None:
            offer.serving.end("copy-withdrawn", "the copy is over")

    async def serve(self, channel: FrameChannel, hello: Hello) -> None:
        """Serve one connection until it ends, then close it. A new connection replaces the old one of the same attempt.

        Raises :class:`ProtocolError`, after closing, for a peer that breaks the protocol.
        """
        serving: _Serving | None = None
        try:
            async with self._clock.timeout(self._settings.handshake_s):
                serving = await self._accept(channel, hello)
            if serving is not None:
                await race(_ended(serving), self._send(serving), _receive(serving))
        except SbonError as error:
            await self._tell(channel, Ended(code=error.code, reason=error.message[:500]))
        except (ConnectionLostError, TimeoutError) as error:
            log.debug("copy-receiver-lost", peer=hello.node, reason=str(error))
        finally:
            if serving is not None and serving.offer.serving is serving:
                serving.offer.serving = None
            channel.close()

    async def _accept(self, channel: FrameChannel, hello: Hello) -> _Serving | None:
        message = await channel.receive()
        if not isinstance(message, OpenCopy):
            raise ProtocolError("unexpected", f"a copy's connection opened with {type(message).__name__}")
        try:
            offer = self._offered(message, hello)
        except SbonError as error:
            log.info("copy-refused", peer=hello.node, operator=message.operator, code=error.code)
            await self._tell(channel, Refused(code=error.code, reason=error.message[:500]))
            return None
        if offer.serving is not None:
            offer.serving.end("replaced", "the receiver has connected anew")
        serving = offer.serving = _Serving(offer, channel, message.credit_bytes)
        digest = hashlib.sha256(offer.listing).hexdigest()
        await channel.send(CopyOpened(files=len(offer.files), list_bytes=len(offer.listing), list_digest=digest))
        return serving

    def _offered(self, message: OpenCopy, hello: Hello) -> _Offer:
        offer = self._offers.get(message.attempt)
        if offer is None or offer.operator != message.operator or offer.receiver != (hello.node, hello.instance):
            raise SbonError("copy-unknown", "there is no such copy for this node", where=message.operator)
        if offer.serving is None and self.connections >= self._settings.copies:
            raise SbonError("too-many-copies", f"{self.connections} copies are under way", where=message.operator)
        return offer

    async def _tell(self, channel: FrameChannel, message: Ended | Refused) -> None:
        try:
            async with self._clock.timeout(self._settings.handshake_s):
                await channel.send(message)
        except (ConnectionLostError, TimeoutError) as error:
            log.debug("copy-receiver-lost", reason=str(error))

    async def _send(self, serving: _Serving) -> None:
        while True:
            while not serving.wanted:
                await serving.changed.wait()
            number, offset = serving.wanted[0]
            await self._send_chunk(serving, number, offset)

    async def _send_chunk(self, serving: _Serving, number: int, offset: int) -> None:
        size = serving.offer.sizes[number]
        weight = min(CHUNK_BYTES, size - offset) + FILE_OVERHEAD_BYTES
        while not serving.credit.allows(weight):
            await serving.changed.wait()
        while (wait_s := self._rate.take(weight, self._clock.now())) > 0:
            await self._clock.sleep(wait_s)
        payload = await self._executor(partial(serving.offer.read, number, offset))
        serving.credit.spend(weight)
        after = offset + len(payload)
        serving.wanted.popleft()
        if after < size:
            serving.wanted.appendleft((number, after))
        await serving.channel.send(Chunk(file=number, offset=offset, payload=payload))
        self.sent_bytes += len(payload)
        self._failpoint("copy")


async def _ended(serving: _Serving) -> None:
    while serving.ending is None:
        await serving.changed.wait()
    raise serving.ending


async def _receive(serving: _Serving) -> None:
    while True:
        message = await serving.channel.receive()
        if not isinstance(message, WantFiles):
            raise ProtocolError("unexpected", f"{type(message).__name__} came from the receiver of a copy")
        serving.want(message)
