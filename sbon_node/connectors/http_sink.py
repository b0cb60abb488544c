"""Sink ``http``: posts the rows of each frame to a URL, at least once (a webhook).

The frame's name, the same however often it is posted, is in ``Idempotency-Key``: whoever remembers it has each row once. A source
``http`` does. A frame that is refused for what is in it goes to the dead letters; everything else is tried again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Literal
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Meta
from yarl import URL

from sbon_node.connectors import sink_files
from sbon_node.connectors.endpoints import Endpoint, read_endpoint
from sbon_node.connectors.held import HeldRows
from sbon_node.connectors.held_sink import HeldSink
from sbon_node.connectors.interface import AWAY
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sink_context import SinkContext
from sbon_node.connectors.stated import Refused, Stated, StatedFile
from sbon_node.errors import SbonError

PORTS = {"http": 80, "https": 443}
MEDIA_TYPES = {"ndjson": "application/x-ndjson", "csv": "text/csv"}
REFUSALS = frozenset({400, 413, 415, 422})
"""Answers that say of the rows themselves that they will never be taken."""
MAX_HELD_BYTES = 4 * 1024 * 1024
FLUSH_S = 0.05
MAX_WAIT_S = 300.0


class HttpSinkOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the sink ``http``."""

    url: Annotated[
        str, Meta(min_length=1, max_length=4096, description="where to post; user:password@ become basic authentication")
    ]
    format: Annotated[Literal["ndjson", "csv"], Meta(description="of the body; CSV names its columns in the first line")] = (
        "ndjson"
    )
    headers: Annotated[
        dict[str, str], Meta(max_length=32, description='more headers, as {"Authorization": "Bearer ..."}; never shown')
    ] = {}
    timeout_s: Annotated[float, Meta(gt=0, le=3600, description="seconds a post may take")] = 30.0


def check_http(options: HttpSinkOptions, settings: ConnectorSettings) -> Endpoint:
    """Raises ``bad-option``, ``outside-endpoints``."""
    for name, value in options.headers.items():
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum() or not value.isprintable():
            raise SbonError("bad-option", "no name and value of a header", where=f"options.headers.{name[:40]}")
    endpoint = read_endpoint(options.url, PORTS, settings)
    try:
        URL(options.url)
    except ValueError as error:
        raise SbonError("bad-option", "no URL that can be posted to", where="options.url") from error
    return endpoint


class HttpSink(HeldSink):
    """See :class:`sbon_node.connectors.interface.Sink`."""

    flush_after_s = FLUSH_S
    max_held_bytes = MAX_HELD_BYTES

    def __init__(self, context: SinkContext, options: HttpSinkOptions, stated: Stated) -> None:
        super().__init__(context, stated)
        endpoint = check_http(options, context.settings)
        self._options = options
        self._url = URL(options.url).with_user(None)
        self._shown = str(self._url.with_query(None))
        login = aiohttp.encode_basic_auth(endpoint.user, endpoint.password) if endpoint.user else ""
        self._login = {"Authorization": login} if login else {}
        self._file = StatedFile(context.data_dir, context.claim)
        self._session: aiohttp.ClientSession | None = None
        self._not_before = -math.inf

    async def close(self) -> None:
        await super().close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _deliver(self, *, finished: bool) -> None:
        """As far as it goes: what was taken at the other end is stated, also where the next frame was not, or is waited for no
        longer."""
        posted: list[tuple[HeldRows, str]] = []
        try:
            for one in self._held.frames:
                posted.append((one, await self._post(one)))
        except asyncio.CancelledError:
            with suppress(SbonError):  # it is posted again then, under the same key
                await self._posted(posted, finished=False)
            raise
        except SbonError:
            await self._posted(posted, finished=False)
            raise
        await self._posted(posted, finished=finished)

    async def _posted(self, posted: Sequence[tuple[HeldRows, str]], *, finished: bool) -> None:
        """``posted`` are the first of the frames held, each with why its rows were refused, empty where they were taken."""
        whole = len(posted) == len(self._held.frames)
        streams = self._held.taken if whole else self.positions() | {one.stream: one.number for one, _ in posted}
        ended = self._held.ended_by(streams)
        refused = [
            Refused(one.stream, one.number, i, one.rows, reason)
            for one, reason in posted
            if reason
            for i in range(one.rows.num_rows)
        ]
        rows = sum(one.rows.num_rows for one, reason in posted if not reason)
        await self._write_letters(refused)
        stated = self._advanced(streams, ended, rows, refused=len(refused), finished=finished)
        if stated != self._at:
            await self._state(self._file, stated)
        self._held.drop(len(posted))

    async def _post(self, frame: HeldRows) -> str:
        """Why its rows were refused, empty where they were taken; raises :data:`AWAY` for whatever may be otherwise later."""
        await self._context.clock.sleep(max(0.0, self._not_before - self._context.clock.now()))
        content = sink_files.beginning(self._options.format, self._context.schema)
        content += sink_files.text(self._options.format, frame.rows)
        headers = {
            "Content-Type": MEDIA_TYPES[self._options.format],
            **self._login,
            **self._options.headers,
            "Idempotency-Key": quote(f"{self._context.claim}-{frame.stream}-{frame.number}", safe="@.-_"),
        }
        try:
            async with self._opened().post(self._url, data=content, headers=headers, allow_redirects=False) as answer:
                status = answer.status
                if 200 <= status < 300:
                    return ""
                if status in REFUSALS:
                    return f"{self._shown} answers {status} {answer.reason}"
                self._put_off(answer.headers.get("Retry-After", ""))
                raise SbonError(AWAY, f"it answers {status} {answer.reason}", where=self._shown)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or f"no answer within {self._options.timeout_s:g} s"
            raise SbonError(AWAY, reason, where=self._shown) from error

    def _put_off(self, retry_after: str) -> None:
        """As many seconds as were asked for, within reason."""
        if retry_after.strip().isdigit():
            self._not_before = self._context.clock.now() + min(float(retry_after), MAX_WAIT_S)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._options.timeout_s)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        return self._session


async def open_http(context: SinkContext, options: HttpSinkOptions) -> HttpSink:
    check_http(options, context.settings)
    file = StatedFile(context.data_dir, context.claim)
    return HttpSink(context, options, await context.blocking(file.make if context.fresh else file.take_up))
