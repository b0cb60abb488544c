"""A run without rows of an operator that is kept here: its engine then has loaded and compiled what a take-over needs."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec
import structlog

from sbon_node.base.clock import Clock
from sbon_node.engine.interface import Engine
from sbon_node.model.frames import Frame, FrameDraft, InputOffset
from sbon_node.streams.skipped import SkippedRows
from sbon_protocol.api.durability import LOCAL
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

FRAMES = 2
"""Batches of a rehearsal: the second one reads state that the first has written."""
MOST_KINDS = 256
"""Kinds of operators that are remembered as rehearsed."""


class RehearsalPort:
    """An :class:`~sbon_node.engine.interface.OperatorPort` with frames without rows, whose output is dropped."""

    def __init__(self, spec: OperatorSpec, clock: Clock) -> None:
        self.over = asyncio.Event()
        self._spec, self._clock, self._read = spec, clock, 0

    async def store(self, committed: int | None) -> None:
        """Store nothing elsewhere."""

    def recover(self, committed: int | None) -> None:
        """Make nothing visible."""

    def has_batch(self, batch: int) -> bool:
        return True

    def visible_batch(self) -> int:
        return -1

    def is_awaited(self) -> bool:
        return False

    async def poll(self, after: tuple[InputOffset, ...], wait_s: float) -> tuple[InputOffset, ...]:
        """Offer the next frame of each input, one after another."""
        offered = tuple(InputOffset(frame=min(offset.frame + 1, FRAMES), incarnation=1) for offset in after)
        if offered == after:
            await self._clock.sleep(wait_s)
        return offered

    async def fetch(self, position: int, after_frame: int, upto_frame: int) -> list[Frame]:
        stream = self._spec.inputs[position].stream
        return [Frame(stream=stream, number=number, payload=b"", rows=0) for number in range(after_frame + 1, upto_frame + 1)]

    async def write(
        self, batch: int, offsets: tuple[InputOffset, ...], drafts: list[FrameDraft], skipped: SkippedRows | None = None
    ) -> None:
        self._read = min(offset.frame for offset in offsets)

    def spent(self, cpu_s: float) -> None:
        """Count nothing."""

    async def committed(self, batch: int) -> None:
        if self._read >= FRAMES:
            self.over.set()


class Rehearsals:
    """Rehearsals on one engine, one at a time and each kind of operator once in the engine's life."""

    def __init__(self, engine: Engine, clock: Clock, folder: Path, longest_s: float) -> None:
        """``folder`` is that of the engine's checkpoints; a rehearsal that takes more than ``longest_s`` seconds is given up."""
        self._engine, self._clock, self._folder, self._longest_s = engine, clock, folder, longest_s
        self._rehearsed: dict[bytes, int] = {}
        """The engine's start in which each kind was rehearsed, the oldest first."""
        self._lock = asyncio.Lock()

    async def rehearse(self, spec: OperatorSpec) -> None:
        """Start the engine, and run the operator without rows. Raises :class:`SbonError` if it does not run."""
        async with self._lock:
            await self._engine.start()
            kind = _kind(spec)
            if self._longest_s == 0 or self._rehearsed.get(kind) == self._engine.starts:
                return
            await self._run(spec)
            self._rehearsed.pop(kind, None)
            self._rehearsed[kind] = self._engine.starts
            while len(self._rehearsed) > MOST_KINDS:
                del self._rehearsed[next(iter(self._rehearsed))]

    async def _run(self, spec: OperatorSpec) -> None:
        name = f"{spec.id}.rehearsal"
        port, folder = RehearsalPort(spec, self._clock), self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            async with self._clock.timeout(self._longest_s):
                await self._engine.instantiate(msgspec.structs.replace(spec, id=name, durability=LOCAL), port, folder)
                await port.over.wait()
        except TimeoutError:
            raise SbonError("timeout", f"no batch without rows within {self._longest_s:g} s", where=spec.id) from None
        finally:
            await self._engine.destroy(name)
            shutil.rmtree(folder, ignore_errors=True)


def _kind(spec: OperatorSpec) -> bytes:
    """Return what decides which code an engine loads for an operator."""
    inputs = tuple((one.view, one.event_time, one.schema) for one in spec.inputs)
    flags = (spec.on_error, spec.reader, spec.blocks, spec.groups_per_batch, spec.state_provider)
    return msgspec.msgpack.encode((spec.fragment, inputs, flags))
