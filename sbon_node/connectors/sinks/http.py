"""Sink ``http``: a webhook that posts each frame's rows to a URL, at least once.

``Idempotency-Key`` carries the frame's name, which is the same on every attempt: a receiver that remembers it gets each row once.
The source ``http`` does so. A frame that is refused for its content goes to the dead letters; all other failures are retried.
"""

import asyncio
import math
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Annotated, Literal
from urllib.parse import quote

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Meta
from yarl import URL

from sbon_node.base.connecting import reason_of
from sbon_node.connectors.access.endpoints import Endpoint, check_named, has_secret_channel, no_cleartext, read_endpoint
from sbon_node.connectors.access.permitted import checked_addresses, is_same_host
from sbon_node.connectors.access.secrets import is_reference, read_secret
from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks import file_formats
from sbon_node.connectors.sinks.buffer import BufferedRows, BufferedSink, Refused
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition, DeliveryPositionFile
from sbon_protocol.errors import SbonError

PORTS = {"http": 80, "https": 443}
MEDIA_TYPES = {"ndjson": "application/x-ndjson", "csv": "text/csv"}
REFUSALS = frozenset({400, 413, 415, 422})
"""HTTP status codes that refuse the rows themselves for good."""
MAX_BUFFERED_BYTES = 4 * 1024 * 1024
FLUSH_S = 0.05
MAX_WAIT_S = 300.0
REACH_S = 5.0
"""Time for a connection to a webhook that this node may take over; below the wait of the node that asks."""


class HttpSinkOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the sink ``http``."""

    url: Annotated[str, Meta(min_length=1, max_length=4096)]
    """where to post, or a reference to that; user@ and the password become basic authentication"""
    password: Annotated[str, Meta(max_length=256)] = ""
    """of the user in the URL: env:SBON_SECRET_NAME or file:NAME, read by the sink's node"""
    format: Literal["ndjson", "csv"] = "ndjson"
    """of the body; CSV names its columns in the first line"""
    headers: Annotated[dict[str, str], Meta(max_length=32)] = {}
    """more headers, as {"Authorization": "file:NAME"}; values of secrets are references; never shown"""
    timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """seconds a post may take"""


def check_http(options: HttpSinkOptions, settings: ConnectorSettings) -> Endpoint:
    """Check the options; raise ``bad-option``, ``outside-endpoints``."""
    for name, value in options.headers.items():
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum() or not value.isprintable():
            raise SbonError("bad-option", "no name and value of a header", where=f"options.headers.{name[:40]}")
    endpoint = read_endpoint(options.url, PORTS, settings, password=options.password)
    secrets = [name for name, value in options.headers.items() if is_reference(value)]
    if secrets:
        check_named(endpoint.host, endpoint.port, settings)
        _headers(options, settings)
    open_channel = endpoint.scheme == "https" or has_secret_channel(endpoint.host, endpoint.port, settings)
    if (secrets or endpoint.password or is_reference(options.url)) and not open_channel:
        raise no_cleartext("options.url", "use https://, or name the host in connectors.cleartext")
    _url(options, endpoint, settings)
    return endpoint


def _url(options: HttpSinkOptions, endpoint: Endpoint, settings: ConnectorSettings) -> URL:
    """Return the URL for posting. Its host must equal the checked host, even if a parser could read the URL differently."""
    try:
        url = URL(read_secret(options.url, settings, "options.url")).with_user(None)
    except ValueError as error:
        raise SbonError("bad-option", "no URL that can be posted to", where="options.url") from error
    if not is_same_host(url.host or "", endpoint.host) or url.port != endpoint.port:
        raise SbonError("bad-option", "the URL can be read as that of another host", where="options.url")
    return url


def _headers(options: HttpSinkOptions, settings: ConnectorSettings) -> dict[str, str]:
    headers = {name: read_secret(value, settings, f"options.headers.{name}") for name, value in options.headers.items()}
    for name, value in headers.items():
        if not value.isprintable():
            raise SbonError("bad-option", "no value of a header", where=f"options.headers.{name[:40]}")
    return headers


