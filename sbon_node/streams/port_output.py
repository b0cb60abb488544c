"""The two destinations of an operator's output: its stream in the outbox, or nothing while it only follows another host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sbon_node.model.frames import FrameDraft, InputOffset
from sbon_node.streams.outbox.ledger import Tail, advance, number_frames, with_news
from sbon_node.streams.outbox.outbox import Outbox
from sbon_protocol.errors import BrokenInvariantError


class Backup(Protocol):
    """The place at another node for what an operator shows."""

    async def store(self, batch: int) -> None:
        """Return once everything up to the committed ``batch`` is stored there, its checkpoint included."""
        ...


class PortOutput(Protocol):
    """An operator's batches: written first, visible once committed and, with a backup, stored there."""

    def newest(self) -> int:
        """Return the newest batch written; -1 before the first."""
        ...

    def visible(self) -> int:
        """Return the newest visible batch; -1 before the first."""
        ...

    def offsets(self) -> tuple[InputOffset, ...]:
        """Return the input offsets of the newest visible batch; none before the first."""
        ...

    def has_batch(self, batch: int) -> bool: ...

    def write(self, batch: int, offsets: tuple[InputOffset, ...], drafts: Sequence[FrameDraft]) -> None: ...

    async def store(self, batch: int) -> None:
        """Wait until the committed ``batch`` may become visible."""
        ...

    def publish(self, batch: int) -> tuple[InputOffset, ...]:
        """Make everything up to ``batch`` visible; return :meth:`offsets`."""
        ...

    def is_full(self) -> bool: ...

    def is_awaited(self) -> bool:
        """Return whether a reader has received everything that is visible, and so waits for more."""
        ...

    async def wait_room(self) -> None: ...


class Published:
    """The operator's stream, which is open in the outbox."""

    def __init__(self, outbox: Outbox, operator: str, backup: Backup | None = None) -> None:
        self._outbox, self._operator, self._backup = outbox, operator, backup

    def newest(self) -> int:
        return self._outbox.newest(self._operator)

    def visible(self) -> int:
        return self._outbox.visible_batch(self._operator)

    def offsets(self) -> tuple[InputOffset, ...]:
        visible = self.visible()
        return () if visible < 0 else self._outbox.batch_offsets(self._operator, visible)

    def has_batch(self, batch: int) -> bool:
        return self._outbox.has_batch(self._operator, batch)

    def write(self, batch: int, offsets: tuple[InputOffset, ...], drafts: Sequence[FrameDraft]) -> None:
        self._outbox.write_batch(self._operator, batch, offsets, drafts)

    async def store(self, batch: int) -> None:
        if self._backup is not None and batch > self.visible():
            await self._backup.store(batch)

    def publish(self, batch: int) -> tuple[InputOffset, ...]:
        return self._outbox.publish(self._operator, batch)

    def is_full(self) -> bool:
        return self._outbox.pressure(self._operator)

    def is_awaited(self) -> bool:
        if self._operator not in self._outbox.streams():
            return False
        newest, readers = self._outbox.latest(self._operator), self._outbox.link_counts(self._operator).links.values()
        return any(not reader.failed and reader.received >= newest for reader in readers)

    async def wait_room(self) -> None:
        await self._outbox.wait_room(self._operator)


class Discarded:
    """The output of a follower, of which only the totals are kept: frames, rows and bytes, added to those of ``base``.

    ``base`` is the state of the host's stream after the batch whose checkpoint was copied. Nothing of it survives the process:
    a follower begins with another copy then.
    """

    def __init__(self, operator: str, base: Tail) -> None:
        self._operator = operator
        self.tail = base
        """The state after the newest committed batch."""
        self._pending: list[Tail] = []

    def newest(self) -> int:
        return self._pending[-1].batch if self._pending else self.tail.batch

    def visible(self) -> int:
        return self.tail.batch

    def offsets(self) -> tuple[InputOffset, ...]:
        return self.tail.offsets

    def has_batch(self, batch: int) -> bool:
        return 0 <= batch <= self.newest()

    def write(self, batch: int, offsets: tuple[InputOffset, ...], drafts: Sequence[FrameDraft]) -> None:
        if batch <= self.tail.batch:
            return
        self._pending = [tail for tail in self._pending if tail.batch < batch]
        before = self._pending[-1] if self._pending else self.tail
        if batch != before.batch + 1:
            raise BrokenInvariantError(f"batch {batch} of {self._operator} follows batch {before.batch}")
        frames = with_news(number_frames(self._operator, drafts, before, each_carries=False), before)
        self._pending.append(advance(before, frames, batch, offsets))

    async def store(self, batch: int) -> None:
        """Return at once: nobody sees it."""

    def publish(self, batch: int) -> tuple[InputOffset, ...]:
        if batch > self.newest():
            raise BrokenInvariantError(f"batch {batch} of {self._operator} was committed and never written")
        for tail in self._pending:
            if tail.batch <= batch:
                self.tail = tail
        self._pending = [tail for tail in self._pending if tail.batch > batch]
        return self.tail.offsets

    def is_full(self) -> bool:
        return False

    def is_awaited(self) -> bool:
        return False

    async def wait_room(self) -> None:
        """Return at once: nothing is kept."""
