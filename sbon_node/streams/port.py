"""What the node offers one running operator: its inputs' links and its place in the outbox (the engine's ``OperatorPort``)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from sbon_node.clock import Clock
from sbon_node.errors import BrokenInvariantError, SbonError
from sbon_node.steps import Steps, unobserved
from sbon_node.streams.channel import StreamOpener
from sbon_node.streams.credit import weight
from sbon_node.streams.frame import Frame, FrameDraft, InputOffset
from sbon_node.streams.ledger import NO_BATCH
from sbon_node.streams.link import Link, Locate
from sbon_node.streams.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_node.streams.signals import Signal


class PortInput(msgspec.Struct, frozen=True, kw_only=True):
    """One input of an operator; ``start_after`` holds for an operator none of whose batches is visible yet."""

    stream: str
    locate: Locate
    start_after: int = 0
    epoch: int = 0


class NodePort:
    """The streams of operator ``operator``, whose output stream bears its id and is open in the outbox.

    Call :meth:`recover` before every start of its engine, the first and any later one.
    """

    def __init__(
        self,
        operator: str,
        inputs: Sequence[PortInput],
        *,
        outbox: Outbox,
        peers: StreamOpener,
        clock: Clock,
        settings: StreamSettings,
        rng: random.Random,
        steps: Steps = unobserved,
    ) -> None:
        self.operator = operator
        self.links: tuple[Link, ...] = ()
        self._inputs = tuple(inputs)
        self._outbox, self._peers, self._clock, self._settings, self._rng, self._steps = (
            outbox,
            peers,
            clock,
            settings,
            rng,
            steps,
        )
        self._news = Signal()
        self._incarnation = 0
        self._restarted = True

    # -- starting and stopping ----------------------------------------------------------------------------------------

    def recover(self, committed: int | None) -> None:
        """The engine is about to start from a checkpoint whose newest readable commit is ``committed``: that and all before it
        become visible, and the links start, or stay, where those batches have read to. Needs the running loop.

        Raises :class:`SbonError` ``checkpoint-mismatch`` where checkpoint and outbox cannot belong together.
        """
        newest = NO_BATCH if committed is None else committed
        visible = self._outbox.visible_batch(self.operator)
        if newest > self._outbox.newest(self.operator) or newest < visible - 1:
            raise SbonError(
                "checkpoint-mismatch",
                f"the checkpoint has committed batch {newest}, the outbox holds up to {self._outbox.newest(self.operator)} "
                f"and has shown {visible}",
                where=self.operator,
                hint="restore checkpoint and outbox from the same moment, or stop the query",
            )
        offsets = self._outbox.publish(self.operator, newest)
        self._restarted = True
        if self.links:
            self._acknowledge(offsets)
        else:
            self._open(offsets)

    def has_batch(self, batch: int) -> bool:
        """Whether the outbox holds, or held, the output of ``batch``: what the repair of a checkpoint asks."""
        return self._outbox.has_batch(self.operator, batch)

    def _open(self, offsets: tuple[InputOffset, ...]) -> None:
        starts = [offset.frame for offset in offsets] if offsets else [one.start_after for one in self._inputs]
        if len(starts) != len(self._inputs):
            raise BrokenInvariantError(f"{self.operator} has {len(self._inputs)} inputs and stored offsets of {len(starts)}")
        self.links = tuple(
            Link(
                one.stream,
                f"{self.operator}#{position}",
                locate=one.locate,
                peers=self._peers,
                clock=self._clock,
                settings=self._settings,
                rng=self._rng,
                start_after=start,
                epoch=one.epoch,
                steps=self._steps,
                news=self._news,
            )
            for position, (one, start) in enumerate(zip(self._inputs, starts, strict=True))
        )
        for link in self.links:
            link.start()

    async def close(self, *, unsubscribe: bool = False) -> None:
        """Ends the links; with ``unsubscribe`` the hosts of the inputs forget the operator."""
        for link in self.links:
            await link.close(unsubscribe=unsubscribe)

    # -- engine.interface.OperatorPort --------------------------------------------------------------------------------

    async def poll(self, after: tuple[InputOffset, ...], wait_s: float) -> tuple[InputOffset, ...]:
        """Offsets up to which a batch may be planned; ``after`` itself where there is no news within ``wait_s`` seconds.

        After each start every input that has had frames is offered again under a new incarnation. Raises :class:`SbonError`
        where an input has failed for good.
        """
        self._check_not_behind(after)
        if self._restarted:
            self._incarnation = 1 + max([self._incarnation, *(offset.incarnation for offset in after)])
            self._restarted = False
        try:
            async with self._clock.timeout(wait_s):
                return await self._wait_news(after)
        except TimeoutError:
            return after

    async def fetch(self, position: int, after_frame: int, upto_frame: int) -> list[Frame]:
        """Frames (after_frame, upto_frame] of an input; waits for those a restart has to bring again."""
        link = self.links[position]
        visible = self._visible_offsets()
        if visible and after_frame < visible[position].frame:
            raise SbonError("not-retained", "a batch that is visible already asks for its input again", where=self.operator)
        if upto_frame <= after_frame:
            return []
        await link.wait(upto_frame - 1)
        return link.inbox.frames(after_frame, upto_frame)

    async def write(self, batch: int, offsets: tuple[InputOffset, ...], drafts: list[FrameDraft]) -> None:
        """Stores a batch's output, as :meth:`sbon_node.streams.outbox.Outbox.write_batch`."""
        if len(offsets) != len(self._inputs):
            raise BrokenInvariantError(
                f"batch {batch} of {self.operator} has {len(offsets)} offsets for {len(self._inputs)} inputs"
            )
        if batch > self._outbox.visible_batch(self.operator):
            self._check_not_behind(offsets)
        self._outbox.write_batch(self.operator, batch, offsets, drafts)

    async def committed(self, batch: int) -> None:
        """The engine has committed ``batch``: it becomes visible, and exactly what visible batches have read is acknowledged."""
        self._acknowledge(self._outbox.publish(self.operator, batch))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _acknowledge(self, offsets: tuple[InputOffset, ...]) -> None:
        for link, offset in zip(self.links, offsets, strict=False):
            link.acknowledge(offset.frame)

    def _visible_offsets(self) -> tuple[InputOffset, ...]:
        visible = self._outbox.visible_batch(self.operator)
        return () if visible == NO_BATCH else self._outbox.batch_offsets(self.operator, visible)

    def _check_not_behind(self, offsets: tuple[InputOffset, ...]) -> None:
        for offset, seen in zip(offsets, self._visible_offsets(), strict=False):
            if offset.frame < seen.frame:
                raise BrokenInvariantError(f"{self.operator} is at frame {offset.frame} of an input and has shown {seen.frame}")

    async def _wait_news(self, after: tuple[InputOffset, ...]) -> tuple[InputOffset, ...]:
        while True:
            for link in self.links:
                link.check()
            if self._outbox.pressure(self.operator):
                await self._outbox.wait_room(self.operator)
                continue
            offered = self._offer(after)
            if offered is not None:
                return offered
            await self._news.wait()

    def _offer(self, after: tuple[InputOffset, ...]) -> tuple[InputOffset, ...] | None:
        budget = self._settings.batch_span_bytes
        offered: list[InputOffset] = []
        news = False
        for link, offset in zip(self.links, after, strict=True):
            upto = link.inbox.span(offset.frame, budget, self._settings.batch_span_frames)
            again = offset.frame > 0 and offset.incarnation != self._incarnation
            news = news or again or upto is not None
            if upto is not None:
                budget -= sum(weight(frame.payload) for frame in link.inbox.frames(offset.frame, upto.number))
            offered.append(
                InputOffset(
                    frame=upto.number if upto else offset.frame,
                    watermark_ms=max(offset.watermark_ms, upto.watermark_ms) if upto else offset.watermark_ms,
                    ended=offset.ended or (upto is not None and upto.ended),
                    incarnation=self._incarnation,
                )
            )
        return tuple(offered) if news else None
