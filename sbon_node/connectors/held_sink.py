"""What sinks share that hold the rows they have taken, deliver them together, and state how far that went."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from sbon_node.connectors.held import Held
from sbon_node.connectors.sink_context import SinkContext
from sbon_node.connectors.stated import Stated, StatedSink, letters_of
from sbon_node.streams.frame import Frame


class HeldSink(StatedSink, ABC):
    """See :class:`sbon_node.connectors.interface.Sink`, whose members these are; a sink says how it delivers."""

    max_held_bytes: ClassVar[int]
    """Rows of so many bytes are delivered at once."""

    def __init__(self, context: SinkContext, stated: Stated) -> None:
        super().__init__(stated, letters_of(context.data_dir, context.part, context.claim, context.settings), context.blocking)
        self._context = context
        self._held = Held(context.schema, stated.streams, stated.ended)

    @abstractmethod
    async def _deliver(self, *, finished: bool) -> None:
        """Delivers what is held, states how far that is, and drops it. Raises :class:`~sbon_node.errors.SbonError`."""

    def take(self, frame: Frame) -> None:
        self._held.take(frame)

    @property
    def wants_flush(self) -> bool:
        return self._held.bytes >= self.max_held_bytes

    async def flush(self) -> Mapping[str, int]:
        if self._held.taken != self._at.streams:
            await self._deliver(finished=False)
        return self.positions()

    async def finish(self) -> None:
        if not self._at.finished:
            await self._deliver(finished=True)

    async def close(self) -> None:
        """What was not delivered is sent again."""
        self._held.reset(self._at.streams, self._at.ended)
