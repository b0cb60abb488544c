"""A batch on its way to the backup: files of the checkpoint that are new there, and the frames after those it has."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sbon_node.base.executors import Executor
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.interface import MovingEngine
from sbon_node.engine.manifest import CopiedFile, Manifest
from sbon_node.model.frames import Frame
from sbon_node.streams.outbox.copies import StreamState
from sbon_node.streams.outbox.outbox import Outbox
from sbon_protocol.errors import SbonError

PIECE_BYTES, PIECE_FRAMES = 2**20, 1024
"""Most bytes and frames in one call, but at least one frame: as in the handover of a move. No settings: both must stay below the
limits of a message, and a larger call would only save round trips of a first copy."""


class Piece(NamedTuple):
    """Frames after number ``after``; with the last ones there are no ``more``."""

    state: StreamState
    after: int
    frames: list[Frame]
    more: bool


class CheckpointCopy:
    """A second name for each file of an operator's checkpoint, in a ``folder`` of its own, as of one batch after another."""

    def __init__(self, operator: str, engine: MovingEngine, folder: Path, executor: Executor) -> None:
        self._operator, self._engine, self.folder, self._executor = operator, engine, folder, executor
        self._manifest: Manifest | None = None

    async def of(self, batch: int) -> Manifest:
        """Return the files of the checkpoint as of a committed batch; only new ones are read.

        Raises :class:`SbonError` as :meth:`MovingEngine.copy_checkpoint`.
        """
        if self._manifest is None:
            await self.clear()
        known, self._manifest = self._manifest, None
        self._manifest = await self._engine.copy_checkpoint(self._operator, batch, self.folder, known)
        return self._manifest

    def before(self, batch: int) -> tuple[int, ...]:
        """Return the last frame of each input before a copied batch; nothing before the first one. Blocks."""
        try:
            return tuple(offset.frame for offset in BatchLog(self.folder).read_offsets(batch - 1)) if batch > 0 else ()
        except (OSError, ValueError):
            return ()

    async def clear(self) -> None:
        self._manifest = None
        await self._executor(partial(shutil.rmtree, self.folder, ignore_errors=True))

    def read(self, file: CopiedFile) -> bytes:
        """Return the content of a small file. Blocks."""
        return (self.folder / file.path).read_bytes()


def pieces(outbox: Outbox, operator: str, batch: int, after: int) -> Iterator[Piece]:
    """Yield the frames of an operator's stream after number ``after`` that are retained, up to those of ``batch``."""
    more = True
    while more:
        state, _ = outbox.handover.unshown(operator, batch, after, 0)
        after = max(after, state.trimmed)
        state, frames = outbox.handover.unshown(operator, batch, after, PIECE_BYTES)
        frames = frames[:PIECE_FRAMES]
        last = frames[-1].number if frames else state.tail.last
        more = last < state.tail.last
        yield Piece(state, after, frames, more)
        after = last


def missing_from(manifest: Manifest, known: frozenset[str]) -> list[CopiedFile]:
    """Return the files whose content the backup does not have, each content once."""
    return list({file.digest: file for file in manifest.files if file.digest not in known}.values())


def superseded(error: SbonError) -> bool:
    """Return whether a newer batch must be stored instead."""
    return error.code in ("checkpoint-superseded", "batch-unknown")
