"""Which frames the next batch takes: those of the least watermarks first, and none that runs too far ahead (docs/design.md,
section 7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sbon_node.streams.credit import weight
from sbon_node.streams.frame import END_WATERMARK_MS, NO_WATERMARK_MS, Frame, InputOffset


@dataclass(slots=True)
class InputSpan:
    """One input: the last batch took it to ``start``, the next one takes it to ``last``; ``at`` gives a frame that is at hand.

    A frame is held back while its watermark, less ``lag_ms``, is more than ``ahead_ms`` beyond where the least of the other
    inputs stands; without ``ahead_ms`` none is. An end is not held back, nor does it go by its own watermark: others may go on
    for ever, and what this input had reached before would hold back all that hangs on them.
    """

    start: int
    offset: InputOffset
    at: Callable[[int], Frame | None]
    lag_ms: int = 0
    ahead_ms: int | None = None
    last: Frame | None = None

    @property
    def next(self) -> Frame | None:
        return self.at(self.start + 1 if self.last is None else self.last.number + 1)

    def reach_ms(self, watermark_ms: int) -> int:
        """The watermark as those of other inputs are counted; nothing and the end are the same for all."""
        return watermark_ms if watermark_ms in (NO_WATERMARK_MS, END_WATERMARK_MS) else watermark_ms - self.lag_ms

    def offset_upto(self, incarnation: int) -> InputOffset:
        """The offset of the input once the batch has run."""
        before, last = self.offset, self.last
        return InputOffset(
            frame=last.number if last else before.frame,
            watermark_ms=max(before.watermark_ms, last.watermark_ms) if last else before.watermark_ms,
            ended=before.ended or (last is not None and last.ended),
            incarnation=incarnation,
        )

    @property
    def stands_ms(self) -> int:
        """How far it is, or could be at once; an input that has ended holds nobody."""
        following = self.next
        if following is not None and following.watermark_ms != END_WATERMARK_MS:
            return self.reach_ms(following.watermark_ms)
        if following is None and (self.offset.ended or (self.last is not None and self.last.ended)):
            return END_WATERMARK_MS
        return self.reach_ms(max(self.offset.watermark_ms, self.last.watermark_ms if self.last else NO_WATERMARK_MS))


def fill(inputs: Sequence[InputSpan], max_bytes: int, max_frames: int, max_rows: int | None = None) -> list[bool]:
    """Takes frames until the batch has so many bytes or rows, each input so many frames, or nothing may be taken; one frame at
    least, where one may. Returns of each input whether its next frame is held back."""
    bytes_left, rows_left, is_empty = max_bytes, max_rows, True
    while True:
        held = _held(inputs)
        free = [
            one
            for one, is_held in zip(inputs, held, strict=True)
            if not is_held and (following := one.next) is not None and following.number - one.start <= max_frames
        ]
        if not free:
            return held
        least = min(free, key=lambda one: one.stands_ms)
        frame = least.next
        assert frame is not None
        size = weight(frame.payload)
        if not is_empty and (size > bytes_left or (rows_left is not None and frame.rows > rows_left)):
            return held
        bytes_left -= size
        rows_left = None if rows_left is None else rows_left - frame.rows
        least.last, is_empty = frame, False


def _held(inputs: Sequence[InputSpan]) -> list[bool]:
    stands = [one.stands_ms for one in inputs]
    if len(stands) < 2:
        return [False] * len(stands)
    least, second = sorted(stands)[:2]
    held = []
    for one, stand in zip(inputs, stands, strict=True):
        following = one.next
        others = second if stand == least else least
        told = following is not None and following.watermark_ms not in (NO_WATERMARK_MS, END_WATERMARK_MS)
        held.append(told and one.ahead_ms is not None and stand > others + one.ahead_ms)
    return held
