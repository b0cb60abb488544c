"""A node with switches, for tests of the HTTP API, and the rows it delivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from sbon_node.config.api import ApiSettings
from sbon_node.net.transport import Address
from sbon_protocol.api.catalogue import CatalogEntry, StreamDeclaration
from sbon_protocol.api.delivery import Finished, Rows
from sbon_protocol.api.nodes import MemberInfo, NodeStatus
from sbon_protocol.api.queries import Accepted, Progress, Submission
from sbon_protocol.api.streams import StreamInfo
from sbon_protocol.errors import SbonError
from tests.api.scripted_node import ScriptedNode

SETTINGS = ApiSettings(max_body_bytes=4096, max_connections=4, keepalive_s=0.05, shutdown_s=1.0)


class SwitchedNode(ScriptedNode):
    """A scripted node with a catalogue of its own, and switches for what it refuses and what it waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, CatalogEntry] = {}
        self.events: list[Rows | Finished | BaseException] = []
        self.steps: list[Progress | Accepted | BaseException] = []
        self.open_followers = 0
        self.more = asyncio.Event()
        self.follower_gone = asyncio.Event()
        self.refusal: SbonError | Exception | None = None
        self.asked_to_join = asyncio.Semaphore(0)
        self.joining = asyncio.Event()
        self.joined: list[str] = []

    def status(self) -> NodeStatus:
        if self.refusal is not None:
            raise self.refusal
        return super().status()

    def members(self, near: str = "", within_ms: float | None = None) -> list[MemberInfo]:
        if near or within_ms is not None:
            self.sought.append((near, within_ms))
        return [
            MemberInfo(
                name="a", state="alive", address="x:1", api="x:2", incarnation=1, coordinate=None, rtt_ms=None, measured=False
            )
        ]

    async def join(self, addresses: Sequence[Address]) -> int:
        self.asked_to_join.release()
        await self.joining.wait()
        self.joined.extend(map(str, addresses))
        return len(self.joined) + 1

    async def create_stream(self, declaration: StreamDeclaration) -> None:
        if declaration.name in self.entries:
            raise SbonError("stream-exists", "there is one already", where="name", hint="drop it", details=("made by b",))
        self.entries[declaration.name] = CatalogEntry(declaration=declaration)

    async def streams(self) -> list[StreamInfo]:
        return [StreamInfo(entry=entry) for entry in self.entries.values()]

    async def stream(self, name: str) -> StreamInfo:
        if name not in self.entries:
            raise SbonError("unknown-stream", f"there is no stream {name!r}")
        return StreamInfo(entry=self.entries[name])

    async def drop_stream(self, name: str) -> None:
        self.entries.pop(name)

    async def submit(self, submission: Submission) -> AsyncIterator[Progress | Accepted]:
        self.submitted.append(submission)
        for step in self.steps:
            if isinstance(step, BaseException):
                raise step
            yield step

    async def follow(
        self, query_id: str, after: dict[str, int], sink: str = "", word: str = ""
    ) -> AsyncIterator[Rows | Finished]:
        if query_id != "q1":
            raise SbonError("unknown-query", f"there is no query {query_id!r}")
        if self.open_followers:
            raise SbonError("already-followed", "somebody follows it already")
        self.after.append(after)
        self.open_followers += 1
        try:
            for event in self.events:
                if isinstance(event, BaseException):
                    raise event
                if isinstance(event, Rows) and event.number <= after.get(event.stream, 0):
                    continue
                yield event
            await self.more.wait()
        finally:
            self.open_followers -= 1
            self.follower_gone.set()


def rows(number: int, *values: tuple[Any, ...]) -> Rows:
    return Rows(stream="s", number=number, columns=("x",), rows=values, watermark_ms=0, delay_ms=1)
