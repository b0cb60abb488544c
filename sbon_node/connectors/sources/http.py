"""Source ``http``: rows posted to its node (docs/api.md); each post is all or nothing.

A post is a chunk: a transaction stores its frames with a position that holds the keys of the latest posts. The reply follows.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import pyarrow as pa
from msgspec import Meta

from sbon_node.connectors.formats.blocks import TextFormat
from sbon_node.connectors.formats.text_file import GrowingText, ParsedText
from sbon_node.connectors.formats.text_format import Arrival, Null, RowFormat, Stamp, TimestampFormat, text_format
from sbon_node.connectors.interface import BadRow, Chunk, Origin, Receipt
from sbon_node.connectors.sources.context import SourceContext
from sbon_node.connectors.sources.push import Post, PostBuffer
from sbon_protocol.api.streams import MAX_REPORTED, Pushed, RefusedRow
from sbon_protocol.errors import SbonError

JSON = "application/json"
"""An object, or an array of objects, however they are laid out in lines."""
MEDIA_TYPES: dict[str, tuple[RowFormat, str]] = {
    "application/x-ndjson": ("ndjson", ""),
    "application/ndjson": ("ndjson", ""),
    "application/jsonl": ("ndjson", ""),
    JSON: ("ndjson", ""),
    "text/csv": ("csv", ","),
    "text/tab-separated-values": ("csv", "\t"),
}


class HttpSourceOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the connector ``http``."""

    stamp: Stamp = False
    null: Null = ""
    timestamp_format: TimestampFormat = ""
    keys: Annotated[int, Meta(ge=0, le=8192)] = 1024
    """idempotency keys that are remembered, the latest ones"""


class SeenPost(msgspec.Struct, frozen=True, array_like=True):
    """Record of a keyed post: hashes of key and content, counts of read and bad rows."""

    key: bytes
    body: bytes
    rows: int
    bad: int


class HttpPosition(msgspec.Struct, frozen=True, kw_only=True):
    posts: int = 0
    seen: tuple[SeenPost, ...] = ()