class _Checked(AbstractResolver):
    """A resolver that gives the HTTP client only the permitted addresses."""

    def __init__(self, settings: ConnectorSettings) -> None:
        self._settings = settings

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        addresses = await checked_addresses(host, port, self._settings)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Do nothing: the resolver holds no resources."""


class HttpSink(BufferedSink):
    """See :class:`sbon_node.connectors.interface.Sink`."""

    flush_after_s = FLUSH_S
    max_buffered_bytes = MAX_BUFFERED_BYTES

    def __init__(self, context: SinkContext, options: HttpSinkOptions, stored: DeliveryPosition) -> None:
        super().__init__(context, stored)
        endpoint = check_http(options, context.settings)
        self._options = options
        self._url = _url(options, endpoint, context.settings)
        self._shown = str(self._url.origin() if is_reference(options.url) else self._url.with_query(None))
        self._headers = _headers(options, context.settings)
        login = aiohttp.encode_basic_auth(endpoint.user, endpoint.password) if endpoint.user else ""
        self._login = {"Authorization": login} if login else {}
        self._file = DeliveryPositionFile(context.data_dir, context.claim)
        self._session: aiohttp.ClientSession | None = None
        self._not_before = -math.inf

    async def close(self) -> None:
        await super().close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _deliver(self, *, finished: bool) -> None:
        """Deliver as many frames as possible; accepted ones count, even if the next one fails or its post is cancelled."""
        posted: list[tuple[BufferedRows, str]] = []
        try:
            for frame in self._buffer.frames:
                posted.append((frame, await self._post(frame)))
        except asyncio.CancelledError:
            with suppress(SbonError):  # the frame is posted again under the same key
                await self._posted(posted, finished=False)
            raise
        except SbonError:
            await self._posted(posted, finished=False)
            raise
        await self._posted(posted, finished=finished)

    async def _posted(self, posted: Sequence[tuple[BufferedRows, str]], *, finished: bool) -> None:
        """Record the first held frames as delivered, each with the reason of its refusal, empty if it was accepted."""
        is_complete = len(posted) == len(self._buffer.frames)
        streams = self._buffer.taken if is_complete else self.positions() | {frame.stream: frame.number for frame, _ in posted}
        ended = self._buffer.ended_by(streams)
        bad = [(frame, reason, i) for frame, reason in posted if reason for i in range(frame.rows.num_rows)]
        refused = [Refused(frame.stream, frame.number, i, frame.rows, reason) for frame, reason, i in bad]
        rows = sum(frame.rows.num_rows for frame, reason in posted if not reason)
        await self._write_letters(refused)
        position = self._advanced(streams, ended, rows, refused=len(refused), finished=finished)
        if position != self._at:
            await self._state(self._file, position)
        self._buffer.drop(len(posted))

    async def _post(self, frame: BufferedRows) -> str:
        """Post a frame; return why it was refused, empty if it was accepted. Raises :data:`AWAY` for failures that may pass."""
        await self._context.clock.sleep(max(0.0, self._not_before - self._context.clock.now()))
        content = file_formats.beginning(self._options.format, self._context.schema)
        content += file_formats.text(self._options.format, frame.rows)
        headers = {
            "Content-Type": MEDIA_TYPES[self._options.format],
            **self._login,
            **self._headers,
            "Idempotency-Key": quote(f"{self._context.claim}-{frame.stream}-{frame.number}", safe="@.-_"),
        }
        try:
            async with self._opened().post(self._url, data=content, headers=headers, allow_redirects=False) as answer:
                status = answer.status
                if 200 <= status < 300:
                    return ""
                if status in REFUSALS:
                    return f"{self._shown} answers {status} {answer.reason}"
                wait_s = requested_wait_s(answer.headers, self._context.clock.wall_ms() / 1000)
                self._not_before = self._context.clock.now() + min(wait_s, MAX_WAIT_S)
                raise SbonError(AWAY, f"it answers {status} {answer.reason}", where=self._shown)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = reason_of(error) or f"no answer within {self._options.timeout_s:g} s"
            raise SbonError(AWAY, reason, where=self._shown) from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._options.timeout_s)
            connector = aiohttp.TCPConnector(resolver=_Checked(self._context.settings), use_dns_cache=False)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), connector=connector)
        return self._session


def requested_wait_s(headers: Mapping[str, str], now_s: float) -> float:
    """Return the seconds that ``Retry-After`` asks for (RFC 9110, section 10.2.3); 0 if there is none, or none that can be read.

    A date counts from the answer's own ``Date``, if it has one, so that the clocks of the two ends need not agree; else from
    ``now_s``, in seconds since 1970.
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    at_s, date_s = _seconds_since_1970(text), _seconds_since_1970(headers.get("Date", ""))
    return max(0.0, at_s - (now_s if date_s is None else date_s)) if at_s is not None else 0.0


def _seconds_since_1970(date: str) -> float | None:
    """Read a date in one of the three forms of RFC 9110, section 5.6.7."""
    try:
        time = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    return time.replace(tzinfo=time.tzinfo or UTC).timestamp()


async def open_http(context: SinkContext, options: HttpSinkOptions) -> HttpSink:
    """Open the sink; one that was taken over goes on after the frames that its former host had acknowledged."""
    endpoint = check_http(options, context.settings)
    if context.fresh:
        try:
            await checked_addresses(endpoint.host, endpoint.port, context.settings)
        except SbonError as error:
            if error.code != AWAY:
                raise
    file = DeliveryPositionFile(context.data_dir, context.claim)

    def position() -> DeliveryPosition:
        if context.fresh or (context.acknowledged is not None and not file.path.exists()):
            return file.make(context.acknowledged)
        return file.take_up()

    return HttpSink(context, options, await context.executor(position))


async def reach_http(context: SinkContext, options: HttpSinkOptions) -> None:
    """Raise ``endpoint-unreachable`` unless the webhook's host accepts a connection from here; post nothing."""
    endpoint = check_http(options, context.settings)
    try:
        async with asyncio.timeout(REACH_S):
            address = (await checked_addresses(endpoint.host, endpoint.port, context.settings))[0]
            _, writer = await asyncio.open_connection(address, endpoint.port)
    except (TimeoutError, OSError) as error:
        reason = reason_of(error) or f"no connection within {REACH_S:g} s"
        raise SbonError(AWAY, reason, where=f"{endpoint.host}:{endpoint.port}") from error
    writer.close()
