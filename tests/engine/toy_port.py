"""A node's side of one operator, in memory: what the engine is given in its own tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pyarrow as pa

from sbon_node.model.frames import Frame, FrameDraft, InputOffset
from sbon_node.streams.payload import unpack
from sbon_node.streams.skipped import SkippedRows
from sbon_protocol.errors import SbonError
from tests.engine.states import PATIENCE_S


def payload_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


class ToyPort:
    """One input. Output becomes visible by ``committed``, as in a node; ``refusal`` is raised by the next writes, and
    ``commit_refusal`` by the next commits."""

    def __init__(self) -> None:
        self.input: list[Frame] = []
        self.output: dict[int, list[FrameDraft]] = {}
        self.skipped: dict[int, SkippedRows] = {}
        self.visible = -1
        self.cpu_s = 0.0
        self.refusal: SbonError | None = None
        self.commit_refusal: Exception | None = None
        self.refused = 0
        self.awaited = True
        self._changed = asyncio.Condition()
        self._incarnation = 0
        self._restarted = True

    async def feed(self, table: pa.Table | None, *, ended: bool = False, born_ms: int = 0) -> None:
        rows, payload = (table.num_rows, payload_of(table)) if table is not None else (0, b"")
        number = len(self.input) + 1
        self.input.append(
            Frame(stream="in", number=number, rows=rows, payload=payload, watermark_ms=number, ended=ended, born_ms=born_ms)
        )
        await self._tell()

    async def wait_ended(self) -> pa.Table:
        """All visible rows, once the end is among them."""
        await self._wait(lambda: any(d.ended for b in self.output if b <= self.visible for d in self.output[b]))
        return self.rows()

    async def wait_visible(self, batch: int) -> None:
        await self._wait(lambda: self.visible >= batch)

    async def wait_seen(self, number: int) -> None:
        """Until a visible row has this ``n``."""
        await self._wait(lambda: self.rows_visible() > 0 and number in self.rows()["n"].to_pylist())

    def rows_visible(self) -> int:
        return sum(draft.rows for batch in self.output if batch <= self.visible for draft in self.output[batch])

    async def wait_refused(self) -> None:
        await self._wait(lambda: self.refused > 0)

    def rows(self) -> pa.Table:
        drafts = [draft for batch in sorted(self.output) if batch <= self.visible for draft in self.output[batch]]
        return pa.concat_tables(pa.Table.from_batches([unpack(draft.payload)]) for draft in drafts if draft.payload)

    async def store(self, committed: int | None) -> None:
        """Store nothing elsewhere."""

    def recover(self, committed: int | None) -> None:
        self.visible = max(self.visible, -1 if committed is None else committed)
        self._restarted = True

    def spent(self, cpu_s: float) -> None:
        self.cpu_s += cpu_s

    def has_batch(self, batch: int) -> bool:
        return batch in self.output

    def visible_batch(self) -> int:
        return self.visible

    def is_awaited(self) -> bool:
        return self.awaited

    async def poll(self, after: tuple[InputOffset, ...], wait_s: float) -> tuple[InputOffset, ...]:
        (offset,) = after
        if self._restarted:
            self._restarted, self._incarnation = False, max(self._incarnation, offset.incarnation) + 1
        try:
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(
                    lambda: len(self.input) > offset.frame or (offset.frame > 0 and offset.incarnation != self._incarnation)
                )
        except TimeoutError:
            return after
        newest = self.input[-1]
        return (
            InputOffset(frame=newest.number, watermark_ms=newest.watermark_ms, ended=newest.ended, incarnation=self._incarnation),
        )

    async def fetch(self, position: int, after_frame: int, upto_frame: int) -> list[Frame]:
        return self.input[after_frame:upto_frame]

    async def write(
        self, batch: int, offsets: Sequence[InputOffset], drafts: list[FrameDraft], skipped: SkippedRows | None = None
    ) -> None:
        if self.refusal is not None:
            self.refused += 1
            await self._tell()
            raise self.refusal
        if batch > self.visible:
            self.output[batch] = drafts
            if skipped is not None:
                self.skipped[batch] = skipped
        await self._tell()

    async def committed(self, batch: int) -> None:
        if self.commit_refusal is not None:
            raise self.commit_refusal
        self.visible = max(self.visible, batch)
        await self._tell()

    async def _wait(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(condition)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