@dataclass(slots=True)
class _Waiting:
    """A post that has been read and is not yet durable."""

    seen: SeenPost
    size: int
    rows: pa.RecordBatch
    bad: tuple[BadRow, ...]
    origin: Origin
    ignored: tuple[str, ...]
    answer: asyncio.Future[Receipt] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class HttpSource:
    """See :class:`sbon_node.connectors.interface.Source` and :class:`sbon_node.connectors.sources.push.Pushable`."""

    finite = False
    waits = False

    def __init__(self, context: SourceContext, options: HttpSourceOptions) -> None:
        self._options, self._schema, self._settings = options, context.schema, context.settings
        self._name = context.declaration.name
        self._added = {context.stream.event_time: Arrival(context.clock.wall_ms)} if options.stamp else None
        self._posts = 0
        self._seen: dict[bytes, SeenPost] = {}
        self._waiting: dict[bytes, _Waiting] = {}
        """Posts in progress, by key."""
        self._queue: deque[_Waiting] = deque()
        self._read: deque[_Waiting] = deque()
        self._news = asyncio.Event()
        self._buffer = PostBuffer(context.settings, context.clock)
        self._open = False

    def check(self) -> None:
        for kind, delimiter in MEDIA_TYPES.values():
            self._format(kind, delimiter)

    async def open(self, position: bytes | None) -> None:
        at = msgspec.msgpack.decode(position, type=HttpPosition) if position else HttpPosition()
        self._posts, self._seen, self._open = at.posts, {post.key: post for post in at.seen}, True

    async def read(self) -> Chunk | None:
        while not self._queue:
            self._news.clear()
            await self._news.wait()
        post = self._queue.popleft()
        self._read.append(post)
        self._posts += 1
        if post.seen.key:
            self._seen[post.seen.key] = post.seen
            while len(self._seen) > self._options.keys:
                del self._seen[next(iter(self._seen))]
        position = msgspec.msgpack.encode(HttpPosition(posts=self._posts, seen=tuple(self._seen.values())))
        return Chunk(post.rows, position, post.origin, bad=post.bad)

    def stored(self, receipts: Sequence[Receipt]) -> None:
        for receipt in receipts:
            self._done(self._read.popleft(), receipt)

    async def close(self) -> None:
        """Close the source. Posts in progress get no confirmation, though they may be stored."""
        self._open = False
        for post in (*self._read, *self._queue):
            self._done(post, None)
        self._read.clear()
        self._queue.clear()

    async def push(self, post: Post) -> Pushed:
        if not self._open:
            raise _stopped(self._name)
        kind, delimiter, header = _kind_of(post.media_type)
        body = await self._buffer.read_post(post, self._settings.push_max_bytes, self._name)
        try:
            key = hashlib.blake2b(post.key.encode(), digest_size=16).digest() if post.key and self._options.keys else b""
            digest = hashlib.blake2b(body, digest_size=8).digest()
            if (answer := await self._repeated(key, digest)) is not None:
                return answer
            text = _in_lines(body) if _is_json(post.media_type) else body
            waiting = await self._parsed(text, kind, delimiter, header, key, digest)
        finally:
            self._buffer.release(len(body))
        # The same post may have arrived meanwhile.
        return await self._repeated(key, digest) or await self._stored(waiting)

    async def _repeated(self, key: bytes, digest: bytes) -> Pushed | None:
        """Return the reply to a post that was made before, or is in progress. Raises ``key-reused``."""
        under_way = self._waiting.get(key)
        known = under_way.seen if under_way is not None else self._seen.get(key)
        if known is None:
            return None
        if known.body != digest:
            hint = "give each post a key of its own"
            raise SbonError("key-reused", "this key was used for other content", where="Idempotency-Key", hint=hint)
        if under_way is not None:
            await asyncio.shield(under_way.answer)
        return Pushed(source=self._name, rows=known.rows, bad=known.bad, repeated=True)

    def _format(self, kind: RowFormat, delimiter: str, *, header: bool = True) -> TextFormat:
        null, times = self._options.null, self._options.timestamp_format
        return text_format(
            kind, self._schema, header=header, delimiter=delimiter, null=null, timestamp_format=times, added=self._added
        )

    async def _parsed(self, body: bytes, kind: RowFormat, delimiter: str, header: bool, key: bytes, digest: bytes) -> _Waiting:
        rows_of, block = self._format(kind, delimiter, header=header), self._settings.block_bytes
        try:
            began = rows_of.begin(body[: max(4096, self._settings.max_record_bytes)]) if body else 0
        except SbonError as error:
            raise SbonError(error.code, error.message, where="body", hint=error.hint) from error
        text = GrowingText(rows_of, self._settings, line=1 + body[:began].count(b"\n"))
        blocks: list[ParsedText] = []
        for start in range(began, len(body), block):
            text.add(body[start : start + block])
            while (block_rows := text.take_records(ended=start + block >= len(body))) is not None:
                blocks.append(block_rows)
                # Between blocks other tasks run.
                await asyncio.sleep(0)
        batches = [block.parsed.rows for block in blocks]
        rows = pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], self._schema)
        bad = tuple(row for block in blocks for row in block.parsed.bad)
        post = SeenPost(key, digest, rows.num_rows, len(bad))
        return _Waiting(post, len(body), rows, bad, _origin(blocks), rows_of.ignored)

    async def _stored(self, post: _Waiting) -> Pushed:
        if not self._open:
            raise _stopped(self._name)
        if post.seen.key:
            self._waiting[post.seen.key] = post
        self._buffer.hold(post.size)
        self._queue.append(post)
        self._news.set()
        receipt = await asyncio.shield(post.answer)
        refused = tuple(RefusedRow(line=row.line, reason=row.reason) for row in receipt.bad[:MAX_REPORTED])
        return Pushed(
            source=self._name, rows=receipt.rows, late=receipt.late, bad=len(receipt.bad), refused=refused, ignored=post.ignored
        )

    def _done(self, post: _Waiting, receipt: Receipt | None) -> None:
        self._buffer.release(post.size)
        self._waiting.pop(post.seen.key, None)
        if receipt is not None:
            post.answer.set_result(receipt)
        else:
            post.answer.set_exception(_stopped(self._name))
            post.answer.exception()  # marks the error as retrieved: the client may have disconnected


def _kind_of(media_type: str) -> tuple[RowFormat, str, bool]:
    """Return format, delimiter, and whether a header line is present (RFC 4180, section 3). Raises ``unsupported-format``."""
    name, _, parameters = media_type.partition(";")
    known = MEDIA_TYPES.get(name.strip().lower())
    if known is None:
        message = f"rows are posted as {' or '.join(MEDIA_TYPES)}, not as {name.strip()[:80] or 'nothing that is named'}"
        hint = "name it with the post: curl -H 'Content-Type: text/csv' --data-binary @FILE"
        raise SbonError("unsupported-format", message, where="Content-Type", hint=hint)
    return *known, "header=absent" not in parameters.replace(" ", "").replace('"', "").lower()


def _is_json(media_type: str) -> bool:
    return media_type.partition(";")[0].strip().lower() == JSON


def _in_lines(body: bytes) -> bytes:
    """Return the objects of a JSON text as NDJSON, each as it is written: no number passes through a float.

    Raises ``bad-request`` for another text.
    """
    is_array = body.lstrip()[:1] == b"["
    try:
        rows = msgspec.json.decode(body, type=list[msgspec.Raw]) if is_array else [msgspec.json.decode(body, type=msgspec.Raw)]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "post an object or an array of objects, or lines of JSON as application/x-ndjson"
        raise SbonError("bad-request", f"the body is no JSON: {error}", where="body", hint=hint) from error
    return b"".join(msgspec.json.format(bytes(row), indent=-1) + b"\n" for row in rows)


def _origin(blocks: list[ParsedText]) -> Origin:
    def origin(row: int) -> tuple[int, str]:
        for block in blocks:
            if row < block.parsed.rows.num_rows:
                return block.parsed.origin(row)
            row -= block.parsed.rows.num_rows
        raise IndexError(row)

    return origin


def _stopped(name: str) -> SbonError:
    return SbonError("source-stopped", "the source does not run just now", where=name, hint="post it again, with the same key")
