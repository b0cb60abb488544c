"""The rule by which an operator may go on at another host: what both have emitted must be the same.

Spark emits a batch's state with the watermark of the batch before. So everything an operator has emitted is fixed by a pair: the
offsets of its inputs, and the watermark that its newest committed batch ran with. How the input was divided into batches does not
matter, nor how often the operator has started. Two hosts reach the same pair if neither reads beyond the same offsets and both
run until their watermark does not move any more.
"""

from __future__ import annotations

import msgspec

from sbon_node.model.frames import InputOffset
from sbon_protocol.errors import SbonError


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """Position of an operator after a committed batch.

    ``offsets`` are those of its inputs, without the starts counted in them; ``watermark_ms`` is the watermark that the batch ran
    with, ``next_watermark_ms`` that of a batch after it.
    """

    offsets: tuple[InputOffset, ...]
    watermark_ms: int
    next_watermark_ms: int

    @property
    def frames(self) -> tuple[int, ...]:
        """The last frame read of each input."""
        return tuple(offset.frame for offset in self.offsets)

    @property
    def is_settled(self) -> bool:
        """Whether no batch without further input would emit anything."""
        return self.watermark_ms == self.next_watermark_ms

    def has_emitted_as(self, other: Cut) -> bool:
        """Return whether both have emitted the same rows in all, perhaps in other batches."""
        return (self.offsets, self.watermark_ms) == (other.offsets, other.watermark_ms)

    def frames_behind(self, other: Cut) -> int:
        """Return the frames of all inputs that the other has read beyond this; negative if it has read fewer."""
        return sum(theirs - ours for ours, theirs in zip(self.frames, other.frames, strict=True))


def cut_of(offsets: tuple[InputOffset, ...], watermark_ms: int, next_watermark_ms: int) -> Cut:
    """Return the cut of a batch by its entries in Spark's logs of offsets and commits."""
    plain = tuple(msgspec.structs.replace(offset, incarnation=0) for offset in offsets)
    return Cut(offsets=plain, watermark_ms=watermark_ms, next_watermark_ms=next_watermark_ms)


def check_aligned(follower: Cut, host: Cut, operator: str) -> None:
    """Raise :class:`SbonError` ``not-aligned`` unless a follower may go on where the host has stopped."""
    if follower.has_emitted_as(host):
        return
    ours, theirs = (f"frames {cut.frames} with watermark {cut.watermark_ms}" for cut in (follower, host))
    reason = f"the follower has emitted the rows of {ours}, the host those of {theirs}"
    raise SbonError("not-aligned", reason, where=operator, hint="both must settle at the same frames first")
