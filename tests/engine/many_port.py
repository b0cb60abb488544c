"""A node's side of an operator with several inputs, whose watermarks a test tells."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pyarrow as pa

from sbon_node.model.frames import NO_WATERMARK_MS, Frame, FrameDraft, InputOffset
from sbon_node.streams.skipped import SkippedRows
from tests.engine.toy_port import ToyPort, payload_of


class ManyPort(ToyPort):
    """Offers all there is. ``reissues``: each start tells the inputs' last watermarks again, as a node does."""

    def __init__(self, inputs: int, *, reissues: bool = True) -> None:
        super().__init__()
        self.inputs: list[list[Frame]] = [[] for _ in range(inputs)]
        self.offsets: dict[int, tuple[InputOffset, ...]] = {}
        self._reissues = reissues
        self._free, self._stuck = asyncio.Event(), 0
        self._free.set()

    async def tell(self, watermark_ms: int, *positions: int, table: pa.Table | None = None, ended: bool = False) -> None:
        """One more frame of these inputs, or of all, that promises no row before ``watermark_ms``."""
        for position in positions or range(len(self.inputs)):
            frames = self.inputs[position]
            rows, payload = (table.num_rows, payload_of(table)) if table is not None else (0, b"")
            frame = Frame(stream="in", number=len(frames) + 1, rows=rows, payload=payload, watermark_ms=watermark_ms, ended=ended)
            frames.append(frame)
        await self._tell()

    async def tell_changed(self) -> None:
        """Let readers look again: another port with the same inputs has been told."""
        await self._tell()

    @property
    def promised_ms(self) -> int:
        """By the newest visible batch."""
        drafts = [draft for batch, drafts in self.output.items() if batch <= self.visible for draft in drafts]
        return max([draft.watermark_ms for draft in drafts], default=NO_WATERMARK_MS)

    async def wait_read(self) -> None:
        """Until a visible batch has read all there is."""
        upto = [len(frames) for frames in self.inputs]
        await self._wait(lambda: [one.frame for one in self.offsets.get(self.visible, ())] == upto)

    async def wait_promised(self, watermark_ms: int) -> None:
        await self._wait(lambda: self.promised_ms >= watermark_ms)

    async def poll(self, after: tuple[InputOffset, ...], wait_s: float) -> tuple[InputOffset, ...]:
        if self._restarted:
            self._restarted = False
            self._incarnation = max(self._incarnation, *(one.incarnation for one in after)) + 1
            if not self._reissues:
                self._incarnation = max(1, *(one.incarnation for one in after))
        try:
            async with asyncio.timeout(wait_s), self._changed:
                await self._changed.wait_for(lambda: self._offer(after) != self._quiet(after))
        except TimeoutError:
            return after
        return self._offer(after)

    def _offer(self, after: tuple[InputOffset, ...]) -> tuple[InputOffset, ...]:
        offered = []
        for frames, before in zip(self.inputs, after, strict=True):
            newest = frames[-1] if frames else Frame(stream="in", number=0, rows=0, payload=b"")
            offered.append(
                InputOffset(
                    frame=newest.number,
                    watermark_ms=max(before.watermark_ms, newest.watermark_ms),
                    ended=newest.ended,
                    incarnation=self._incarnation,
                )
            )
        return tuple(offered)

    def _quiet(self, after: tuple[InputOffset, ...]) -> tuple[InputOffset, ...]:
        """Return the same offsets, which mean no news, with this start's incarnation where there are none."""
        return tuple(msgspec.structs.replace(one, incarnation=self._incarnation) if not one.frame else one for one in after)

    def hold_writes(self) -> None:
        """From now on a write is answered by nothing, until :meth:`let_go`."""
        self._free.clear()

    def let_go(self) -> None:
        self._free.set()

    async def wait_held(self) -> None:
        await self._wait(lambda: self._stuck > 0)

    async def fetch(self, position: int, after_frame: int, upto_frame: int) -> list[Frame]:
        return self.inputs[position][after_frame:upto_frame]

    async def write(
        self, batch: int, offsets: Sequence[InputOffset], drafts: list[FrameDraft], skipped: SkippedRows | None = None
    ) -> None:
        if not self._free.is_set():
            self._stuck += 1
            await self._tell()
            await self._free.wait()
        self.offsets[batch] = tuple(offsets)
        await super().write(batch, offsets, drafts, skipped)
